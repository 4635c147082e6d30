"""Runs cases on a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from ...formats.delays.resolved import Delays
from ...formats.errors import TapedelayError
from ..backends.protocol import Backend, Capabilities, Loaded, Options
from ..backends.twice import difference
from ..outcome import Outcome
from ..program import Program
from .audit import audit
from .case import Case, Report, Result, Run

__all__ = ["run_all", "run_case", "step_ns"]

PINNED_RUNS = 10
TRIES = 5
"""A delay in real time may lose against the rest of the machine: where that can explain what is missing, more
tries follow, each with everything twice as long. What has to be clean is clean every time, and edges hold."""


def step_ns(capabilities: Capabilities) -> int:
    """Return the length of a step: much more than a backend's resolution, so that it counts."""
    return max(8 * capabilities.resolution_ns, 2_000_000) if capabilities.real_time else 100_000


def run_case(backend: Backend, case: Case) -> Result:
    """Run one case.

    Errors of the backend are failures of the case; a tape that it refuses with `Unsupported` although it has
    all that the case needs is one as well.
    """
    capabilities = backend.capabilities()
    lacking = case.lacks(capabilities)
    if lacking:
        return Result(case, "skipped", f"needs {', '.join(lacking)}")
    try:
        if case.trial is not None:
            why = case.trial(backend, case)
        else:
            why = _Trial(backend, capabilities, case).run()
    except TapedelayError as error:
        why = f"{type(error).__name__}: {error.text()}"
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        why = f"{type(error).__name__} is no error of this package: {error}"
    return Result(case, "failed" if why else "passed", why)


class _Trial:
    """Runs of one case, on one loaded program as long as no luck is needed."""

    def __init__(self, backend: Backend, capabilities: Capabilities, case: Case) -> None:
        self.backend, self.capabilities, self.case = backend, capabilities, case
        self.program = self._program(step_ns(capabilities))
        self.options = Options()

    def run(self) -> str:
        """Return what is wrong, or an empty string."""
        why = ""
        for n in range(TRIES if self.capabilities.real_time and not self.case.pin else 1):
            step = step_ns(self.capabilities) << n
            if n:
                self.program = self._program(step)
            loaded = self.backend.load(self.program, self.options)
            try:
                why, luck = self._round(loaded, self.case.delays_in(step), step)
            finally:
                loaded.close()
            if not luck:
                break
        return why

    def _program(self, step: int) -> Program:
        return Program.from_tape(self.case.litmus_in(step).tape(self.case.variant))

    def _round(self, loaded: Loaded, delays: Delays, step: int) -> tuple[str, bool]:
        """Run with some delays; return what is wrong, and whether a busy machine may be to blame."""
        case = self.case
        plain = loaded.run(Delays.of())
        # The order that the delays give, in place of the delays.
        pin = self.program.interleaving(delays) if case.pin else None
        given = Delays.of() if case.pin else delays
        last: Outcome | None = None
        for n in range(PINNED_RUNS if case.pin else case.repeat):
            outcome = loaded.run(given, pin=pin)
            run = Run(self.program, outcome, plain, self.capabilities, step, case.rows)
            prefix = f"run {n + 1}: " if n else ""
            why = audit(run, given, wrong_limit=self.options.wrong_limit, pinned=case.pin)
            why = why or self._verdict(outcome)
            if why:
                return prefix + why, case.expect == "wrong" and not outcome.wrong_count
            why = case.check(run) if case.check is not None else ""
            if why:
                return prefix + why, True
            if last is not None:
                exact = self.capabilities.deterministic
                what = difference(last, outcome, deterministic=exact, pinned=case.pin)
                if what:
                    return f"two runs differ: {what}", False
            last = outcome
        if self.capabilities.deterministic and last is not None and not case.pin:
            return self._again(delays, last), False
        return "", False

    def _again(self, delays: Delays, outcome: Outcome) -> str:
        """Load once more where a backend says that it is deterministic, and compare."""
        loaded = self.backend.load(self.program, self.options)
        try:
            what = difference(outcome, loaded.run(delays), deterministic=True, pinned=False)
        finally:
            loaded.close()
        return f"not deterministic: {what}" if what else ""

    def _verdict(self, outcome: Outcome) -> str:
        expect = self.case.expect
        if expect == "any":
            return ""
        if expect == "deadlock":
            return "" if outcome.deadlock else "every op ran"
        if expect == "wrong":
            return "" if outcome.wrong_count else "no read saw anything wrong"
        if outcome.deadlock:
            return f"rows {list(outcome.stuck)} never start"
        if not self.capabilities.values or outcome.clean:
            return ""
        first = outcome.first
        assert first is not None
        return f"row {first.row} saw something wrong ({first.kind}): {first.saw} in place of {first.expected}"


def run_all(
    backend: Backend,
    cases: Iterable[Case] | None = None,
    *,
    only: str = "*",
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Run all cases.

    Parameters
    ----------
    backend : Backend
        The backend.
    cases : iterable of Case, optional
        These in place of `cases()`.
    only : str
        Glob of names.
    progress : callable, optional
        Is given each result as it comes.
    """
    from . import cases as all_cases

    report = Report(backend.capabilities().name)
    for case in all_cases() if cases is None else cases:
        if fnmatchcase(case.name, only):
            report.results.append(run_case(backend, case))
            if progress is not None:
                progress(report.results[-1])
    return report
