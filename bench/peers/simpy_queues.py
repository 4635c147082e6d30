"""The queues of a tape in SimPy: a process per queue, events where an op waits for another queue's."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from .queues import Queues

__all__ = ["run_simpy"]


def run_simpy(q: Queues) -> tuple[float, int]:
    """Simulate the queues; return the seconds that it took, and when the last op ended.

    Raises
    ------
    ImportError
        SimPy is not installed.
    """
    import simpy

    queue, issuer = q.queue.tolist(), q.issuer.tolist()
    gap, took = q.gap_ns.tolist(), q.duration_ns.tolist()
    first, source = q.first.tolist(), q.source.tolist()
    needed = set(source)
    of_queue: list[list[int]] = [[] for _ in range(max(queue) + 1)]
    program: dict[int, list[int]] = {}
    for op, (own, by) in enumerate(zip(queue, issuer, strict=True)):
        program.setdefault(by, []).append(op)
        if own != by:
            of_queue[own].append(op)

    begin = time.perf_counter()
    env = simpy.Environment()
    done = {op: env.event() for op in needed}
    issued = {op: env.event() for ops in of_queue for op in ops}

    def execute(op: int) -> Generator[Any, Any, None]:
        for s in source[first[op] : first[op + 1]]:
            if not done[s].processed:
                yield done[s]
        if took[op]:
            yield env.timeout(took[op])
        if op in done:
            done[op].succeed()

    def device(ops: list[int]) -> Generator[Any, Any, None]:
        for op in ops:
            if not issued[op].processed:
                yield issued[op]
            yield from execute(op)

    def host(thread: int, ops: list[int]) -> Generator[Any, Any, None]:
        for op in ops:
            if gap[op]:
                yield env.timeout(gap[op])
            if queue[op] == thread:
                yield from execute(op)
            else:
                issued[op].succeed()

    for ops in of_queue:
        env.process(device(ops))
    for thread, ops in program.items():
        env.process(host(thread, ops))
    env.run()
    return time.perf_counter() - begin, int(env.now)
