"""The peers of the virtual backend simulate the same queues: they end at the same moment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from decode import bench_tape
from peers.queues import queues_of
from peers.simpy_queues import run_simpy

from tapedelay.formats.delays import Delays
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.program import Program

HEAP = Path(__file__).parents[2] / "bench/peers/heap.cpp"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program.from_tape(bench_tape(3000))


@pytest.fixture(scope="module")
def total_ns(program: Program) -> int:
    loaded = VirtualBackend().load(program, Options(values=False))
    return loaded.run(Delays.of()).total_ns


def test_simpy(program: Program, total_ns: int) -> None:
    pytest.importorskip("simpy", reason="SimPy is not installed")
    assert run_simpy(queues_of(program))[1] == total_ns


def test_heap(program: Program, total_ns: int, tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    subprocess.run([compiler, "-O1", "-std=c++17", "-o", tmp_path / "heap", HEAP], check=True)
    queues_of(program).write(tmp_path / "queues.bin")
    done = subprocess.run([tmp_path / "heap", tmp_path / "queues.bin", "1"], check=True, capture_output=True)
    assert int(done.stdout.split()[1]) == total_ns
