"""One memory behind several host buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.dump import dump_lines
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape

from .test_collect import collected

BASE = 0x7FAA_BBCC_0000
BYTES = 4096


def pending_copy_and_compute(e: Any, read: int, written: int) -> Tape:
    """A copy reads the first 64 bytes of one buffer while the CPU writes those of another."""
    g = e.w.set([(written, 0, 64, "write", "y")])
    e.w.record("copy", queue=e.queues[0], d=read, e=e.memory, c=64, name="x")
    e.w.record("compute", queue=e.cpu_queue, d=g, end=e.w.now + 15)
    return collected(e)


def places(tape: Tape) -> list[tuple[str, int | None, int | None]]:
    rows = tape.table("buffers").to_pylist()
    return [(b["name"], b["parent"], b["parent_offset"]) for b in rows[2:]]


@pytest.mark.parametrize(
    ("offset", "races"), [(0, True), (63, True), (64, False), (-63, True), (-64, False), (BYTES, False)]
)
def test_overlapping_buffers_share_their_bytes(engine: Callable[..., Any], offset: int, races: bool) -> None:
    e = engine()
    a = e.w.buffer(e.cpu, BYTES, host=True, base=BASE, name="mapped")
    b = e.w.buffer(e.cpu, BYTES, host=True, base=BASE + offset, name="view")
    tape = pending_copy_and_compute(e, a, b)
    report = check_tape(tape)
    assert [f.verdict for f in report.findings] == ["race"] * races
    if offset < BYTES:
        low = min(0, offset)
        assert places(tape) == [("shared memory", None, None), ("mapped", 2, -low), ("view", 2, offset - low)]
        assert tape.table("buffers").to_pylist()[2]["bytes"] == BYTES + abs(offset)
    else:
        assert places(tape) == [("mapped", None, None), ("view", None, None)]


def test_no_address_reaches_the_tape(engine: Callable[..., Any]) -> None:
    e = engine()
    a, b = (e.w.buffer(e.cpu, BYTES, host=True, base=BASE + o, name="mapped") for o in (0, 128))
    text = "\n".join(dump_lines(pending_copy_and_compute(e, a, b)))
    for address in (BASE, BASE + 128, BASE + BYTES):
        assert str(address) not in text
        assert f"{address:x}" not in text.lower()


def test_chains_of_buffers_have_one_root(engine: Callable[..., Any]) -> None:
    e = engine()
    first, _, last = (e.w.buffer(e.cpu, 100, host=True, base=BASE + o, name="m") for o in (160, 80, 0))
    tape = pending_copy_and_compute(e, first, last)
    assert places(tape) == [("shared memory", None, None), ("m", 2, 160), ("m.2", 2, 80), ("m.3", 2, 0)]
    assert check_tape(tape).exit_code != 1  # the ends of the chain do not overlap


@pytest.mark.parametrize("seen", [True, False])
def test_memory_that_is_used_again_is_another_one(engine: Callable[..., Any], seen: bool) -> None:
    e = engine()
    a = e.w.buffer(e.cpu, BYTES, host=True, base=BASE, name="old")
    b = e.w.buffer(e.cpu, BYTES, host=True, base=BASE, name="new")
    e.w.record("buffer_alloc", e=a, end=15)
    e.w.record("buffer_free", e=a, at=20, end=40)
    if seen:  # another thread's call begins before the free, and gets the memory after it
        e.w.record("buffer_alloc", e=b, at=19, end=30)
    e.w.now = 40
    tape = pending_copy_and_compute(e, b, e.host)
    assert (len(places(tape)) == 2) is seen  # not seen: it may have been there all the time


def test_device_memory_is_not_looked_at(engine: Callable[..., Any]) -> None:
    e = engine()
    meta = e.w.device("Meta", kind=4, test=False, profile="")
    for device in (e.devices[0], e.devices[0]):
        e.w.buffer(device, BYTES, base=BASE)
    for _ in range(2):
        e.w.buffer(meta, BYTES, host=True, base=BASE)  # a number that stands for an address
        e.w.buffer(e.cpu, 0, host=True, base=BASE)
        e.w.buffer(e.cpu, BYTES, host=True, base=0)
        e.w.buffer(e.cpu, BYTES, host=True, base=(1 << 64) - 8)
    assert {parent for _, parent, _ in places(collected(e))} == {None}
