"""The request schedulers of a tape, judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...formats.requests.counts import steps_of
from ...formats.requests.read import read_inputs, read_schedulers
from ...formats.requests.recorded import RecordedScheduler
from ...formats.tape import Tape
from ..rerun.protocol import Unsupported
from ..rerun.registry import DRIVERS, driver
from ..sequence.report import Reporting, Seen, SequenceReport
from ..sequence.story import Manners, Story

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
    schedulers = read_schedulers(tape)
    made = {
        s.scheduler: Reporting(f"{s.engine} {s.engine_version or ''}".strip(), accepts=accepts)
        for s in schedulers
    }
    for number, steps in steps_of(tape).items():
        made[number].report.steps = steps
    for number, seen in _commands(tape, schedulers, progress):
        made[number].take(seen)
    for reporting in made.values():
        reporting.judged()
    curious = {number for number, reporting in made.items() if reporting.looks_back}
    if curious:
        for number, seen in _commands(tape, [s for s in schedulers if s.scheduler in curious], progress):
            made[number].look_back(seen)
            if not made[number].looks_back:
                curious.discard(number)
                if not curious:
                    break
    return [reporting.report for reporting in made.values()]


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
    except (Unsupported, LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return Manners()
    return Manners("I2" in getattr(adapter, "exempt", ()), max(3, int(patience)))


def _commands(
    tape: Tape, schedulers: Sequence[RecordedScheduler], progress: Callable[[int, int], None] | None
) -> Iterator[tuple[int, Seen]]:
    """Yield what each scheduler did, in one pass over the inputs of all."""
    stories = {s.scheduler: Story(s, manners_of(s)) for s in schedulers}
    total = tape.rows("inputs")
    for done, given in enumerate(read_inputs(tape)):
        if progress is not None and done % _EVERY == 0:
            progress(done, total)
        story = stories.get(given.scheduler)
        if story is not None:
            yield from ((given.scheduler, seen) for seen in story.of(given))
    if tape.manifest.complete:
        for number, story in stories.items():
            yield from ((number, seen) for seen in story.end())
