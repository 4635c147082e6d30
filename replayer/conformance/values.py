"""Cases: what reads see, how it is told, and what is no fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..outcome import AT_END, Seen
from .case import LONG, Case, Run

__all__ = ["value_cases"]

VALUES = frozenset({"values"})


def _first(label: str, saw: str, expected: str, *, state: str = "version") -> Callable[[Run], str]:
    """Return a check: the first wrong read, what it saw and what it should have seen (``-``: nothing yet)."""

    def writer(run: Run, name: str) -> int:
        return -1 if name == "-" else run.rows[name]

    def check(run: Run) -> str:
        first = run.outcome.first
        if first is None:
            return ""
        if first.row != run.rows[label]:
            return f"the first wrong read is of row {first.row}, not of {label}"
        for what, parts, name in (("saw", first.saw, saw), ("should have seen", first.expected, expected)):
            if not parts or any(p.writer != writer(run, name) for p in parts):
                return f"{label} {what} {_told(parts)}, not the version of {name}"
        if state not in {p.state for p in first.saw}:
            return f"{label} saw {_told(first.saw)}, not a {state}"
        return ""

    return check


def _told(parts: tuple[Seen, ...]) -> str:
    return (
        ", ".join(f"{p.begin}:{p.end} of row {p.writer} ({p.state})" for p in parts) or "nothing that is told"
    )


def _reaches(*labels: str) -> Callable[[Run], str]:
    """Return a check: the chain goes over these rows to the read at the end."""

    def check(run: Run) -> str:
        if run.outcome.first is None:
            return ""
        wanted = (*(run.rows[x] for x in labels), AT_END)
        return "" if run.outcome.chain == wanted else f"the chain is {run.outcome.chain}, not {wanted}"

    return check


def _derived(label: str) -> Callable[[Run], str]:
    """Return a check: the wrong read of a row only shows what came out of an earlier one."""

    def check(run: Run) -> str:
        mine = [w for w in run.outcome.wrong if w.row == run.rows[label]]
        if run.outcome.first is None:
            return ""
        return (
            ""
            if mine and all(w.derived for w in mine)
            else f"{label} read what was derived; that is not told"
        )

    return check


def _kind(label: str, kind: str) -> Callable[[Run], str]:
    """Return a check: a row has a wrong read of this kind."""

    def check(run: Run) -> str:
        kinds = {w.kind for w in run.outcome.wrong if w.row == run.rows[label]}
        return "" if kind in kinds or not run.outcome.wrong else f"{label}: {sorted(kinds)}, not {kind}"

    return check


def _bytes(label: str, begin: int, end: int) -> Callable[[Run], str]:
    """Return a check: exactly these bytes of the first wrong read differ."""

    def check(run: Run) -> str:
        first = run.outcome.first
        if first is None:
            return ""
        hull = (min((p.begin for p in first.saw), default=0), max((p.end for p in first.saw), default=0))
        return (
            "" if hull == (begin, end) else f"{label} differs in bytes {hull[0]}:{hull[1]}, not {begin}:{end}"
        )

    return check


def _all(*checks: Callable[[Run], str]) -> Callable[[Run], str]:
    return lambda run: next((found for c in checks if (found := c(run))), "")


_STALE = """
w | kernel | s0 | | A
r | kernel | s1 | A | B
q | kernel | s1 | B | C
"""

# Both ops take long, and the second is moved into the first.
_OVERLAP = f"""
i | kernel | s1 | | A
1 | sync | H | | | s1
r | kernel | s0 | A | Y | | dur={LONG}
w | kernel | s1 | | A | | dur={LONG}
"""


def _stale() -> Iterator[Case]:
    late = (("w", "before_start", 3.0),)
    yield Case(
        "values/stale",
        "A stale read is told with the version that it saw and the one that it should have seen.",
        _STALE,
        expect="wrong",
        delays=late,
        needs=VALUES,
        check=_first("r", "-", "w"),
    )
    yield Case(
        "values/derived",
        "What comes out of a wrong read is told as derived, and the chain leads to the host.",
        _STALE,
        expect="wrong",
        delays=late,
        needs=VALUES,
        check=_all(_derived("q"), _reaches("r")),
    )
    yield Case(
        "values/too-new",
        "A read that a later write overtakes is wrong as well.",
        "i | kernel | s0 | | A\n1 | record | s0 | | | e\n2 | wait | s1 | | | e\n"
        "r | kernel | s0 | A | Y\nw | kernel | s1 | | A\n",
        expect="wrong",
        delays=(("r", "before_start", 3),),
        needs=VALUES,
        check=_first("r", "w", "i"),
    )
    yield Case(
        "values/at-end",
        "Two writes in the wrong order show in the host's read at the end.",
        "a | kernel | s0 | | A\nb | kernel | s1 | | A\n",
        expect="wrong",
        delays=(("a", "before_start", 3),),
        needs=VALUES,
    )
    yield Case(
        "values/overwritten",
        "Two writes in the wrong order that nobody reads and a third overwrites are no fault of values.",
        "a | kernel | s0 | | A\nb | kernel | s1 | | A\n1 | sync | H | | | *\nc | kernel | s1 | | A\n"
        "r | kernel | s1 | A | Y\n",
        delays=(("a", "before_start", 3),),
    )
    yield Case(
        "values/copy",
        "A copy carries what it read.",
        "w | kernel | s0 | | A\nc | copy | s1 | A | B\n1 | sync | H | | | s1\nr | host | H | B | \n",
        expect="wrong",
        delays=(("w", "before_start", 3),),
        needs=VALUES,
        check=_first("c", "-", "w"),
    )


def _parts() -> Iterator[Case]:
    yield Case(
        "values/partial",
        "Of a read only the bytes that another op touches can differ.",
        "w | kernel | s0 | | A[0:4096]\n1 | sync | H | | | s0\nv | kernel | s0 | | A[1024:2048]\n"
        "r | kernel | s1 | A[0:4096] | Y\n",
        expect="wrong",
        delays=(("v", "before_start", 3),),
        needs=VALUES,
        check=_all(_first("r", "w", "v"), _bytes("r", 1024, 2048)),
    )
    yield Case(
        "values/disjoint",
        "Ranges that touch and do not overlap have nothing to do with each other.",
        "w | kernel | s0 | | A[0:1001]\nr | kernel | s1 | A[1001:2048] | Y\n",
        delays=(("w", "before_start", 3),),
    )
    yield Case(
        "values/odd-bytes",
        "Ranges of any alignment are told apart.",
        "w | kernel | s0 | | A[0:64]\n1 | sync | H | | | s0\nv | kernel | s0 | | A[13:14]\n"
        "r | kernel | s1 | A[13:14] | Y\n",
        expect="wrong",
        delays=(("v", "before_start", 3),),
        needs=VALUES,
        check=_first("r", "w", "v"),
    )
    yield Case(
        "values/sub-allocation",
        "A sub-allocation is a range of its parent.",
        "buffer M 4096\nbuffer S 1024 parent=M offset=1024\nbuffer Y 64\n"
        "w | kernel | s0 | | M\nr | kernel | s1 | S | Y\n",
        expect="wrong",
        delays=(("w", "before_start", 3),),
        needs=VALUES,
        check=_first("r", "-", "w"),
    )
    yield Case(
        "values/growing",
        "A range that grows with the op's argument ends where it says.",
        "buffer KV 4096\nbuffer Y 64\nbuffer Z 64\nw | kernel | s0 | | KV[64*arg:64+64*arg] | | arg=3\n"
        "r | kernel | s1 | KV[0:64*arg] | Y | | arg=3\nq | kernel | s2 | KV[0:64*arg] | Z | | arg=4\n",
        expect="wrong",
        delays=(("w", "before_start", 3),),
        needs=VALUES,
        check=_first("q", "-", "w"),
    )
    yield Case(
        "values/units",
        "Of a pool only the units that an op lists are touched.",
        "buffer P 4096\nbuffer Y 64\nw | kernel | s0 | | P[0:64/64] | | units=1,5\n"
        "r | kernel | s1 | P[0:64/64] | Y | | units=0,2,6\n",
        delays=(("w", "before_start", 3),),
    )


def _modes() -> Iterator[Case]:
    yield Case(
        "values/update",
        "An update reads what it overwrites: two in the wrong order show.",
        "a | kernel | s0 | | A:update\nb | kernel | s1 | | A:update\n",
        expect="wrong",
        delays=(("a", "before_start", 3),),
        needs=VALUES,
        check=_first("b", "-", "a"),
    )
    yield Case(
        "values/may-write",
        "A scatter that may write changes what a later read sees.",
        "a | kernel | s0 | | A:may_write\nr | kernel | s1 | A | Y\n",
        expect="wrong",
        delays=(("a", "before_start", 3),),
        needs=VALUES,
        check=_first("r", "-", "a"),
    )
    reduces = (
        "i | kernel | s0 | | A\n1 | record | s0 | | | e\n2 | wait | s1 | | | e\n"
        "a | kernel | s0 | | A:reduce\nb | kernel | s1 | | A:reduce\n"
    )
    joined = reduces + "3 | sync | H | | | *\nr | kernel | s0 | A | Y\n"
    yield Case(
        "values/reduce",
        "Two reductions commute, whichever comes first, and whether or not they overlap.",
        joined,
        delays=(("a", "before_start", 3),),
        repeat=3,
    )
    yield Case(
        "values/reduce-together",
        "Two reductions commute, whichever comes first, and whether or not they overlap.",
        joined,
        repeat=10,
    )
    yield Case(
        "values/reduce-missed",
        "A read that comes before a reduction does not see it.",
        reduces + "r | kernel | s1 | A | Y\n",
        expect="wrong",
        delays=(("a", "before_start", 3),),
        needs=VALUES,
    )


def _torn() -> Iterator[Case]:
    yield Case(
        "values/torn-read",
        "A write that goes on during a read tears it.",
        _OVERLAP,
        expect="wrong",
        delays=(("w", "before_start", 2),),
        needs=VALUES | {"torn"},
        check=_kind("r", "torn"),
    )
    yield Case(
        "values/torn-write",
        "A read that goes on during a write is torn.",
        _OVERLAP,
        expect="wrong",
        delays=(("r", "before_start", 2),),
        needs=VALUES | {"torn"},
        check=_kind("r", "torn"),
    )
    yield Case(
        "values/parts-are-kin",
        "An op and its parts do not tear each other's memory.",
        f"g | kernel | s0 | | A\nw | kernel | s1 | | A | | parent=g dur={LONG}\n"
        f"1 | sync | H | | | s0\nr | kernel | s0 | A | Y\n",
        delays=(("w", "before_start", 2),),
    )
    yield Case(
        "values/reads-share",
        "Two reads at once do not disturb each other.",
        f"i | kernel | s0 | | A\n1 | sync | H | | | s0\nr | kernel | s0 | A | Y | | dur={LONG}\n"
        f"q | kernel | s1 | A | Z | | dur={LONG}\n",
    )


def _lives() -> Iterator[Case]:
    needs = frozenset({"values", "lifetimes"})
    text = (
        "1 | alloc | H | | | A\nw | kernel | s0 | | A\n+2 | sync | H | | | s0\nf | free | H | | | A\n"
        "-r | kernel | s0 | A | Y\n"
    )
    yield Case(
        "values/use-after-free",
        "A use of memory that was freed is told.",
        text,
        expect="wrong",
        delays=(("r", "before_start", 3),),
        needs=needs,
        check=_kind("r", "freed"),
    )
    yield Case(
        "values/freed-after-use", "Memory that is freed after its last use is no fault.", text, "fixed"
    )
    text = (
        "1 | record | s0 | | | e\n-d | destroy | H | | | e\n2 | wait | s1 | | | e\nr | kernel | s1 | | Y\n"
        "+3 | sync | H | | | s1\n+d | destroy | H | | | e\n"
    )
    yield Case(
        "values/use-after-destroy",
        "A use of an event that was destroyed is told.",
        text,
        expect="wrong",
        needs=needs,
        check=_kind("2", "destroyed"),
    )
    yield Case(
        "values/destroyed-after-use",
        "An event that is destroyed after its last use is no fault.",
        text,
        "fixed",
    )


def value_cases() -> Iterator[Case]:
    """Yield the cases about values."""
    for family in (_stale, _parts, _modes, _torn, _lives):
        yield from family()
