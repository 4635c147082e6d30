"""What came of running an engine program on synchronous devices and under a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...formats.errors import TapedelayError

__all__ = ["EngineRun", "EngineRuns", "Setting"]


@dataclass(frozen=True)
class Setting:
    """How the engine is run, the same for every run of a comparison.

    Attributes
    ----------
    devices : int
        Test devices.
    profile : str
        How they behave.
    env : mapping of str to (str or None)
        Variables added to the environment; None: taken out of it.
    timeout_s : float
        Longest time of one run, with its recording.
    folder : Path
        Where tapes, outputs and values lie.
    """

    devices: int
    profile: str
    env: Mapping[str, str | None]
    timeout_s: float
    folder: Path


@dataclass(frozen=True)
class EngineRun:
    """One run of the program.

    Attributes
    ----------
    title : str
        ``synchronous``, ``run 1``, ``run 2``, ...
    value : Any
        What the program returned; None where `fault` says why there is none.
    digest : str
        Equal for equal values: SHA-256 of the value as `values.encode` writes it.
    tape : Path or None
        Its recording; None where none could be written.
    plan : Path or None
        The exact plan that a random one came to.
    delays : sequence of dict
        ``line``, ``text`` and ``count`` of each line of the plan: how often it applied.
    trouble : str
        ``failed`` (the program did), ``timeout``, ``vacuous`` (no compute ran on a test device),
        ``unmatched`` (a line of the plan never applied), ``unrecorded``; empty where all went well.
    fault : TapedelayError or None
        The same in words.
    seconds : float
        Wall time, with starting and recording it.
    command : sequence of str
        The command that does it again.
    said : str
        The end of what it wrote to stderr.
    """

    title: str
    value: Any = None
    digest: str = ""
    tape: Path | None = None
    plan: Path | None = None
    delays: Sequence[Mapping[str, Any]] = ()
    trouble: str = ""
    fault: TapedelayError | None = None
    seconds: float = 0.0
    command: Sequence[str] = ()
    said: str = ""


@dataclass
class EngineRuns:
    """A comparison of runs under a plan with the synchronous run.

    Attributes
    ----------
    setting : Setting
        How they ran.
    reference : EngineRun
        The run on synchronous devices.
    runs : list of EngineRun
        Runs under the plan; after the first one that differs or fails only where all were asked for.
    differences : list of str
        For each run: how its value differs from the reference, in words; empty: equal.
    again : EngineRun or None
        A second synchronous run, made where a value differed: it tells a race from a program that gives
        another value every time.
    steady : bool
        Whether the two synchronous runs are equal; True where there was no need for a second one.
    unsteady : str
        How they differ, in words.
    """

    setting: Setting
    reference: EngineRun
    runs: list[EngineRun] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    again: EngineRun | None = None
    steady: bool = True
    unsteady: str = ""

    @property
    def wrong(self) -> list[int]:
        """Indices of the runs that gave another value than the reference."""
        return [i for i, text in enumerate(self.differences) if text]

    @property
    def verdict(self) -> str:
        """``equal``; ``differs``; ``unsteady``: it differs on synchronous devices too; or a run's trouble.

        Troubles are those of `EngineRun`; that of the reference comes first.
        """
        troubles = [r.trouble for r in [self.reference, *self.runs] if r.trouble]
        if self.again is not None and self.again.trouble:
            troubles.append(self.again.trouble)
        if self.reference.trouble:
            return self.reference.trouble
        if self.wrong:
            return "differs" if self.steady else "unsteady"
        return troubles[0] if troubles else "equal"

    @property
    def same_wrong(self) -> bool:
        """Whether all runs that differ from the reference gave one value."""
        return len({self.runs[i].digest for i in self.wrong}) == 1

    @property
    def failing(self) -> EngineRun | None:
        """The run that the verdict is about; None where all is equal."""
        if self.reference.trouble:
            return self.reference
        if self.wrong:
            return self.runs[self.wrong[0]]
        return next((r for r in self.runs if r.trouble), None)
