"""Longer random tapes: findings do not depend on the sizes of the tables, nor on when things are settled."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.tape import Coverage, Manifest, Tape
from tapedelay.replayer.check import Baseline, check_tape, judge

_MODES = ("read", "read", "write", "update", "may_write", "reduce")


def _sets(b: TapeBuilder, rng: random.Random, memories: list[int]) -> list[int]:
    def access() -> dict[str, Any]:
        found = {
            "buffer": rng.choice(memories),
            "offset": rng.randrange(64) * 8,
            "bytes": 8 * rng.randint(1, 6),
            "mode": rng.choice(_MODES),
            "origin": rng.choice(("observed",) * 5 + ("inferred",)),
        }
        grows = rng.choice(("", "", "", "offset_per_arg", "bytes_per_arg", "unit_bytes"))
        return {**found, grows: 64 if grows == "unit_bytes" else 8} if grows else found

    return [b.access_set([access() for _ in range(rng.randint(1, 4))]) for _ in range(rng.randint(3, 10))]


def long_tape(seed: int) -> Tape:
    """Return a tape of up to 300 ops on a few queues, mostly ordered by events and syncs."""
    rng = random.Random(seed)
    b = TapeBuilder()
    host, gpu = b.device(name="CPU", kind="host"), b.device(name="GPU", kind="gpu")
    threads = [b.queue(device=host, name=f"H{i}", kind="host_thread") for i in range(rng.choice((1, 1, 2)))]
    loose = rng.random() < 0.2
    queues = [
        b.queue(device=gpu, name=f"q{i}", in_order=not (loose and i == 0)) for i in range(rng.randint(1, 4))
    ]
    events = [b.sync(name=f"e{i}", kind="event") for i in range(3)]
    memories = [b.buffer(device=gpu, name=f"M{i}", bytes=4096) for i in range(2)]
    sets = _sets(b, rng, memories)
    scratch: list[int] = []
    parent = None
    for i in range(rng.randint(60, 300)):
        thread, what = rng.choice(threads), rng.random()
        common: dict[str, Any] = {"issuer": thread, "access_set": 0}
        if what < 0.55:
            units = b.unit_list([rng.randrange(6) for _ in range(3)])
            common |= {"access_set": rng.choice(sets), "arg": i // 4, "list": units}
            common["parent"] = parent if rng.random() < 0.3 else None
            op = b.op(kind="kernel", queue=rng.choice([*queues, threads[0]]), **common)
            parent = op if rng.random() < 0.05 else parent if rng.random() < 0.7 else None
        elif what < 0.68:
            b.op(kind="record", queue=rng.choice(queues + threads), sync=rng.choice(events), **common)
        elif what < 0.83:
            state = rng.choice((None,) * 9 + ("unresolved",))
            queue = rng.choice(queues + threads)
            b.op(kind="wait", queue=queue, sync=rng.choice(events), wait_state=state, **common)
        elif what < 0.86:
            b.op(kind="wait_any", queue=rng.choice(queues), list=b.unit_list(events[:2]), **common)
        elif what < 0.93:
            of = rng.choice(("all", "device"))
            b.op(kind="sync", queue=thread, target_kind=of, target=gpu if of == "device" else None, **common)
        elif what < 0.96:
            offset = rng.randrange(30) * 8
            part = b.buffer(device=gpu, name="s", bytes=64, parent=memories[0], parent_offset=offset)
            scratch.append(part)
            b.op(kind="alloc", queue=thread, target=part, **common)
            common["access_set"] = b.access_set([{"buffer": part, "offset": 0, "bytes": 64, "mode": "write"}])
            b.op(kind="kernel", queue=rng.choice(queues), **common)
        elif scratch:
            b.op(kind="free", queue=thread, target=scratch.pop(), **common)
    unseen = [Coverage(q, waits="partial") for q in threads + queues if rng.random() < 0.04]
    return b.build(Manifest(coverage=tuple(unseen)))


def test_findings_are_the_same_at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(60):
        tape = long_tape(seed)
        monkeypatch.setattr(judge, "EVERY", 1 << 30)  # nothing is ever settled
        expected = check_tape(tape).as_dict()
        accepted = check_tape(tape, Baseline(everything=True)).as_dict()
        monkeypatch.undo()
        found += len(expected["findings"])
        for block, sets, tried, every in ((1, 1, 64, 1), (2, 1024, 64, 7), (256, 3, 64, 20)):
            for name, size in (("BLOCK", block), ("SETS", sets), ("TRIED", tried), ("EVERY", every)):
                monkeypatch.setattr(judge, name, size)
            assert check_tape(tape).as_dict() == expected, seed
            assert check_tape(tape, Baseline(everything=True)).as_dict() == accepted, seed
        monkeypatch.undo()
    assert found > 2000
