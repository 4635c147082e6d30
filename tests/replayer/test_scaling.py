"""Tapes that are small but awkward are judged, or refused, in a time that grows with their size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.limits import MAX_ABOVE, MAX_QUEUES, MAX_SIDE_BY_SIDE
from tapedelay.replayer.check import check_tape, judge

SECONDS = 15.0
"""Each takes a few seconds; most took minutes once."""


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


class Awkward:
    """A builder with a host thread, queues and one memory."""

    def __init__(self, queues: int = 1, *, in_order: bool = True) -> None:
        self.b = TapeBuilder()
        host = self.b.device(name="CPU", kind="host")
        self.gpu = self.b.device(name="GPU", kind="gpu")
        self.host = self.b.queue(device=host, name="main", kind="host_thread")
        self.queues = [self.b.queue(device=self.gpu, name=f"q{i}", in_order=in_order) for i in range(queues)]
        self.memory = self.b.buffer(device=self.gpu, name="M", bytes=None)

    def touch(self, *spans: tuple[int, int], mode: str = "write", unit: int | None = None) -> int:
        return self.b.access_set(
            {"buffer": self.memory, "offset": a, "bytes": b - a, "mode": mode, "unit_bytes": unit}
            for a, b in spans
        )

    def kernel(self, queue: int, touched: int, **more: object) -> int:
        return self.b.op(kind="kernel", queue=self.queues[queue], issuer=None, access_set=touched, **more)


def test_nested_ops() -> None:
    a = Awkward()
    touched = a.touch((0, 64))
    for _ in range(40):
        at = None
        for _ in range(MAX_ABOVE):
            at = a.kernel(0, touched, parent=at)
    assert check_tape(a.b.build()).exit_code == 0
    a.kernel(0, touched, parent=a.kernel(0, touched, parent=at))
    with pytest.raises(InvalidTape, match="part of more than"):
        check_tape(a.b.build())


@pytest.mark.parametrize(
    "spans",
    [[(2 * i, 2 * i + 1) for i in range(20_000)], [(0, 100 + i) for i in range(20_000)]],
    ids=["apart", "nested"],
)
def test_two_ops_that_touch_much(spans: list[tuple[int, int]]) -> None:
    a = Awkward(2)
    touched = a.touch(*spans)
    a.kernel(0, touched)
    a.kernel(1, touched)
    (found,) = check_tape(a.b.build()).findings
    assert (found.begin, found.end) == (0, spans[-1][1])


@pytest.mark.parametrize("mode", ["read", "write"])
def test_long_lists_of_units(mode: str) -> None:
    a = Awkward(4)
    touched = a.touch((0, 64), mode=mode, unit=128)
    for i in range(120):
        a.kernel(i % 4, touched, list=a.b.unit_list(range(i, 4000 + i)))
    assert check_tape(a.b.build()).count("race") == (
        0 if mode == "read" else sum(min(i, 3) for i in range(120))
    )


def test_queues_that_are_not_in_order() -> None:
    a = Awkward(in_order=False)
    touched = a.touch((0, 64))
    for _ in range(3000):
        a.kernel(0, touched)
    assert check_tape(a.b.build()).count("race") == 2999
    for _ in range(MAX_SIDE_BY_SIDE):
        a.kernel(0, touched)
    with pytest.raises(InvalidTape, match="side by side"):
        check_tape(a.b.build())


def test_streams_on_a_queue_that_is_not_in_order_stay_few() -> None:
    a = Awkward(in_order=False)
    touched = a.touch((0, 64), mode="reduce")
    last: list[int] = []
    for i in range(20_000):
        at = (i * 7919) % 500 if i >= 500 else i
        op = a.kernel(0, touched)
        if at < len(last):
            a.b.edge(last[at], op)
            last[at] = op
        else:
            last.append(op)
    assert check_tape(a.b.build()).exit_code == 0


def test_many_racing_queues() -> None:
    a = Awkward(500)
    for i in range(20_000):
        a.kernel(i % 500, a.touch((i, i + 1_000_000)))
    report = check_tape(a.b.build())
    assert report.exit_code == 1
    assert len(report.groups) < judge.MAX_KINDS + 500


def test_too_many_queues() -> None:
    a = Awkward(MAX_QUEUES)
    with pytest.raises(InvalidTape, match="4097 queues"):
        check_tape(a.b.build())


def test_buffers_in_buffers() -> None:
    a = Awkward()
    at = a.b.buffer(device=a.gpu, name="deep", bytes=64)
    for _ in range(20_000):
        at = a.b.buffer(device=a.gpu, name="deep", bytes=64, parent=at, parent_offset=0)
    with pytest.raises(InvalidTape, match="lies in 65 others"):
        check_tape(a.b.build())


def _round_robin(i: int) -> int:
    return i % 300


def _blocks(i: int) -> int:
    return i // 20 % 300


@pytest.mark.parametrize("turn", [_round_robin, _blocks])
def test_many_unresolved_waits(turn: Callable[[int], int]) -> None:
    a = Awkward(300)
    event = a.b.sync(name="e", kind="event")
    touched = a.touch((0, 64), mode="read")
    for i in range(6000):
        if i % 2:
            a.b.op(
                kind="wait", queue=a.queues[turn(i)], issuer=None, access_set=0, sync=event,
                wait_state="unresolved",
            )  # fmt: skip
        else:
            a.kernel(turn(i), touched)
    assert check_tape(a.b.build()).exit_code == 0
