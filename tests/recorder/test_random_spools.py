"""Any spool that a writer may leave gives a tape that holds together and that `check` can judge."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.dump import dump_lines
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml.collect import collect_directory

KINDS = (
    "compute", "copy", "set", "get", "memset", "clear", "event_record", "event_wait", "event_sync", "sync",
    "buffer_alloc", "buffer_free", "event_free", "queue_init", "queue_free", "exec", "split_copy_wait",
)  # fmt: skip
HOST, FOREIGN, FAILED, META, CHILD, SPAN = 1, 2, 4, 8, 16, 32


def fill(e: Any, rng: random.Random) -> None:
    """Write random calls of two threads on two devices and a meta device, in any order."""
    w = e.w
    meta = w.queue(w.device("Meta", kind=4, test=False, profile=""), "Meta")
    if rng.random() < 0.2:
        w.switch("TAPEDELAY_SYNC", "on")
    events = [w.event(d) for d in e.devices]
    generation = dict.fromkeys(events, 0)
    modes = ("read", "write", "update", "may_write", "reduce")
    view = w.buffer(e.cpu, 4096, host=True, base=0x7F00_0000_0000 + rng.choice((0, 640, 8192)))
    places = (e.host, e.memory, view)
    sets = [
        w.set(
            (rng.choice(places), 8 * rng.randrange(500), 8 * rng.randrange(12), rng.choice(modes), "t", flag)
            for flag in rng.choices((0, 1, 4), k=rng.randrange(6))
        )
        for _ in range(4)
    ]
    copies, fresh = [0], [w.buffer(rng.choice(e.devices), 64 * (1 + i)) for i in range(3)]
    alive: list[int] = []
    open_meta: dict[int, bool] = {}
    for _ in range(rng.randrange(120)):
        kind, thread, queue = rng.choice(KINDS), rng.randrange(2), rng.choice((e.cpu_queue, *e.queues))
        at = w.now + rng.choice((0, 1, 50))
        flags = rng.choice((0, 0, 0, 0, HOST, FAILED))
        if open_meta.get(thread) and rng.random() < 0.5:
            flags |= CHILD
        elif rng.random() < 0.1 and kind in ("compute", "sync"):
            flags, queue = flags | META, meta
            open_meta[thread] = True
        else:
            open_meta[thread] = False
        words: dict[str, Any] = {"thread": thread, "queue": queue, "at": at, "flags": flags}
        words["end"] = rng.choice((0, at + rng.randrange(100)))
        if kind == "compute":
            words["d"] = rng.choice((*sets, 0xFFFFFFFF)) if not flags & META else 0xFFFFFFFF
        elif kind in ("copy", "set", "get", "memset", "clear"):
            words |= {"a": 16 * rng.randrange(200), "b": 16 * rng.randrange(200), "c": rng.randrange(64)}
            words |= {"d": rng.choice((*places, 0xFFFFFFFF)), "e": rng.choice(places)}
            words["flags"] |= rng.choice((0, SPAN))
        elif kind.startswith("event"):
            event = rng.choice(events)
            if kind == "event_record" and not flags & FAILED:
                generation[event] += 1
            words |= {"d": event, "a": generation[event] if rng.random() < 0.8 else rng.randrange(9)}
            words["flags"] |= rng.choice((0, 0, FOREIGN)) if kind != "event_record" else 0
        elif kind == "buffer_alloc":
            if not fresh:
                continue
            words |= {"e": fresh.pop(), "flags": 0}
            alive.append(words["e"])
        elif kind == "buffer_free":
            if not alive:
                continue
            words |= {"e": alive.pop(), "flags": 0}
        elif kind in ("exec", "split_copy_wait"):
            words["a"] = rng.choice(copies)
        slot = w.record(kind, **words)
        if kind == "copy":
            copies.append(slot)
        if rng.random() < 0.1:
            w.hole()
    w.head["flags"] = rng.choice((0, 1, 1, 3))


@pytest.mark.parametrize("seed", range(80))
def test_the_tape_holds_together_and_can_be_judged(engine: Callable[..., Any], seed: int) -> None:
    from tapedelay.replayer.check import check_tape

    rng = random.Random(seed)
    for process in range(rng.choice((1, 1, 2))):
        e = engine(devices=2, threads=2, wall_ns=1_000 + process * rng.randrange(300))
        fill(e, rng)
        e.w.write()
    tape = collect_directory(e.w.rec.parent)
    assert [v.text() for v in validate(tape)] == []
    assert list(dump_lines(collect_directory(e.w.rec.parent))) == list(dump_lines(tape))
    report = check_tape(tape)
    assert "deadlock" not in {f.kind for f in report.findings}
