"""From text to lines: every line of a litmus file as a dataclass, names not yet resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..notation import (
    LABEL,
    MAX_ACCESSES,
    MAX_LINE,
    MAX_LINES,
    NAME,
    Options,
    Spot,
    integer,
    options,
    shown,
    split,
    string,
)
from ..schema import ACCESS_MODES, ACCESS_ORIGINS, OP_KINDS
from .verdicts import VERDICTS

__all__ = [
    "HEADER_WORDS",
    "AccessText",
    "Declaration",
    "EdgeText",
    "File",
    "RefText",
    "RowText",
    "VerdictText",
    "parse_accesses",
    "parse_ref",
    "read_lines",
]

HEADER_WORDS = (
    "process",
    "device",
    "host",
    "queue",
    "sync",
    "buffer",
    "coverage",
    "list",
    "set",
    "profile",
    "switch",
    "meta",
)

_ID = r"\.[0-9]{1,10}"
_REF = re.compile(rf"(?P<name>\?|{_ID}|{NAME})(?:#(?P<generation>[0-9]{{1,10}}))?(?:\[(?P<range>[^\]]*)\])?")
_FLAG = re.compile(rf":(?:name=(?P<name>\"(?:[^\"\\]|\\.)*\"|{NAME})|(?P<word>[a-z_]+))")
_EXPR = r"(?:(-?[0-9]{1,19})(?:([+-][0-9]{1,19})\*arg)?|(-?[0-9]{1,19})\*arg)"
_RANGE = re.compile(rf"{_EXPR}:{_EXPR}(?:/([0-9]{{1,19}}))?")
_ROW = re.compile(rf"(?P<sign>[-+]?)\s*(?P<label>{LABEL}|\.[0-9]{{1,19}})\s*\|")
_ROW_LIKE = re.compile(r"[^|\"]*\|")
_EDGE = re.compile(r"(?P<sign>[-+]?)\s*edge\s+(?P<src>\S+)\s*->\s*(?P<dst>\S+)(?P<rest>.*)")
_VERDICT = re.compile(rf"(?P<fixed>fixed:\s*)?(?P<kind>{'|'.join(VERDICTS)})(?::(?P<text>.*)|\s*)")
_WORD = re.compile(r"[A-Za-z_]+")
_QUEUE = re.compile(rf"(?P<queue>{_ID}|{NAME})(?:@(?P<thread>\?|{_ID}|{NAME}))?")
_COMMENT_KEY = re.compile(r"#\s*([a-z][a-z -]{0,20}):\s*(.*)")


@dataclass(frozen=True)
class RefText:
    """A buffer as written: name or ``.id``, generation, range with the parts that grow with ``arg``."""

    name: str
    generation: int | None = None
    begin: int | None = None
    end: int = 0
    begin_per_arg: int = 0
    end_per_arg: int = 0
    unit_bytes: int | None = None

    @property
    def bare(self) -> bool:
        """Whether only a name is given: which generation is meant depends on the row."""
        return self.generation is None and not self.name.startswith(".") and self.name != "?"

    @property
    def affine(self) -> bool:
        """Whether the range depends on ``arg``."""
        return self.begin_per_arg != 0 or self.end_per_arg != 0


@dataclass(frozen=True)
class AccessText:
    """One access as written."""

    ref: RefText
    mode: str
    origin: str = "observed"
    name: str | None = None


@dataclass(frozen=True)
class RowText:
    """One row as written."""

    spot: Spot
    sign: str
    label: str | None
    op: int | None
    kind: str
    queue: str
    thread: str | None
    accesses: tuple[AccessText, ...] | None
    target: str
    values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class EdgeText:
    """One ``edge`` line as written."""

    spot: Spot
    sign: str
    src: str
    dst: str
    kind: str
    origin: str


@dataclass(frozen=True)
class Declaration:
    """One header line as written; ``rest`` is what follows the word, for the lines that are not options."""

    spot: Spot
    word: str
    rest: str
    options: Options


@dataclass(frozen=True)
class VerdictText:
    """One verdict line as written."""

    spot: Spot
    fixed: bool
    kind: str
    text: str


@dataclass(frozen=True)
class File:
    """All lines of a file, and what its comments say as ``# key: value``."""

    name: str
    declarations: tuple[Declaration, ...]
    rows: tuple[RowText, ...]
    edges: tuple[EdgeText, ...]
    verdicts: tuple[VerdictText, ...]
    notes: dict[str, str]


def parse_ref(spot: Spot, text: str) -> RefText:
    """Read a buffer reference such as ``M0``, ``M0#1[0:64]`` or ``KV[0:16+16*arg]``."""
    m = _REF.fullmatch(text)
    if m is None:
        raise spot.error(f"buffer {shown(text)}", "NAME, NAME[begin:end], NAME#generation or .id")
    generation = None if m["generation"] is None else int(m["generation"])
    if m["range"] is None:
        if m["name"] == "?":
            raise spot.error(
                "`?` without a range", "?[0:bytes] for anonymous memory, or `?` alone in the cell"
            )
        return RefText(m["name"], generation)
    r = _RANGE.fullmatch(m["range"].replace(" ", ""))
    if r is None:
        raise spot.error(
            f"range [{m['range'][:60]}]", "[begin:end], [begin:end+bytes*arg] or [begin:end/unit_bytes]"
        )
    begin, per_begin = int(r[1] or 0), int(r[2] or r[3] or 0)
    end, per_end = int(r[4] or 0), int(r[5] or r[6] or 0)
    ref = RefText(m["name"], generation, begin, end, per_begin, per_end, None if r[7] is None else int(r[7]))
    if not ref.affine and not 0 <= begin <= end:
        raise spot.error(f"range [{begin}:{end}]", "0 <= begin <= end")
    limit = 1 << 63
    if any(
        not -limit <= v < limit for v in (begin, end, per_begin, per_end, end - begin, per_end - per_begin)
    ):
        raise spot.error(f"range [{m['range'][:60]}]", "numbers of 64 bits")
    if ref.unit_bytes is not None and ref.unit_bytes >= limit:
        raise spot.error(f"range [{m['range'][:60]}]", "numbers of 64 bits")
    if generation is not None and generation >= 1 << 31:
        raise spot.error(f"generation {generation}", "a number of 31 bits")
    return ref


def _access(spot: Spot, text: str, mode: str) -> AccessText:
    m = _REF.match(text)
    if m is None:
        raise spot.error(f"access {shown(text)}", "NAME, NAME[begin:end], NAME:mode, ...")
    ref = parse_ref(spot, m.group())
    origin, name = "observed", None
    pos = m.end()
    while pos < len(text):
        f = _FLAG.match(text, pos)
        if f is None:
            raise spot.error(f"{shown(text[pos:])} after a buffer", ":mode, :origin or :name=NAME")
        if f["name"] is not None:
            name = string(spot, f["name"])
        elif f["word"] in ACCESS_MODES:
            mode = f["word"]
        elif f["word"] in ACCESS_ORIGINS:
            origin = f["word"]
        else:
            raise spot.error(f":{f['word'][:60]}", f"one of {', '.join((*ACCESS_MODES, *ACCESS_ORIGINS))}")
        pos = f.end()
    return AccessText(ref, mode, origin, name)


def parse_accesses(spot: Spot, reads: str, writes: str) -> tuple[AccessText, ...] | None:
    """Read the two access cells; None if they say `?` (not known)."""
    if reads == "?" or writes == "?":
        if reads not in ("", "?") or writes not in ("", "?"):
            raise spot.error("`?` beside accesses", "`?` alone: what the row touches is not known")
        return None
    out = []
    for cell, mode in ((reads, "read"), (writes, "write")):
        if cell:
            out += [_access(spot, part, mode) for part in split(spot, cell, ",")]
    return tuple(out)


def _row(spot: Spot, m: re.Match[str], text: str) -> RowText:
    cells = split(spot, text[m.end() :], "|")
    if not 2 <= len(cells) <= 6:
        raise spot.error(
            f"{len(cells) + 1} fields",
            "label | kind | queue[@thread] | reads | writes | sync-or-target | extras",
        )
    kind, queue, reads, writes, target, extras = cells + [""] * (6 - len(cells))
    if kind not in OP_KINDS:
        raise spot.error(f"kind {shown(kind)}", f"one of {', '.join(OP_KINDS)}")
    q = _QUEUE.fullmatch(queue.replace(" ", ""))
    if q is None:
        raise spot.error(f"queue {shown(queue)}", "QUEUE or QUEUE@THREAD")
    opts = options(spot, extras)
    if opts.args:
        raise spot.error(f"{shown(opts.args[0])} among the extras", "key=value parts")
    label: str | None = m["label"]
    op = None
    if m["label"].startswith("."):
        label, op = None, integer(spot, m["label"][1:], "op id", low=0)
    accesses = parse_accesses(spot, reads, writes)
    return RowText(spot, m["sign"], label, op, kind, q["queue"], q["thread"], accesses, target, opts.values)


def _edge(spot: Spot, m: re.Match[str]) -> EdgeText:
    opts = options(spot, m["rest"])
    unknown = set(opts.values) - {"origin"}
    if unknown or len(opts.args) > 1:
        raise spot.error(shown(m["rest"]), "edge SRC -> DST [kind] [origin=...]")
    return EdgeText(
        spot,
        m["sign"],
        m["src"],
        m["dst"],
        (*opts.args, "order")[0],
        opts.values.get("origin", "observed") or "",
    )


def read_lines(text: str, name: str) -> File:
    """Cut a file into lines and read each.

    Raises
    ------
    LitmusError
        If a line is none of the known kinds, or the file is beyond the bounds.
    """
    declarations: list[Declaration] = []
    rows: list[RowText] = []
    edges: list[EdgeText] = []
    verdicts: list[VerdictText] = []
    notes: dict[str, str] = {}
    lines = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        raise Spot(name, MAX_LINES).error(
            "more lines",
            f"at most {MAX_LINES} lines",
            "a litmus file is for tiny tapes; store larger ones as a tape",
        )
    n_accesses = 0
    for number, raw in enumerate(lines, 1):
        spot = Spot(name, number)
        if len(raw) > MAX_LINE:
            raise spot.error(f"a line of {len(raw)} characters", f"at most {MAX_LINE}")
        line = raw.strip()
        if not line:
            continue
        if line.startswith("#"):
            if note := _COMMENT_KEY.fullmatch(line):
                notes.setdefault(note[1], note[2].strip())
            continue
        if m := _ROW.match(line):
            rows.append(_row(spot, m, line))
            n_accesses += len(rows[-1].accesses or ())
            if n_accesses > MAX_ACCESSES:
                raise spot.error("more accesses", f"at most {MAX_ACCESSES} in one file")
        elif m := _EDGE.fullmatch(line):
            edges.append(_edge(spot, m))
        elif m := _VERDICT.fullmatch(line):
            verdicts.append(VerdictText(spot, m["fixed"] is not None, m["kind"], (m["text"] or "").strip()))
        else:
            declarations.append(_declaration(spot, line, bool(rows or edges)))
    return File(name, tuple(declarations), tuple(rows), tuple(edges), tuple(verdicts), notes)


def _declaration(spot: Spot, line: str, late: bool) -> Declaration:
    w = _WORD.match(line)
    word = w.group() if w else ""
    if word not in HEADER_WORDS or (len(line) > len(word) and not line[len(word)].isspace()):
        if _ROW_LIKE.match(line):
            raise spot.error(
                f"row label {shown(line.split('|', 1)[0].strip())}",
                "letters, digits, `_`, `.`, `-` (after `-` or `+` for a variant), or .id",
            )
        raise spot.error(
            f"line {shown(line)}",
            f"a row, `edge A -> B`, a verdict line, a comment, or one of {', '.join(HEADER_WORDS)}",
        )
    if late:
        raise spot.error(f"`{word}` after the first row", "header lines before the rows", "move this line up")
    rest = line[len(word) :].strip()
    plain = word in ("set", "profile", "meta", "list")
    return Declaration(spot, word, rest, Options((), {}) if plain else options(spot, rest))
