"""Plan lines that hide or show findings: one by its own two ops, all of a kind by every op like them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.delays import BEFORE_ISSUE, BEFORE_START, EVERY, Anchors, Glob, Line, Pattern, print_line
from ...formats.plain import flat, words
from ...formats.tape import Tape
from .findings import Finding
from .lasting import lasting_anchor
from .roles import roles

__all__ = ["HIDES_NS", "SHOWS_NS", "DelayLines"]

SHOWS_NS = 3_000_000
"""A delay that shows a finding: long for a device, short for a person."""
HIDES_NS = 10_000_000
"""One that hides it: longer, so that it hides also what is made to show."""

_LASTING = 64
"""Findings that get anchors that mean something in another run; the others get op ids."""

_MOST_LINES = 4
"""Lines for one kind of finding: ops of more names are named by kind and queue alone."""

_NEVER = ("double-free", "deadlock")

_Key = tuple[str, str, str]
_Rows = npt.NDArray[np.int32]


class DelayLines:
    """Writes plan lines for the findings of one tape.

    Parameters
    ----------
    tape : Tape
        The whole tape.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._known: Anchors | None = None
        self._issuer = tape.columns("ops", ["issuer"]).column(0)
        self._queues = words(flat(tape.table("queues")), "name")
        self._lasting = 0

    @property
    def _anchors(self) -> Anchors:
        if self._known is None:
            self._known = Anchors(self._tape)
        return self._known

    def of_finding(self, finding: Finding, rows: tuple[int, int], *, lasting: bool) -> tuple[str, str]:
        """Return the line that hides a finding and the one that shows it; empty where there is none.

        Parameters
        ----------
        finding : Finding
            About two ops.
        rows : (int, int)
            Their rows.
        lasting : bool
            The lines are to mean something in another run as well.
        """
        if finding.fault in _NEVER:
            return "", ""
        late, after = roles(finding, rows)
        if late > after:  # it came late as it was
            return "", ""
        views = dict(zip(rows, finding.ops, strict=True))
        if lasting and self._lasting < _LASTING:
            self._lasting += 1
            of = {r: lasting_anchor(self._anchors, r, v, self._anchors.queue) for r, v in views.items()}
        else:
            of = {r: v.op for r, v in views.items()}
        issued = self._issuer[after].as_py() is not None
        hides = print_line(Line(of[after], HIDES_NS, BEFORE_ISSUE)) if issued else ""
        return hides, print_line(Line(of[late], SHOWS_NS, BEFORE_START))

    def of_kind(
        self, example: Finding, first: _Rows, second: _Rows
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the lines that hide all findings of a kind, and those that show them.

        Parameters
        ----------
        example : Finding
            One of them.
        first, second : numpy.ndarray of int32, shape (findings,)
            The rows of each.

        Returns
        -------
        (tuple of str, tuple of str)
            Lines that belong together; empty where there are none.
        """
        if example.fault in _NEVER:
            return (), ()
        late, after = (first, second) if roles(example, (0, 1)) == (0, 1) else (second, first)
        if bool((late > after).any()):
            return (), ()
        at_late, at_after = self._keys(late), self._keys(after)
        at_late, at_after = (_wide(k) if len(k) > _MOST_LINES else k for k in (at_late, at_after))
        if max(len(at_late), len(at_after)) > _MOST_LINES or _meet(at_late, at_after):
            return (), ()
        issued = all(i is not None for i in self._issuer.take(np.unique(after)).to_pylist())
        hides = _lines(at_after, HIDES_NS, BEFORE_ISSUE) if issued else ()
        return hides, _lines(at_late, SHOWS_NS, BEFORE_START)

    def _keys(self, rows: _Rows) -> set[_Key]:
        """Return kind, name and queue of the ops in these rows."""
        queue = self._anchors.queue
        return {
            (*self._anchors.named(r), str(self._queues[queue[r]] or "")) for r in np.unique(rows).tolist()
        }


def _wide(keys: set[_Key]) -> set[_Key]:
    return {(kind, "", queue) for kind, _, queue in keys}


def _meet(one: set[_Key], other: set[_Key]) -> bool:
    """Whether a line would hold up ops of both."""
    return bool(one & other) or bool(_wide(one) & other) or bool(one & _wide(other))


def _lines(keys: set[_Key], time_ns: int, place: int) -> tuple[str, ...]:
    return tuple(
        print_line(
            Line(
                Pattern(
                    EVERY,
                    kind,
                    Glob.exactly(name) if name else None,
                    on=Glob.exactly(queue) if queue else None,
                ),
                time_ns,
                place,
            )
        )
        for kind, name, queue in sorted(keys)
    )
