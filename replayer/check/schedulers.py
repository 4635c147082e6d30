"""The request schedulers of a tape, judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...formats.requests.read import read_inputs, read_schedulers
from ...formats.requests.recorded import RecordedInput, RecordedScheduler
from ...formats.tape import Tape
from ..rerun.protocol import Unsupported
from ..rerun.registry import DRIVERS, driver
from ..sequence.report import Seen, SequenceReport, report_on
from ..sequence.story import Manners, commands_of

__all__ = ["check_schedulers", "manners_of"]

_EVERY = 4096


def check_schedulers(
    tape: Tape,
    accepts: Callable[[str], bool] = lambda signature: False,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[SequenceReport]:
    """Return what each request scheduler of a tape breaks.

    Parameters
    ----------
    tape : Tape
    accepts : callable
        Whether a kind of violation, by its signature, is accepted.
    progress : callable, optional
        Called now and then with the inputs done and the inputs in all.

    Raises
    ------
    InvalidTape
        The configuration of a scheduler is no JSON object.
    """
    found = []
    for scheduler in read_schedulers(tape):
        name = f"{scheduler.engine} {scheduler.engine_version or ''}".strip()
        found.append(report_on(name, _Stream(tape, scheduler, progress), accepts=accepts))
    return found


def manners_of(scheduler: RecordedScheduler) -> Manners:
    """Return what an engine does on purpose, as its adapter says; steps of one without run in order."""
    if scheduler.engine not in DRIVERS:  # no module is imported because a tape names it
        return Manners()
    try:
        adapter = driver(scheduler.engine)
        patience_of = getattr(adapter, "patience_of", None)
        patience = (
            patience_of(scheduler.config) if patience_of is not None else getattr(adapter, "patience", 3)
        )
    except (Unsupported, KeyError, TypeError, ValueError):
        return Manners()
    return Manners("I2" in getattr(adapter, "exempt", ()), max(3, int(patience)))


class _Stream:
    """The commands of one scheduler, from the first on with each call."""

    def __init__(
        self, tape: Tape, scheduler: RecordedScheduler, progress: Callable[[int, int], None] | None
    ) -> None:
        self._tape = tape
        self._scheduler = scheduler
        self._manners = manners_of(scheduler)
        self._progress = progress

    def __call__(self) -> Iterator[Seen]:
        ended = self._tape.manifest.complete
        return commands_of(self._scheduler, self._inputs(), manners=self._manners, ended=ended)

    def _inputs(self) -> Iterator[RecordedInput]:
        total = self._tape.rows("inputs")
        for done, given in enumerate(read_inputs(self._tape)):
            if self._progress is not None and done % _EVERY == 0:
                self._progress(done, total)
            yield given
