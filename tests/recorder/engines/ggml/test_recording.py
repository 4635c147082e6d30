"""What the recorder writes about calls that no real engine makes in a known order.

The host is the one of `test_devices`; with ``FAKE_GPU`` it has a device of another backend, registered first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.profiles import BUILTIN
from tapedelay.recorder import plugin
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.layout import NONE, Flag, Kind
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.replayer.check import check_tape

HERE = Path(__file__).parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
PAGEABLE, PINNED, DEVICE = 0, 1, 2  # buffers of the case `sources`, in order of allocation


@pytest.fixture(scope="module")
def program(host_program: Callable[..., Path]) -> Path:
    return host_program("recorder_cases.cpp")


def record(program: Path, case: str, tmp_path: Path, **env: str) -> Spool:
    """Run one case on a full-async test device; return what was recorded."""
    spool = tmp_path / "spool"
    spool.mkdir()
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
    base |= {
        "TAPEDELAY_DEVICES": "1", "TAPEDELAY_SPOOL": str(spool), "TAPEDELAY_PROFILE": "full-async",
        "TAPEDELAY_PROFILE_DATA": BUILTIN["full-async"].device_data(),
    }  # fmt: skip
    command = [str(program), str(plugin.ggml_plugin()), case]
    done = subprocess.run(command, env=base | env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (one,) = read_spools(spool)
    assert one.complete
    return one


def calls(spool: Spool, *kinds: Kind) -> list[Any]:
    return [r for r in spool.records if Kind(int(r["kind"])) in kinds]


def sets(spool: Spool) -> list[tuple[Flag, int, int, int, int, int]]:
    return [
        (Flag(int(r["flags"])), int(r["d"]), int(r["a"]), int(r["e"]), int(r["b"]), int(r["c"]))
        for r in calls(spool, Kind.SET)
    ]


# --- when an asynchronous set reads its source --------------------------------------------------------------

READ_NOW = [(Flag.HOST, PAGEABLE, 512, NONE, 0, 64), (Flag(0), NONE, 0, DEVICE, 128, 64)]
PAGEABLE_LATER = [(Flag(0), PAGEABLE, 512, DEVICE, 128, 64)]
PINNED_LATER = [(Flag(0), PINNED, 512, DEVICE, 128, 64)]
UNKNOWN = [(Flag(0), NONE, 0, DEVICE, 128, 64)]


@pytest.mark.parametrize("api", ["2", "3"])
def test_a_test_device_reads_pageable_memory_at_once(program: Path, tmp_path: Path, api: str) -> None:
    spool = record(program, "sources", tmp_path, FAKE_API=api)
    assert sets(spool) == READ_NOW + PINNED_LATER + UNKNOWN
    reading, writing, *_ = calls(spool, Kind.SET)
    assert reading["end_ns"] > writing["issue_ns"] >= reading["issue_ns"]
    by_slot = dict(zip(spool.slots.tolist(), spool.records, strict=True))
    ran = [by_slot[int(r["a"])] for r in calls(spool, Kind.EXEC)]
    assert [(int(r["e"]), int(r["flags"])) for r in ran] == [(DEVICE, 0)] * 3  # the queue's part


def test_cuda_reads_pageable_memory_at_once(program: Path, tmp_path: Path) -> None:
    assert sets(record(program, "sources", tmp_path, FAKE_GPU="CUDA")) == READ_NOW + PINNED_LATER + UNKNOWN


@pytest.mark.parametrize(
    "env",
    [{"FAKE_GPU": "CUDA", "GGML_CUDA_REGISTER_HOST": "1"}, {"FAKE_GPU": "Other"}],
    ids=["registered", "other"],
)
def test_elsewhere_the_queue_may_read_it_later(program: Path, tmp_path: Path, env: dict[str, str]) -> None:
    assert sets(record(program, "sources", tmp_path, **env)) == PAGEABLE_LATER + PINNED_LATER + UNKNOWN


@pytest.mark.parametrize("pinned", [False, True])
def test_only_memory_that_is_read_later_races(program: Path, tmp_path: Path, pinned: bool) -> None:
    """The source is written again behind the call: a race exactly where the queue reads it."""
    spool = record(program, "overwritten", tmp_path, **({"PINNED": "1"} if pinned else {}))
    findings = check_tape(collect([spool])).findings
    assert [(f.verdict, f.fault) for f in findings] == ([("race", "WAR")] if pinned else [])


# --- the rest -----------------------------------------------------------------------------------------


def test_thousands_of_host_buffers_are_told_apart(program: Path, tmp_path: Path) -> None:
    spool = record(program, "many_buffers", tmp_path)
    # buffer 0 is the device's; 3,000 follow, and every second one was freed and made again
    expected = []
    for i in range(0, 3000, 100):
        expected += [(Flag(0), 3001 + i // 2, 16, 0, 0, 64), (Flag(0), 2 + i, 32, 0, 0, 64)]
    assert sets(spool) == expected


def test_an_event_from_before_the_recorder_is_marked(program: Path, tmp_path: Path) -> None:
    spool = record(program, "events", tmp_path, FAKE_GPU="Other")
    # the second one got its number when it was made, the first one when it was first used
    assert spool.late_events == {1}
    waits = [(int(r["d"]), int(r["a"])) for r in calls(spool, Kind.EVENT_WAIT)]
    assert waits == [(1, 0), (1, 1), (0, 0), (0, 1)]
