"""Rerun from Python: strictly, perturbed, or one case from its file.

>>> from tapedelay.replayer.rerun.api import rerun_case
>>> rerun_case("tests/cases/abort-mid-prefill.litmus").violations  # doctest: +SKIP
[]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...formats.errors import CannotJudge, InfrastructureError
from ...formats.sequence import read
from .case import scenario_of
from .from_tape import Recording
from .scenario import Scenario
from .strict import Divergence
from .violation import Violation
from .workers import Died, Worker

__all__ = ["TIMEOUT_S", "Case", "Strict", "rerun_case", "rerun_strict", "workers_of"]

TIMEOUT_S = 60.0
"""How long one call into an engine may take before it counts as a hang."""


@dataclass(frozen=True, slots=True)
class Strict:
    """What a strict rerun gives.

    Attributes
    ----------
    version : str
        Version of the engine that was run.
    steps, compared : int
        Steps of the recording, inputs that were compared.
    seconds : float
        Time of the rerun in the engine.
    divergence : Divergence or None
        The first, None: everything is as recorded.
    violations : tuple of Violation
        What the rerun shows to be wrong beside.
    """

    version: str
    steps: int
    compared: int
    seconds: float
    divergence: Divergence | None
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """What the rerun of one case gives.

    Attributes
    ----------
    engine, version : str
        What ran.
    scenario : Scenario
        What reached it.
    violations : list of Violation
        What is wrong; empty: clean.
    reason : str
        Why it ended before its end without a violation, "" if it did not.
    steps : int
        Steps made.
    """

    engine: str
    version: str
    scenario: Scenario
    violations: list[Violation]
    reason: str = ""
    steps: int = 0


def workers_of(
    engine: str, *, python: str | None = None, timeout_s: float = TIMEOUT_S
) -> Callable[[], Worker]:
    """Return what makes workers with an engine, see `Worker`."""
    return lambda: Worker(engine, python=python, timeout_s=timeout_s)


def rerun_strict(
    recording: Recording,
    make: Callable[[], Worker],
    *,
    progress: Callable[[str], None] = lambda doing: None,
) -> Strict:
    """Rerun a recording exactly, and compare.

    Parameters
    ----------
    recording : Recording
    make : callable
        Makes a worker.
    progress : callable, optional
        Told what begins, in words.

    Raises
    ------
    Unsupported
        The engine is not there, or cannot be built with the recorded configuration.
    InfrastructureError
        Its process does not work, or it crashed or hung.
    """
    message = {
        "do": "strict",
        "scenario": recording.scenario.as_dict(),
        "recorded": [r.as_dict() for r in recording.recorded],
    }
    with make() as worker:
        progress(f"starting {recording.scenario.engine}")
        worker.start()
        progress("rerunning as recorded")
        try:
            answer = worker.ask(message)
        except Died as e:
            if e.violation is None:
                raise _ended(e, recording.scenario.engine) from None
            return Strict(
                str(worker.facts["version"]), recording.steps, e.violation.call, 0.0, None, (e.violation,)
            )
        version = str(worker.facts["version"])
    found = answer["divergence"]
    return Strict(
        version,
        recording.steps,
        answer["compared"],
        answer["seconds"],
        None if found is None else Divergence.from_dict(found),
        tuple(Violation(**v) for v in answer["violations"]),
    )


def rerun_case(
    path: str | Path, *, engine: str | None = None, python: str | None = None, timeout_s: float = TIMEOUT_S
) -> Case:
    """Rerun a case from its file.

    Parameters
    ----------
    path : str or Path
        A ``seq`` litmus file with the lines of a drive, as `tapedelay rerun --write` makes them.
    engine : str, optional
        Another engine adapter than that of the file.
    python : str, optional
        Interpreter that has the engine, None: this one.
    timeout_s : float
        How long one call into the engine may take.

    Returns
    -------
    Case
        With what is wrong.

    Raises
    ------
    LitmusError
        The file does not parse, or does not say how it was made.
    CannotJudge
        The engine is not there, or has not what the case needs.
    InfrastructureError
        Its process does not work.
    """
    sequence = read(Path(path))
    scenario = scenario_of(sequence)
    name = engine or scenario.engine
    with Worker(name, python=python, timeout_s=timeout_s) as worker:
        worker.start()
        version = str(worker.facts["version"])
        try:
            answer: Mapping[str, Any] = worker.ask({"do": "scenario", "scenario": scenario.as_dict()})
        except Died as e:
            if e.violation is None:
                raise _ended(e, name) from None
            return Case(name, version, scenario, [e.violation])
    lacking = answer["lacking"]
    if lacking and not answer["violations"]:
        raise CannotJudge(
            f"{name} {version} could not take every input: {', '.join(sorted(lacking))}",
            where=str(path),
            next_step="run it with the version that it was made with",
        )
    violations = [Violation(**v) for v in answer["violations"]]
    reason = "" if answer["drained"] or violations else answer["reason"] or "it did not come to its end"
    return Case(name, version, scenario, violations, reason, answer["steps"])


def _ended(died: Died, engine: str) -> InfrastructureError:
    return InfrastructureError(died.words, where=engine, next_step=died.next_step)
