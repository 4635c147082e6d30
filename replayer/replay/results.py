"""What `replay` gives back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.delays import Delays, LineMatch, Plan, print_line
from ...formats.tape import Tape
from ..check.findings import Finding, Report
from ..outcome import Outcome
from ..program import Program
from .names import Names
from .timeline import Timeline, timeline
from .told import Told

__all__ = ["SCHEMA", "Replay"]

SCHEMA = "tapedelay-replay-1"
"""Name of the layout of `Replay.as_dict`."""


@dataclass
class Replay:
    """The result of `replay`.

    Attributes
    ----------
    tape : str
        Name of the tape.
    backend : str
        Name of the backend.
    plan : Plan
        The delays asked for.
    delays : Delays
        The plan by row.
    matched : tuple of LineMatch
        How many ops each line delayed.
    outcome : Outcome
        The first run that found something, else the last one.
    report : Report
        What `check` says about the same ops.
    told : tuple of Told
        The wrong reads of `outcome` that do not come out of earlier ones, the first one first.
    confirmed : tuple of Finding
        Findings of `check` that `outcome` shows.
    runs, found : int
        Runs, and how many of them found something.
    first_found : int or None
        Which run was the first to find something, from 0.
    interrupted : bool
        Ctrl-C ended it before all runs were done.
    pinned : bool
        The interleaving of the virtual run was enforced.
    program : Program
        What ran: the tape, or a window of it.
    names : Names
        Names of the rows.
    """

    tape: str
    backend: str
    plan: Plan
    delays: Delays
    matched: tuple[LineMatch, ...]
    outcome: Outcome
    report: Report
    told: tuple[Told, ...]
    confirmed: tuple[Finding, ...]
    runs: int
    found: int
    first_found: int | None
    interrupted: bool
    pinned: bool
    program: Program
    names: Names

    @cached_property
    def time(self) -> Timeline:
        """Where the time of `outcome` went."""
        return timeline(self.program, self.outcome)

    @property
    def source(self) -> Tape:
        """What ran, as a tape."""
        return self.program.tape

    @property
    def op_ids(self) -> npt.NDArray[np.int64]:
        """Op ids of `outcome`'s rows."""
        return self.program.op_ids

    @property
    def verdict(self) -> str:
        """One word for the result.

        ``confirmed``: a wrong read shows a finding of `check`; ``wrong``: one that `check` has not;
        ``deadlock``; ``unknown``: only what something unseen may prevent; ``cannot judge``; ``clean``, also
        where a baseline accepts all.
        """
        counts = [t for t in self.told if not t.accepted]
        sure = [t for t in counts if not t.unknown]
        if sure:
            return "confirmed" if any(t.findings for t in sure) else "wrong"
        if self.outcome.stuck and self._open_deadlock():
            return "deadlock"
        if not self.outcome.judged or any(c.blocks for c in self.report.conditions):
            return "cannot judge"
        return "unknown" if counts else "clean"

    def _open_deadlock(self) -> bool:
        known = [f for f in self.report.findings if f.kind == "deadlock"]
        return not known or any(not f.accepted for f in known)

    @property
    def exit_code(self) -> int:
        """0 clean, 1 found, 4 cannot judge or only unknowns."""
        return {"clean": 0, "unknown": 4, "cannot judge": 4}.get(self.verdict, 1)

    @property
    def first(self) -> Told | None:
        """The first wrong read that no baseline accepts, else the first one."""
        return next((t for t in self.told if not t.accepted), self.told[0] if self.told else None)

    def as_dict(self, *, times: bool = True) -> dict[str, Any]:
        """Return the result for ``--json``, with or without its ``timeline``.

        Keys: ``schema``, ``tape``, ``backend``, ``verdict``, ``exit_code``; ``ops``, ``reads`` (judged);
        ``runs``, ``found``, ``first_found``, ``interrupted``, ``pinned``; ``delays`` (``line``, ``text``,
        ``count`` per line); ``wrong_count``; ``wrong`` (those that do not come out of earlier ones: ``kind``,
        ``op``, ``at_end``, ``buffer``, ``begin``, ``end``, ``at_ns``, ``derived``, ``saw`` and ``expected``
        with ``begin``, ``end``, ``op``, ``state``; ``text``, ``accepted``, ``shows``: signatures);
        ``chain`` (op ids, null for the host's read at the end); ``confirmed`` (findings as `check` has
        them); ``deadlock`` (``stuck``, ``never``, ``cycles``: op ids); ``timeline`` (``total_ns``,
        ``queues``, ``critical_path``); ``conditions`` (of `check`); ``notes`` (of the backend).
        """
        outcome, ids = self.outcome, self.op_ids
        return {
            "schema": SCHEMA,
            "tape": self.tape,
            "backend": self.backend,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "ops": len(ids),
            "reads": outcome.reads,
            "runs": self.runs,
            "found": self.found,
            "first_found": self.first_found,
            "interrupted": self.interrupted,
            "pinned": self.pinned,
            "delays": [{"line": m.line, "text": m.text, "count": m.count} for m in self.matched],
            "wrong_count": outcome.wrong_count,
            "wrong": [t.as_dict(self.names) for t in self.told],
            "chain": [int(ids[r]) if r >= 0 else None for r in outcome.chain],
            "confirmed": [f.as_dict() for f in self.confirmed],
            "deadlock": {
                "stuck": ids[list(outcome.stuck)].tolist(),
                "never": ids[list(outcome.never)].tolist(),
                "cycles": [ids[list(c)].tolist() for c in outcome.cycles],
            },
            **({"timeline": self.time.as_dict(ids)} if times else {}),
            "conditions": [c.as_dict() for c in self.report.conditions],
            "notes": list(outcome.notes),
        }

    @property
    def expressions(self) -> list[str]:
        """The plan as expressions for ``--delays``."""
        return [print_line(n) for n in self.plan.lines]
