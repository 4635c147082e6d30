"""A backend that runs everything twice and compares: determinism is checked, not promised."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ...formats.delays.resolved import Delays
from ...formats.errors import ReplayFailed
from ..outcome import Outcome, WrongRead
from ..program import Program
from .protocol import Backend, Capabilities, Loaded, Options, Pin

__all__ = ["Twice", "difference"]


class Twice:
    """Loads every program twice and runs both; two outcomes that may not differ and do are an error.

    What has to be equal: everything, times included, where the backend says that it is deterministic; which
    reads were wrong, and in which way, in a pinned run; deadlocks always.

    Parameters
    ----------
    backend : Backend
        The backend that is checked.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def capabilities(self) -> Capabilities:
        """Return what the backend can do."""
        return self.backend.capabilities()

    def available(self) -> str:
        """Return why the backend cannot run here, or an empty string."""
        return self.backend.available()

    def load(self, program: Program, options: Options) -> LoadedTwice:
        """Load a program twice, so that nothing that one run leaves behind reaches the other."""
        first = self.backend.load(program, options)
        try:
            second = self.backend.load(program, options)
        except BaseException:
            first.close()
            raise
        return LoadedTwice(first, second, self.capabilities(), program)


class LoadedTwice:
    """A program, loaded twice."""

    def __init__(self, first: Loaded, second: Loaded, capabilities: Capabilities, program: Program) -> None:
        self._both = (first, second)
        self._capabilities = capabilities
        self._program = program

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        """Run both and return the first outcome.

        Raises
        ------
        ReplayFailed
            The two differ where they may not.
        """
        a, b = (loaded.run(delays, pin=pin) for loaded in self._both)
        found = difference(a, b, deterministic=self._capabilities.deterministic, pinned=pin is not None)
        if found:
            raise ReplayFailed(
                f"two runs on {a.backend} differ: {found}",
                expected="equal outcomes" + (", times included" if self._capabilities.deterministic else ""),
                where=self._program.tape.where,
                next_step="the backend is at fault, or says `deterministic` without being it",
            )
        return replace(a, notes=(*a.notes, "run twice"))

    def close(self) -> None:
        """Close both; calling it twice does nothing."""
        for loaded in self._both:
            loaded.close()


def difference(a: Outcome, b: Outcome, *, deterministic: bool, pinned: bool) -> str:
    """Return what differs between two outcomes and may not, in words; an empty string if nothing.

    Parameters
    ----------
    deterministic : bool
        Everything has to be equal.
    pinned : bool
        Which reads were wrong has to be equal; real times may differ.
    """
    if deterministic:
        compared = [f.name for f in fields(Outcome)]
    else:
        compared = ["backend", "judged", "stuck", "never", "cycles"]
        if pinned:
            compared += ["reads", "wrong_count"]
    for name in compared:
        left, right = getattr(a, name), getattr(b, name)
        if not _equal(left, right):
            return f"{name} {_short(left, right)}"
    if pinned and not deterministic and a.wrong_count == len(a.wrong):
        left, right = ({_without_time(w) for w in o.wrong} for o in (a, b))
        if left != right:
            odd = min(left ^ right, key=lambda w: (w.row, w.access))
            return f"row {odd.row} saw something wrong ({odd.kind}) in one of them only"
    return ""


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return bool(np.array_equal(left, right))
    return bool(left == right)


def _short(left: Any, right: Any) -> str:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and left.shape == right.shape:
        row = int(np.flatnonzero(left != right)[0])
        return f"of row {row}: {int(left[row])} and {int(right[row])}"
    if isinstance(left, list):
        return f"({len(left)} and {len(right)})"
    return f"{left} and {right}"


def _without_time(wrong: WrongRead) -> WrongRead:
    return replace(wrong, at_ns=0)
