"""Delays on the device's side of an asynchronous device that is not ours, on a clock of our own: exact.

Real devices (lavapipe) are held up in ``tests/engines``; they cannot refuse on request.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tapedelay.recorder import plugin
from tapedelay.recorder.delays import LineCount, engine_plan, leave_plan
from tapedelay.recorder.delays.spool import read_line_counts
from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.layout import Kind
from tapedelay.recorder.engines.ggml.spool import read_spools

HERE = Path(__file__).parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
PLAN = (
    "first copy of a on GPU0 +1ms\n"
    "first copy of b on GPU0 +37us\n"
    "first copy of c on GPU0 +100ms\n"
    "first copy of d on GPU0 +600us after_end\n"
)
ASKED_NS = (1_000_000, 37_000, 100_000_000, 600_000)
GRAPH_NS = 35_000
"""What a graph costs on this device beside its products."""


@dataclass(frozen=True)
class Held:
    """A run of the cases: what held up the queue, and what was recorded of it."""

    queue_ns: list[int]
    buffers: int
    said: list[str]
    spool: Spool
    lines: list[LineCount]

    @property
    def true_ns(self) -> list[int]:
        return [int(r["c"]) for r in self.spool.records if Kind(int(r["kind"])) is Kind.DELAY]

    def notes(self) -> list[str]:
        return [n for n in self.spool.notes if "on the device's side" in n]


@pytest.fixture(scope="module")
def program(host_program: Callable[..., Path]) -> Path:
    return host_program("filler_cases.cpp")


def run(program: Path, spool: Path, device: str, plan: str = PLAN, **env: str) -> Held:
    spool.mkdir()
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
    base |= {"TAPEDELAY_DEVICES": "0", "TAPEDELAY_SPOOL": str(spool), "FAKE_DEVICE": device}
    base |= leave_plan(engine_plan([plan]), spool)
    command = [str(program), str(plugin.ggml_plugin())]
    done = subprocess.run(command, env=base | env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *copies, buffers = [int(line.split()[1]) for line in done.stdout.splitlines()]
    (one,) = read_spools(spool)
    counted = read_line_counts(spool)
    assert counted is not None
    return Held(copies, buffers, done.stderr.splitlines(), one, counted[2])


@pytest.mark.parametrize("api", ["2", "3"])
@pytest.mark.parametrize("device", ["normal", "fast", "small", "dozes", "remote"])
def test_products_of_measured_length(program: Path, tmp_path: Path, device: str, api: str) -> None:
    held = run(program, tmp_path / "spool", device, FAKE_API=api)
    shortest_ns = 3_000 if device == "fast" else 20_300
    for asked, true, queue in zip(ASKED_NS, held.true_ns, held.queue_ns, strict=True):
        assert abs(true - asked) <= shortest_ns / 2 + asked / 1_000
        graphs = 1 + true // (250 * shortest_ns)
        assert 0 <= queue - true <= graphs * GRAPH_NS + true / 100
    assert [line.count for line in held.lines] == [1, 1, 1, 1]
    (note,) = held.notes()
    assert "on GPU0 are matrix products of" in note
    assert held.said == []


def test_a_build_with_an_op_that_sleeps(program: Path, tmp_path: Path) -> None:
    held = run(program, tmp_path / "spool", "sleeps")
    assert held.true_ns == list(ASKED_NS)
    assert all(
        0 <= queue - true <= GRAPH_NS + 100 for queue, true in zip(held.queue_ns, ASKED_NS, strict=True)
    )
    (note,) = held.notes()
    assert "on GPU0 are an op that sleeps; one of 5 ms took 5.0" in note


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("no_product", "the device computes no matrix product of 32-bit floats"),
        ("no_memory", "the device gave no memory for it"),
        ("forgets", "the device does not compute what nobody reads"),
    ],
)
def test_a_device_without_it_is_told_once_and_not_held_up(
    program: Path, tmp_path: Path, device: str, why: str
) -> None:
    held = run(program, tmp_path / "spool", device)
    assert max(held.queue_ns) < 1_000
    assert held.true_ns == []
    assert [(line.count, line.missed) for line in held.lines] == [(0, 1)] * 4
    sentence = f"no delays on the device's side on GPU0: {why}"
    assert held.notes() == [sentence]
    assert held.said == [f"tapedelay: {sentence}"]


@pytest.mark.parametrize("device", ["normal", "no_product", "forgets", "small", "sleeps"])
def test_nothing_of_it_is_left_or_counted_as_the_engines(program: Path, tmp_path: Path, device: str) -> None:
    held = run(program, tmp_path / "spool", device)
    assert held.buffers == 0
    kinds = [Kind(int(r["kind"])) for r in held.spool.records]
    assert kinds.count(Kind.COPY) == 4
    assert kinds.count(Kind.SYNC) == 1
    assert Kind.COMPUTE not in kinds
    assert kinds.count(Kind.BUFFER_ALLOC) == kinds.count(Kind.QUEUE_INIT) - 1 == 1  # the program's own
    assert len(held.spool.buffers) == 1


def test_it_is_not_measured_where_the_plan_needs_none(program: Path, tmp_path: Path) -> None:
    for number, plan in enumerate(("first copy on GPU0 +1ms before_issue", "every copy on TAPE0 +1ms")):
        held = run(program, tmp_path / str(number), "no_product", plan)
        assert held.notes() == []
        assert held.said == []
