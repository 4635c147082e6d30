"""What `replay` gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.delays import Delays, LineMatch, Plan, print_line
from ...formats.tape import Tape
from ...formats.window import windows
from ..check.findings import Finding, Report
from ..outcome import Outcome
from ..program import Program
from .facts import Facts, open_deadlock, open_unknown
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
    facts : Facts
        What the wrong reads of `outcome` come to.
    told : tuple of Told
        Those in words, the first one first; of many the first hundred, and rather those that no baseline
        accepts.
    confirmed : tuple of Finding
        Findings of `check` that `outcome` shows.
    runs, repeat, found : int
        Runs, how many were asked for, and how many of them found something.
    first_found : int or None
        Which run was the first to find something, from 0; rather something certain.
    interrupted : bool
        Ctrl-C ended it before all runs were done.
    pinned : bool
        The interleaving of the virtual run was enforced.
    program : Program
        What ran: the tape, or a window of it.
    names : Names
        Names of the rows.
    schedulers : dict of str to int
        Request schedulers of the tape, by engine: they are not replayed.
    """

    tape: str
    backend: str
    plan: Plan
    delays: Delays
    matched: tuple[LineMatch, ...]
    outcome: Outcome
    report: Report
    facts: Facts
    told: tuple[Told, ...]
    confirmed: tuple[Finding, ...]
    runs: int
    repeat: int
    found: int
    first_found: int | None
    interrupted: bool
    pinned: bool
    program: Program
    names: Names
    schedulers: dict[str, int] = field(default_factory=dict)

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
        ``deadlock``; ``unknown``: only what something unseen may prevent, here or in what `check` finds;
        ``cannot judge``, also where runs or wrong reads are left out; ``clean``, also where a baseline
        accepts all.
        """
        facts, outcome = self.facts, self.outcome
        if facts.shown or facts.other:
            return "confirmed" if facts.shown else "wrong"
        if outcome.stuck and open_deadlock(self.report):
            return "deadlock"
        if not outcome.judged or outcome.unlisted or self.runs < self.repeat:
            return "cannot judge"
        if any(c.blocks for c in self.report.conditions):
            return "cannot judge"
        return "unknown" if facts.unknown or open_unknown(self.report) else "clean"

    @property
    def window(self) -> str:
        """Which part of the recording it is, in words; empty for all of it."""
        return ", ".join(windows(self.source.manifest))

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
        ``window`` (null for all ops); ``runs``, ``repeat``, ``found``, ``first_found``, ``interrupted``,
        ``pinned``; ``delays`` (``line``, ``text``, ``count`` per line); ``wrong_count``, ``unlisted`` (left
        out, and maybe not out of others); ``wrong`` (at most 100 that do not come out of earlier ones:
        ``kind``, ``op``, ``at_end``, ``buffer``, ``begin``, ``end``, ``at_ns``, ``derived``, ``saw`` and
        ``expected`` with ``begin``, ``end``, ``op``, ``state``; ``text``, ``accepted``, ``shows``:
        signatures); ``chain`` (op ids, null for the host's read at the end); ``confirmed`` (findings as
        `check` has them); ``deadlock`` (``stuck``, ``never``, ``cycles``: op ids); ``timeline``
        (``total_ns``, ``queues``, ``critical_path``); ``conditions`` (of `check`); ``notes`` (of the
        backend); ``schedulers`` (not replayed: their number by engine).
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
            "window": self.window or None,
            "runs": self.runs,
            "repeat": self.repeat,
            "found": self.found,
            "first_found": self.first_found,
            "interrupted": self.interrupted,
            "pinned": self.pinned,
            "delays": [{"line": m.line, "text": m.text, "count": m.count} for m in self.matched],
            "wrong_count": outcome.wrong_count,
            "unlisted": outcome.unlisted,
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
            "schedulers": self.schedulers,
        }

    @property
    def expressions(self) -> list[str]:
        """The plan as expressions for ``--delays``."""
        return [print_line(n) for n in self.plan.lines]
