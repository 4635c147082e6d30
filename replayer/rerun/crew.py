"""Several workers at once: each run goes to a free one; a crash or hang is tried again before it counts."""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ...formats.errors import InfrastructureError, Unsupported
from .violation import Violation
from .workers import Died, Worker

__all__ = ["Crew", "Told"]

_POLL_S = 0.05
_MOST_DEATHS = 5


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one message.

    Attributes
    ----------
    job : object
        What the message was for.
    answer : dict or None
        The worker's answer; None where there was none.
    violation : Violation or None
        The scheduler crashed or hung, twice at the same place.
    trouble : str
        What kept the run from being judged: neither clean nor a finding.
    """

    job: Any
    answer: dict[str, Any] | None = None
    violation: Violation | None = None
    trouble: str = ""


class Crew:
    """Workers with the same engine and the same base scenario.

    Parameters
    ----------
    make : callable
        Makes a worker, not yet started.
    jobs : int
        How many.
    base : mapping
        `Scenario.as_dict` of what recipes start from.
    """

    def __init__(self, make: Callable[[], Worker], jobs: int, base: Mapping[str, Any]) -> None:
        self._workers = [make() for _ in range(jobs)]
        self._base = base
        self._deaths = 0
        self.facts: dict[str, Any] = {}
        self.opened: dict[str, Any] = {}

    def __enter__(self) -> Crew:
        try:
            self._start(self._workers[0])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def ask(self, message: Mapping[str, Any], *, limit_s: float | None = None) -> dict[str, Any]:
        """Send one message to the first worker and return its answer.

        Raises
        ------
        Died
            The worker ended; the next message gets a new one.
        """
        worker = self._workers[0]
        if not worker.started:
            self._start(worker)
        try:
            return worker.ask(message, limit_s=limit_s)
        except Died:
            worker.kill()
            raise

    def run(
        self,
        jobs: Iterable[tuple[Any, Mapping[str, Any]]],
        *,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> Iterator[Told]:
        """Send every job's message to a free worker; yield what came of each, first come first.

        Parameters
        ----------
        jobs : iterable of (object, mapping)
            What it is for, and the message.
        goes_on : callable
            Asked before each job; False takes no more.
        """
        again: deque[tuple[Any, Mapping[str, Any], Died]] = deque()
        busy: dict[Worker, tuple[Any, Mapping[str, Any], Died | None]] = {}
        source = iter(jobs)
        more = True
        while True:
            for worker in self._workers:
                if worker in busy:
                    continue
                first: Died | None = None
                if again:
                    job, message, first = again.popleft()
                elif more and goes_on():
                    following = next(source, None)
                    if following is None:
                        more = False
                        break
                    job, message = following
                else:
                    more = False
                    break
                busy[worker] = (job, message, first)
                try:
                    if not worker.started:
                        self._start(worker)
                    worker.send(message)
                except Died as e:
                    yield from self._dead(worker, busy, again, e)
            if not busy:
                if again:
                    continue
                return
            _wait(busy)
            for worker in list(busy):  # all of them: one that hangs or grows is found beside busy others
                try:
                    answer = worker.receive()
                except Died as e:
                    yield from self._dead(worker, busy, again, e)
                except (Unsupported, InfrastructureError) as e:
                    job, _, _ = busy.pop(worker)
                    yield Told(job, trouble=e.found)
                else:
                    if answer is not None:
                        job, _, first = busy.pop(worker)
                        trouble = f"died once, not again: {first.words}" if first is not None else ""
                        yield Told(job, answer, trouble=trouble)

    def _dead(
        self,
        worker: Worker,
        busy: dict[Worker, tuple[Any, Mapping[str, Any], Died | None]],
        again: deque[tuple[Any, Mapping[str, Any], Died]],
        died: Died,
    ) -> Iterator[Told]:
        """Try a message again whose worker died; the second time it counts."""
        job, message, first = busy.pop(worker)
        worker.kill()
        if first is None:
            again.append((job, message, died))
            return
        if died.violation is not None and first.violation is not None:
            self._deaths = 0
            yield Told(job, violation=died.violation)
            return
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            raise InfrastructureError(
                f"the engine's process ends again and again: {died.words}",
                where="rerun",
                next_step=died.next_step,
            )
        yield Told(job, trouble=died.words)

    def _start(self, worker: Worker) -> None:
        worker.start()
        self.opened = worker.facts
        self.facts = worker.ask({"do": "base", "scenario": self._base}, limit_s=60.0)["facts"]


def _wait(busy: Iterable[Worker]) -> None:
    """Wait until some worker answers, or all are to be looked at again."""
    with selectors.DefaultSelector() as waiting:
        for worker in busy:
            waiting.register(worker.fileno(), selectors.EVENT_READ)
        waiting.select(_POLL_S)
