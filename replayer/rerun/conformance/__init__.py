"""The conformance kit for engine adapters: whether a driver keeps what the protocol promises.

For authors of adapters, built in or not::

    from tapedelay.replayer.rerun.conformance import Subject, run_all
    report = run_all(Subject(AcmeDriver(), {"blocks": 65, "block_tokens": 8}, session=("stream",)))
    assert report.passed, report.text()

or ``python -m tapedelay.replayer.rerun.conformance NAME --config FILE.json``, in the Python that has the
engine. Every case is a small scenario, run on the real scheduler, that shows one promise; what the engine
does not have is skipped, and has to be refused. A case of the group ``runs`` that fails may as well show a
fault of the engine: `tapedelay rerun` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from ....formats.errors import TapedelayError
from ..protocol import Unsupported
from .case import Case, Report, Result, Skip, Subject

__all__ = ["Case", "Report", "Result", "Skip", "Subject", "cases", "run_all", "run_case"]


def cases() -> Iterator[Case]:
    """Yield all cases."""
    from .calls import call_cases
    from .drivers import driver_cases
    from .inputs import input_cases
    from .runs import run_cases
    from .states import state_cases

    for family in (driver_cases, call_cases, state_cases, input_cases, run_cases):
        yield from family()


def run_case(subject: Subject, case: Case) -> Result:
    """Run one case; whatever the adapter raises is a failure of the case."""
    try:
        why = case.trial(subject)
    except Skip as skip:
        return Result(case, "skipped", str(skip))
    except Unsupported as error:
        why = f"refused: {error}"
    except TapedelayError as error:
        why = f"{type(error).__name__}: {error.text()}"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    return Result(case, "failed" if why else "passed", why)


def run_all(
    subject: Subject,
    cases_: Iterable[Case] | None = None,
    *,
    only: str = "*",
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Run all cases.

    Parameters
    ----------
    subject : Subject
        The adapter, with a configuration.
    cases_ : iterable of Case, optional
        These in place of `cases`.
    only : str
        Glob of names.
    progress : callable, optional
        Is given each result as it comes.
    """
    report = Report(subject.driver.name)
    for case in cases() if cases_ is None else cases_:
        if fnmatchcase(case.name, only):
            report.results.append(run_case(subject, case))
            if progress is not None:
                progress(report.results[-1])
    return report
