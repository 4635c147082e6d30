"""What the wrapped function tables record of single calls of a real ggml, range by range."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.layout import MODES, NONE, AccessFlag, BufferFlag, Flag, Kind
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.recorder.plugin import ggml_plugin

PROGRAM = Path(__file__).parent / "programs" / "ggml_calls.py"
CUDA_LIKE = "async_h2d=0;async_d2d=1;events=1;host_buffer=1;pinned_set=1"
INPUT, LEAF, WIDE = AccessFlag.INPUT, AccessFlag.LEAF, AccessFlag.WIDE


def record(case: str, build: dict[str, str], tmp_path: Path) -> tuple[Spool, str]:
    """Run one case on two cuda-like test devices; return what it left and what it printed."""
    spool = tmp_path / "spool"
    spool.mkdir()
    environment = {
        **os.environ, **build, "TAPEDELAY_PLUGIN": str(ggml_plugin()), "TAPEDELAY_SPOOL": str(spool),
        "TAPEDELAY_DEVICES": "2", "TAPEDELAY_PROFILE": "cuda-like", "TAPEDELAY_PROFILE_DATA": CUDA_LIKE,
    }  # fmt: skip
    command = [sys.executable, str(PROGRAM), case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (one,) = read_spools(spool)
    assert one.complete
    return one, done.stdout


def calls(spool: Spool, *kinds: Kind) -> list[Any]:
    """Return the records of these kinds, in issue order."""
    return [r for r in spool.records if Kind(int(r["kind"])) in kinds]


@pytest.fixture(scope="module", params=["racy", "newest"])
def build(request: pytest.FixtureRequest) -> dict[str, str]:
    """A build of backend API version 2 and one of version 3."""
    found: dict[str, str] = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def accesses_and_places(
    build: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Spool, dict[str, int]]:
    spool, printed = record("accesses", build, tmp_path_factory.mktemp("accesses"))
    places: dict[str, int] = json.loads(printed)
    return spool, places


@pytest.fixture
def accesses(accesses_and_places: tuple[Spool, dict[str, int]]) -> Spool:
    return accesses_and_places[0]


# Per graph, named by its first written tensor: mode, name, whose memory it is, offset in it, bytes, flags.
RULES: dict[str, list[tuple[str, str, str, int, int, AccessFlag]]] = {
    "plain": [
        ("read", "a", "a", 0, 256, LEAF | INPUT),
        ("read", "b", "b", 0, 256, LEAF),
        ("write", "plain", "plain", 0, 256, AccessFlag(0)),
    ],
    # what the graph wrote itself is not read from outside, and `a` is listed once
    "chain1": [
        ("read", "a", "a", 0, 256, LEAF | INPUT),
        ("read", "b", "b", 0, 256, LEAF),
        ("write", "chain1", "chain1", 0, 256, AccessFlag(0)),
        ("write", "chain2", "chain2", 0, 256, AccessFlag(0)),
    ],
    # in place on memory from outside: new = f(old)
    "update": [("update", "update", "state", 0, 256, LEAF)],
    # in place on what the graph wrote
    "own1": [
        ("read", "a", "a", 0, 256, LEAF | INPUT),
        ("read", "b", "b", 0, 256, LEAF),
        ("write", "own1", "own1", 0, 256, AccessFlag(0)),
        ("write", "own2", "own1", 0, 256, AccessFlag(0)),
    ],
    # a copy into a view writes the view's bytes and does not read them
    "copied": [
        ("read", "part", "part", 0, 64, LEAF),
        ("write", "copied", "state", 64, 64, LEAF),
    ],
    # rows picked by index at run time: anywhere in the destination, perhaps
    "scatter": [
        ("read", "rows", "rows", 0, 64, LEAF),
        ("read", "ids64", "ids64", 0, 16, LEAF),
        ("may_write", "scatter", "cache", 0, 512, LEAF | WIDE),
    ],
    "gather": [
        ("read", "cache", "cache", 0, 512, LEAF | WIDE),
        ("read", "ids32", "ids32", 0, 8, LEAF),
        ("write", "gather", "gather", 0, 64, AccessFlag(0)),
    ],
    # 8 rows of 16 bytes, 64 bytes apart: the hull, marked
    "gaps": [
        ("read", "strided", "matrix", 16, 7 * 64 + 16, LEAF | WIDE),
        ("write", "gaps", "gaps", 0, 128, AccessFlag(0)),
    ],
    # permuted, yet every byte of the span
    "dense": [
        ("read", "turned", "matrix", 0, 512, LEAF),
        ("write", "dense", "dense", 0, 512, AccessFlag(0)),
    ],
    # a part of the destination, by the op's parameters
    "set_in": [
        ("read", "part", "part", 0, 64, LEAF),
        ("write", "set_in", "state", 32, 64, LEAF),
    ],
    # 4 rows of 64 values in blocks of 32 that take 18 bytes
    "quantised": [
        ("read", "weights", "weights", 0, 4 * 2 * 18, LEAF),
        ("read", "columns", "columns", 0, 512, LEAF),
        ("write", "quantised", "quantised", 0, 32, AccessFlag(0)),
    ],
    # picked rows first, then all of them: the read is certain
    "some": [
        ("read", "cache", "cache", 0, 512, LEAF),
        ("read", "ids32", "ids32", 0, 8, LEAF),
        ("write", "some", "some", 0, 64, AccessFlag(0)),
        ("write", "every", "every", 0, 512, AccessFlag(0)),
    ],
    # an optimiser step writes three of its sources in place, of which this one stands first
    "moment1": [
        ("read", "part", "part", 0, 64, LEAF),
        ("update", "moment1", "moment1", 0, 64, LEAF),
        ("update", "moment2", "moment2", 0, 64, LEAF),
        ("read", "step", "step", 0, 28, LEAF),
        ("update", "trained", "params", 0, 64, LEAF),
    ],
}


@pytest.mark.parametrize("first", RULES)
def test_a_graph_touches_exactly_this(accesses_and_places: tuple[Spool, dict[str, int]], first: str) -> None:
    accesses, begins = accesses_and_places  # where the tensors begin is ggml's word
    (compute, *_) = [r for r in calls(accesses, Kind.COMPUTE) if accesses.names[r["name"]] == first]
    got = [
        (
            MODES[row["mode"]],
            accesses.names[row["name"]],
            int(row["offset"]),
            int(row["bytes"]),
            AccessFlag(int(row["flags"])),
        )
        for row in accesses.sets[compute["d"]]
    ]
    assert got == [
        (mode, name, begins[of] + offset, size, flags) for mode, name, of, offset, size, flags in RULES[first]
    ]


def test_a_graph_that_comes_again_is_not_defined_again(accesses: Spool) -> None:
    computes = [r for r in calls(accesses, Kind.COMPUTE) if accesses.names[r["name"]] == "plain"]
    assert len(computes) == 4
    assert len({int(r["d"]) for r in computes}) == 1
    assert len(accesses.sets) == len(RULES)


def test_graphs_that_differ_in_one_thing_only_are_two(build: dict[str, str], tmp_path: Path) -> None:
    spool, printed = record("twins", build, tmp_path)
    begins = json.loads(printed)
    got = [
        (
            MODES[row["mode"]],
            spool.names[row["name"]],
            int(row["offset"]) - begins["matrix" if MODES[row["mode"]] == "read" else "state"],
            int(row["bytes"]),
            AccessFlag(int(row["flags"])),
        )
        for compute in calls(spool, Kind.COMPUTE)[:-2]
        for row in spool.sets[compute["d"]]
        if spool.names[row["name"]] != "part"
    ]
    long = "a_name_of_many_bytes"
    assert got == [
        ("write", "set", 32, 64, LEAF), ("write", "set", 96, 64, LEAF),
        ("update", "acc", 0, 64, LEAF), ("update", "acc", 128, 64, LEAF),
        # 2 by 4 values: 16 or 64 bytes from one to the next
        ("read", "turned", 0, 32, LEAF), ("write", "stride", 0, 32, LEAF),
        ("read", "turned", 0, 80, LEAF | WIDE), ("write", "stride", 0, 32, LEAF),
        ("update", f"{long}.0", 0, 256, LEAF), ("update", f"{long}.1", 0, 256, LEAF),
    ]  # fmt: skip
    *_, before, after = calls(spool, Kind.COMPUTE)
    flags = [AccessFlag(int(spool.sets[c["d"]][0]["flags"])) for c in (before, after)]
    assert flags == [LEAF, LEAF | INPUT]


def test_computes_of_the_cpu_are_the_hosts(accesses: Spool) -> None:
    computes = calls(accesses, Kind.COMPUTE)
    assert [int(r["b"]) for r in computes] == list(range(len(computes)))  # n-th on its queue
    assert all(int(r["flags"]) == Flag.HOST and r["end_ns"] > r["issue_ns"] for r in computes)
    assert [int(r["e"]) for r in computes][:2] == [1, 2]  # nodes


def test_queues_events_and_copies(build: dict[str, str], tmp_path: Path) -> None:
    spool, _ = record("queues", build, tmp_path)
    one, two, again = 0, 1, 2
    assert [spool.devices[q.device].name for q in spool.queues] == ["TAPE0", "TAPE1", "TAPE1"]
    (copy,) = calls(spool, Kind.COPY)
    (wait,) = calls(spool, Kind.SPLIT_COPY_WAIT)
    slot = int(spool.slots[spool.records["kind"] == Kind.COPY][0])
    # cuda-like: runs on the source's queue, the destination's waits for it
    assert (int(copy["queue"]), int(wait["queue"]), int(wait["a"])) == (one, two, slot)
    assert (int(copy["d"]), int(copy["a"]), int(copy["e"]), int(copy["b"]), int(copy["c"])) == (
        0,
        0,
        1,
        0,
        256,
    )
    assert spool.names[copy["name"]] == "a"

    (upload,) = calls(spool, Kind.SET)
    assert (int(upload["d"]), int(upload["e"]), int(upload["c"]), int(upload["end_ns"])) == (NONE, 0, 256, 0)
    (download,) = calls(spool, Kind.GET)
    assert (int(download["d"]), int(download["a"]), int(download["c"]), int(download["e"])) == (
        1,
        16,
        128,
        NONE,
    )

    # a wait takes the newest record at its call; before the first one there is none
    events = [
        (Kind(int(r["kind"])).name, int(r["queue"]), int(r["a"]))
        for r in calls(spool, Kind.EVENT_RECORD, Kind.EVENT_WAIT)
    ]
    assert events == [
        ("EVENT_WAIT", two, 0),
        ("EVENT_RECORD", one, 1), ("EVENT_WAIT", two, 1),
        ("EVENT_RECORD", one, 2), ("EVENT_WAIT", two, 2),
    ]  # fmt: skip
    assert not any(int(r["flags"]) & Flag.FOREIGN for r in calls(spool, Kind.EVENT_WAIT))
    (sync,) = calls(spool, Kind.EVENT_SYNC)
    assert int(sync["a"]) == 2
    assert sync["end_ns"] > sync["issue_ns"]

    syncs = [int(r["queue"]) for r in calls(spool, Kind.SYNC)]
    assert syncs == [two, one, again]
    assert [int(r["queue"]) for r in calls(spool, Kind.QUEUE_FREE)] == [two, again, one]
    # every asynchronous command says when it ran, after it was issued
    ran = {int(r["a"]): r for r in calls(spool, Kind.EXEC)}
    assert slot in ran
    by_slot = dict(zip(spool.slots.tolist(), spool.records, strict=True))
    assert all(by_slot[s]["issue_ns"] <= r["issue_ns"] <= r["end_ns"] for s, r in ran.items())
    host_threads = spool.host_threads()
    assert host_threads.count(True) == 1


def test_buffers_get_numbers_that_are_never_used_again(build: dict[str, str], tmp_path: Path) -> None:
    spool, _ = record("buffers", build, tmp_path)
    assert len(spool.buffers) == 7
    lives = [
        (Kind(int(r["kind"])).name, int(r["e"]))
        for r in calls(spool, Kind.BUFFER_ALLOC, Kind.CLEAR, Kind.BUFFER_FREE)
    ]
    assert lives == [(k, n) for n in range(6) for k in ("BUFFER_ALLOC", "CLEAR", "BUFFER_FREE")] + [
        ("BUFFER_ALLOC", 6)
    ]
    assert [spool.devices[b.device].name for b in spool.buffers] == ["TAPE0"] * 3 + ["CPU"] * 3 + ["TAPE0"]
    assert [b.flags & 1 for b in spool.buffers] == [0, 0, 0, 1, 1, 1, 0]
    (put,), (got,), (filled,) = (calls(spool, k) for k in (Kind.SET, Kind.GET, Kind.MEMSET))
    assert (int(put["e"]), int(put["b"]), int(put["c"]), int(put["d"])) == (6, 32, 100, NONE)
    assert (int(got["d"]), int(got["a"]), int(got["c"]), int(got["e"])) == (6, 8, 16, NONE)
    assert (int(filled["e"]), int(filled["b"]), int(filled["c"])) == (6, 0, 64)
    assert all(int(r["flags"]) == Flag.HOST and r["end_ns"] >= r["issue_ns"] for r in (put, got, filled))


def test_a_buffer_made_from_another_is_one_buffer(build: dict[str, str], tmp_path: Path) -> None:
    spool, printed = record("extra", build, tmp_path)
    count = int(printed)
    assert count > 0
    lives = [
        (Kind(int(r["kind"])).name, int(r["e"]))
        for r in calls(spool, Kind.BUFFER_ALLOC, Kind.CLEAR, Kind.BUFFER_FREE)
    ]
    assert lives == [(k, n) for n in range(count) for k in ("BUFFER_ALLOC", "CLEAR", "BUFFER_FREE")]
    assert all(b.type_name != "CPU" for b in spool.buffers)


def test_memory_from_before_the_recorder_is_marked(build: dict[str, str], tmp_path: Path) -> None:
    spool, _ = record("late", build, tmp_path)
    (buffer,) = spool.buffers
    assert buffer.flags == BufferFlag.HOST | BufferFlag.LATE
    assert calls(spool, Kind.BUFFER_ALLOC) == []
    (freed,) = calls(spool, Kind.BUFFER_FREE)
    assert int(freed["e"]) == 0
    (touched,) = spool.sets
    assert touched["buffer"].tolist() == [0, 0, 0]
