"""From text to a plan."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from ..errors import PlanError, UsageError, VersionError
from ..schema import OP_KINDS
from .globs import Glob, GlobError, is_bare
from .plan import (
    ANY_KIND,
    EVERY,
    LAST,
    MAX_ANCHORS,
    MAX_BYTES,
    MAX_LINE,
    MAX_LINES,
    MAX_NS,
    MAX_NTH,
    MAX_SEED,
    VERSION,
    Line,
    Pattern,
    Plan,
)
from .resolved import BEFORE_START, PLACES

__all__ = ["HEADER", "UNITS", "parse_expression", "parse_plan", "parse_time"]

HEADER = "tapedelay-plan"
"""First word of a plan file; its version follows."""

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_BLANKS = " \t"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|"|[^ \t"]+')
_OP = re.compile(r"#([0-9]+)")
_NTH = re.compile(r"([0-9]+)(?:st|nd|rd|th)")
_TIME = re.compile(r"([0-9]{1,13})(?:\.([0-9]{1,9}))?(ns|us|ms|s)")
_NO_TIME = "a time with a unit of ns, us, ms, s, such as 3ms"
_FURTHER = re.compile(r"\+([0-9]{1,10})")
_EXACT = re.compile(rf"#([0-9]{{1,18}}) \+([0-9]{{1,13}})(ns|us|ms|s) ({'|'.join(PLACES)})")
_COUNTED = re.compile(
    r"(first|[1-9][0-9]{0,8}(?:st|nd|rd|th)) ([a-z]+) on ([A-Za-z0-9_.]+)"
    rf" \+([0-9]{{1,13}})(ns|us|ms|s) ({'|'.join(PLACES)})"
)
_KINDS = frozenset((*OP_KINDS, ANY_KIND))
_FORM = "WHICH KIND [of NAME] [touching NAME] [on NAME] +TIME [PLACE], #OP +TIME or random seed=N max=TIME"


def parse_plan(text: str, name: str = "plan") -> Plan:
    """Return the plan of a file's text.

    Parameters
    ----------
    text : str
        The text, with its header line.
    name : str
        File name, for messages.

    Raises
    ------
    PlanError
        It is no plan; the message names the line.
    VersionError
        Its version is another.
    """
    return _Reader(name).read(text, header=True)


def parse_expression(text: str, name: str = "--delays") -> Plan:
    """Return the plan of an expression: lines without a header.

    Raises
    ------
    PlanError
        It is none.
    """
    return _Reader(name).read(text, header=False)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: dict[str, Glob] = {}

    def read(self, text: str, *, header: bool) -> Plan:
        if len(text) > MAX_BYTES:
            raise self.error(0, f"{len(text):,} characters", f"at most {MAX_BYTES:,}")
        lines: list[Line] = []
        notes: list[str] = []
        self._anchors = set[tuple[str, Glob | None, Glob | None, Glob | None]]()
        waiting = header
        if text.startswith("\ufeff"):
            text = text[1:]
        for number, ended in enumerate(io.StringIO(text, newline="\n"), 1):
            raw = ended.removesuffix("\n").removesuffix("\r")
            if number > 2 * MAX_LINES:
                raise self.error(number, f"more than {2 * MAX_LINES:,} lines", "fewer")
            simple = None if waiting else self._simple(raw, number)
            if simple is not None:
                lines.append(simple)
            else:
                words = _Words(self, number, raw)
                if not words.left:
                    if words.note and not lines:
                        notes.append(words.note)
                    continue
                if waiting:
                    words.header()
                    waiting = False
                    continue
                line = words.line()
                lines.append(line)
            if len(lines) > MAX_LINES:
                raise self.error(number, f"more than {MAX_LINES:,} delays", "fewer, or one rule for many ops")
            anchor = lines[-1].anchor
            if isinstance(anchor, Pattern):
                self._anchors.add((anchor.kind, anchor.name, anchor.touching, anchor.on))
                if len(self._anchors) > MAX_ANCHORS:
                    raise self.error(
                        number,
                        f"more than {MAX_ANCHORS:,} patterns that differ in more than a count",
                        "fewer of them",
                    )
        if waiting:
            raise self.error(1, "no header line", f"`{HEADER} {VERSION}` as the first line")
        if not header and not lines:
            raise self.error(0, "no delay", _FORM)
        return Plan(tuple(lines), tuple(notes), self._name)

    def _simple(self, raw: str, number: int) -> Line | None:
        """Return the line if it is of a form that plans of many lines consist of."""
        m = _EXACT.fullmatch(raw)
        if m is not None:
            ns = int(m[2]) * UNITS[m[3]]
            return None if ns > MAX_NS else Line(int(m[1]), ns, PLACES.index(m[4]), number=number)
        m = _COUNTED.fullmatch(raw)
        if m is None or m[2] not in _KINDS:
            return None
        ns = int(m[4]) * UNITS[m[5]]
        if ns > MAX_NS:
            return None
        glob = self._kept.get(m[3])
        if glob is None:
            glob = self._kept[m[3]] = Glob.of(m[3])
        which = 1 if m[1] == "first" else int(m[1][:-2])
        return Line(Pattern(which, m[2], on=glob), ns, PLACES.index(m[6]), number=number)

    def error(self, number: int, found: str, expected: str) -> PlanError:
        return PlanError(
            found,
            expected=expected,
            where=f"{self._name}:{number}" if number else self._name,
            next_step="correct it; formats/DELAYS.md describes the notation",
        )

    def version_error(self, number: int, found: str) -> VersionError:
        return VersionError(
            f"a plan of version {found}",
            expected=f"version {VERSION}",
            where=f"{self._name}:{number}",
            next_step="use the tapedelay that wrote it, or a newer one",
        )


@dataclass
class _Words:
    """The words of one line, taken from the left."""

    reader: _Reader
    number: int
    raw: str

    def __post_init__(self) -> None:
        if len(self.raw) > MAX_LINE:
            raise self.error(f"{len(self.raw):,} characters", f"at most {MAX_LINE:,} in a line")
        self.left: list[str] = []
        self.note = ""
        for c in self.raw:
            if c != "\t" and not c.isprintable():
                raise self.error(f"the character U+{ord(c):04X}", "printable text; \\u{HEX} in a name")
        self._cut_up()

    def _cut_up(self) -> None:
        raw, at = self.raw, 0
        while True:
            while at < len(raw) and raw[at] in _BLANKS:
                at += 1
            if at == len(raw):
                return
            if raw[at] == "#" and not _OP.match(raw, at):
                self.note = raw[at + 1 :].strip()
                return
            m = _TOKEN.match(raw, at)
            assert m is not None
            if m[0] == '"':
                raise self.error(f"an open quote: {_cut(raw[at:])}", "a closing quote on the same line")
            at = m.end()
            if at < len(raw) and raw[at] not in _BLANKS:
                raise self.error(_cut(raw[m.start() :]), "a blank between words")
            self.left.append(m[0])

    def error(self, found: str, expected: str) -> PlanError:
        return self.reader.error(self.number, found, expected)

    def take(self, expected: str) -> str:
        if not self.left:
            raise self.error("the end of the line", expected)
        return self.left.pop(0)

    def header(self) -> None:
        words, self.left = self.left, []
        if words[0] != HEADER or len(words) != 2:
            raise self.error(_cut(" ".join(words)), f"`{HEADER} {VERSION}` as the first line")
        if words[1] != str(VERSION):
            raise self.reader.version_error(self.number, _cut(words[1]))

    def line(self) -> Line:
        seed = None
        most = None
        if self.left[0] == "random" or self.left[0].startswith("seed="):
            seed, most = self._random()
            anchor = self._anchor() if self.left and self.left[0] not in PLACES else Pattern()
        else:
            anchor = self._anchor()
        ns = self._time(self.take("+TIME, such as +3ms"), "+") if most is None else most
        place = BEFORE_START
        if self.left:
            word = self.take("")
            if word not in PLACES:
                raise self.error(_cut(word), f"{', '.join(PLACES)}, or the end of the line")
            place = PLACES.index(word)
        if self.left:
            raise self.error(_cut(self.left[0]), "the end of the line, or `# comment`")
        return Line(anchor, ns, place, seed, self.note, self.number)

    def _random(self) -> tuple[int, int]:
        if self.left[0] == "random":
            self.left.pop(0)
        word = self.take("seed=N")
        text = word.removeprefix("seed=")
        if text == word or not _digits(text, 20) or int(text) > MAX_SEED:
            raise self.error(_cut(word), f"seed=N, N from 0 to {MAX_SEED}")
        word = self.take("max=TIME")
        if not word.startswith("max="):
            raise self.error(_cut(word), "max=TIME, such as max=200us")
        return int(text), self._time(word, "max=")

    def _anchor(self) -> int | Pattern:
        word = self.take(_FORM)
        op = _OP.fullmatch(word)
        if op is not None:
            if len(op[1]) > 18:
                raise self.error(_cut(word), "an op id")
            return int(op[1])
        which = self._which(word)
        kind = self.take("a kind of op")
        if kind not in _KINDS:
            raise self.error(_cut(kind), f"a kind of op: {', '.join(OP_KINDS)}, or {ANY_KIND}")
        parts: dict[str, Glob] = {}
        for key in ("of", "touching", "on"):
            if self.left and self.left[0] == key:
                self.left.pop(0)
                parts[key] = self._name(self.take(f"a name after `{key}`"))
        further = 0
        if self.left and (m := _FURTHER.fullmatch(self.left[0])) is not None:
            self.left.pop(0)
            further = int(m[1])
            if not 1 <= further <= MAX_NTH:
                raise self.error(m[0], f"+K with K from 1 to {MAX_NTH}")
        if self.left and self.left[0] in ("of", "touching", "on"):
            raise self.error(f"`{self.left[0]}` here", "of, touching, on, +K, in this order, each once")
        return Pattern(which, kind, parts.get("of"), parts.get("touching"), parts.get("on"), further)

    def _which(self, word: str) -> int:
        named = {"first": 1, "last": LAST, "every": EVERY}.get(word)
        if named is not None:
            return named
        m = _NTH.fullmatch(word)
        if m is None or len(m[1]) > 10 or not 1 <= int(m[1]) <= MAX_NTH:
            raise self.error(_cut(word), f"first, last, every, 2nd, 3rd, ... or #OP, to begin {_FORM}")
        return int(m[1])

    def _name(self, word: str) -> Glob:
        known = self.reader._kept.get(word)
        if known is not None:
            return known
        if not word.startswith('"') and not is_bare(word):
            raise self.error(_cut(word), "a name; one with other characters in quotes")
        try:
            glob = Glob.of(word[1:-1] if word.startswith('"') else word)
        except GlobError as e:
            raise self.error(f"{_cut(word)}: {e}", "a name") from None
        self.reader._kept[word] = glob
        return glob

    def _time(self, word: str, prefix: str) -> int:
        expected = f"{prefix}TIME with a unit of ns, us, ms, s, such as {prefix}3ms"
        if not word.startswith(prefix):
            raise self.error(_cut(word), expected)
        ns, wrong = _nanoseconds(word.removeprefix(prefix))
        if wrong:
            raise self.error(_cut(word), expected if wrong == _NO_TIME else wrong)
        return ns


def parse_time(text: str, where: str) -> int:
    """Return a time in nanoseconds: ``3ms``, ``1.5us``.

    Raises
    ------
    UsageError
        It is none; `where` says whose.
    """
    ns, wrong = _nanoseconds(text)
    if wrong:
        raise UsageError(_cut(text), expected=wrong, where=where)
    return ns


def _nanoseconds(text: str) -> tuple[int, str]:
    """Return a time, and what was expected where it is none."""
    m = _TIME.fullmatch(text)
    if m is None:
        return 0, _NO_TIME
    decimals = m[2] or ""
    ns, rest = divmod(int(m[1] + decimals) * UNITS[m[3]], int("1" + "0" * len(decimals)))
    if rest:
        return 0, "a whole number of nanoseconds"
    return (ns, "") if ns <= MAX_NS else (0, f"at most {MAX_NS // UNITS['s']} s")


def _digits(text: str, most: int) -> bool:
    return 0 < len(text) <= most and text.isascii() and text.isdecimal()


def _cut(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
