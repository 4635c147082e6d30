"""What a tape tells of a request scheduler, as the commands of a sequence.

Requests are ``R0``, ``R1``, ..., steps ``S0``, ``S1``, ..., units the pool's name and their number: ``kv12``.
Names are those of a rerun, so that what `check` finds on a tape and what `rerun` finds reads alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...formats.requests.recorded import Changed, RecordedInput, RecordedScheduler
from ...formats.sequence.commands import Command
from ..rerun.protocol import BlockChange, Decision
from ..rerun.scenario import Input
from ..rerun.telling import Telling
from .report import Seen

__all__ = ["Manners", "Story", "commands_of"]

_ONCE = frozenset({"unrecorded_structured"})
_OUTSIDE = _ONCE | {"unrecorded_kv_transfer", "unrecorded_ec_transfer"}
"""Flags of requests that may wait for something else than the scheduler: a grammar, until it is there."""
_SESSION = frozenset({"resumable", "session"})
_BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Manners:
    """What an engine's scheduler does on purpose.

    Attributes
    ----------
    in_order : bool
        Steps run one after the other on the device, so a unit may be freed and handed out while a step that
        uses it is in flight: what is launched later runs later.
    patience : int
        So many steps in a row that schedule nothing, while work waits, are a stall.
    """

    in_order: bool = True
    patience: int = 3


def commands_of(
    scheduler: RecordedScheduler,
    inputs: Iterable[RecordedInput],
    *,
    manners: Manners | None = None,
    ended: bool = True,
) -> Iterator[Seen]:
    """Yield the commands that one scheduler's inputs tell.

    Parameters
    ----------
    scheduler : RecordedScheduler
    inputs : iterable of RecordedInput
        Of all schedulers of the tape; those of others are passed over.
    manners : Manners, optional
        What this engine does on purpose.
    ended : bool
        The recording ended cleanly: what is held after the last input stays held.
    """
    story = Story(scheduler, manners)
    for given in inputs:
        if given.scheduler == scheduler.scheduler:
            yield from story.of(given)
    if ended:
        yield from story.end()


class Story:
    """Follows one scheduler, as far as its commands depend on what was before.

    Parameters
    ----------
    scheduler : RecordedScheduler
    manners : Manners, optional
        What this engine does on purpose.
    """

    def __init__(self, scheduler: RecordedScheduler, manners: Manners | None = None) -> None:
        self._flags = {r.request: frozenset(r.flags) for r in scheduler.requests.values()}
        self._manners = manners or Manners()
        self._telling = Telling()
        self._units: dict[int, dict[str, None]] = {}
        self._live: set[int] = set()
        self._running: set[int] = set()
        self._begun: set[int] = set()
        """Live requests that have run."""
        self._blocked: set[int] = set()
        self._outside: set[int] = set()
        """Live requests that wait for another chunk of their prompt, or may wait for something else."""
        self._flying: dict[int, None] = {}
        self._paused = False
        self._still = 0
        self._told_idle = True
        self._low: dict[str, int] = {}

    def of(self, given: RecordedInput) -> Iterator[Seen]:
        """Yield what one of its inputs and all that it caused say."""
        return (Seen(c, given.input, given.step) for c in self._caused(given))

    def end(self) -> Iterator[Seen]:
        """Yield what the end of the recording says."""
        if not self._live and not self._flying and not self._told_idle:
            yield Seen(Command("idle"))

    def _caused(self, given: RecordedInput) -> Iterator[Command]:
        if given.kind == "output" and given.step in self._flying:
            del self._flying[given.step]
            yield Command("retire", (f"S{given.step}",))
        yield from self._given(given)
        for event in given.events:
            yield from self._event(event)
        for request, _ in given.emitted:
            yield Command("emit", (f"R{request}",))
        if given.kind == "step":
            yield from self._step(given)
        elif given.kind == "output":
            self._answered(given)
        for pool, (free, used) in given.free.items():
            yield from self._count(f"free-{pool}", free)
            yield from self._count(f"used-{pool}", used)

    # --- inputs ---

    def _given(self, given: RecordedInput) -> Iterator[Command]:
        request = given.request
        if given.kind == "submit" and request is not None:
            self._live.add(request)
            self._told_idle = False
            flags = self._flags.get(request, frozenset())
            if flags & _OUTSIDE:
                self._outside.add(request)
            if _BLOCKED in flags:
                self._blocked.add(request)
            yield Command("arrive", (f"R{request}",))
        elif given.kind == "abort":
            for r in given.aborted():
                self._over(r)
                yield Command("abort", (f"R{r}",))
        elif given.kind not in ("step", "output"):
            if given.kind == "set_schedulable" and request is not None:
                self._blocked.discard(request)
            elif given.kind == "next_chunk" and request is not None:
                self._outside.discard(request)
            elif given.kind in ("pause", "resume"):
                self._paused = given.kind == "pause"
            self._still = 0
            told = Input(given.kind, request, given.requests, given.tokens, given.value, given.word)
            yield from self._telling.given(told)

    def _over(self, request: int) -> None:
        for state in (self._live, self._running, self._begun, self._blocked, self._outside):
            state.discard(request)

    def _event(self, event: object) -> Iterator[Command]:
        if isinstance(event, Changed):
            if event.action in ("launch", "retire"):
                yield from _transfers(event)
                return
            for command in self._telling.events([BlockChange(*event)]):
                self._note_units(command)
                yield command
            return
        kind, request = event.kind, event.request  # type: ignore[attr-defined]
        if kind in ("finish", "reject"):
            self._over(request)
        elif kind == "preempt":
            self._running.discard(request)
        elif kind == "resume":
            self._running.add(request)
        yield from self._telling.events([Decision(kind, request)])

    def _note_units(self, command: Command) -> None:
        owner, *units = command.args
        if self._manners.in_order or not owner[1:].isdigit():
            return
        held = self._units.setdefault(int(owner[1:]), {})
        if command.verb in ("alloc", "share"):
            held.update(dict.fromkeys(units))
        elif command.verb == "free":
            for unit in units:
                held.pop(unit, None)
            if not held:
                del self._units[int(owner[1:])]

    # --- steps ---

    def _step(self, given: RecordedInput) -> Iterator[Command]:
        step = -1 if given.step is None else given.step
        if given.scheduled:
            self._still = 0
            self._flying[step] = None
            for s in given.scheduled:
                if s.request not in self._running:
                    self._running.add(s.request)
                    self._begun.add(s.request)
                    if self._flags.get(s.request, frozenset()) & _OUTSIDE <= _ONCE:
                        self._outside.discard(s.request)
                    yield Command("schedule", (f"R{s.request}",))
                yield Command("launch", (f"S{step}", f"R{s.request}", *self._units.get(s.request, ())))
        elif not self._flying:
            yield from self._nothing(given)

    def _nothing(self, given: RecordedInput) -> Iterator[Command]:
        """Yield what a step says that schedules nothing while nothing is in flight."""
        if not self._live:
            if not self._told_idle:  # it had its chance to give back what was held
                self._told_idle = True
                yield Command("idle")
            return
        # Behind a request that cannot be scheduled yet new ones may have to wait, those that ran may not.
        waits = self._begun - self._blocked if self._blocked else self._live
        if self._paused or given.decode_only or self._outside or not waits:
            return
        self._still += 1
        if self._still > self._manners.patience - 3:
            yield Command("pass")

    def _answered(self, given: RecordedInput) -> None:
        for answer in given.answers:
            request = answer.request
            if (
                answer.word is not None
                and request in self._live
                and self._flags.get(request, set()) & _SESSION
            ):
                self._outside.add(request)

    def _count(self, name: str, value: int) -> Iterator[Command]:
        """Yield a counter of the scheduler's that goes below zero, and back."""
        low = min(value, 0)
        before = self._low.get(name, 0)
        if low != before:
            yield Command("dec" if low < before else "inc", (name, str(abs(low - before))))
        self._low[name] = low


def _transfers(event: Changed) -> Iterator[Command]:
    """Yield the transfers that begin or end: each unit is one."""
    for unit in event.units:
        name = f"{event.pool}{unit}"
        if event.action == "launch":
            owner = "engine" if event.request is None else f"R{event.request}"
            yield Command("launch", (f"T-{name}", owner, name))
        else:
            yield Command("retire", (f"T-{name}",))
