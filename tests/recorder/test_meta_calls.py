"""Calls on a meta device: their work is that of their children, ordered only by where it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape

from .test_collect import CHILD, META, collected, ops


def meta_queue(e: Any) -> int:
    queue: int = e.w.queue(e.w.device("Meta", kind=4, test=False, profile=""), "Meta")
    return queue


def two_calls(engine: Callable[..., Any], second: int, *, event: bool = False, sync: bool = False) -> Tape:
    """The first meta compute writes memory on one device, the second one reads it on device `second`."""
    e = engine(devices=2)
    meta = meta_queue(e)
    ev = e.w.event(e.devices[0])
    writes = e.w.set([(e.memory, 0, 64, "write", "x")])
    reads = e.w.set([(e.memory, 0, 64, "read", "x")])
    e.w.record("compute", queue=meta, flags=META)
    e.w.record("compute", queue=e.queues[0], d=writes, flags=CHILD)
    if event:
        e.w.record("event_record", queue=e.queues[0], d=ev, a=1, flags=CHILD)
    if sync:
        e.w.record("sync", queue=meta, flags=META, end=e.w.now + 15)
    e.w.record("compute", queue=meta, flags=META)
    if event:
        e.w.record("event_wait", queue=e.queues[second], d=ev, a=1, flags=CHILD)
    e.w.record("compute", queue=e.queues[second], d=reads, flags=CHILD)
    return collected(e)


def test_children_of_two_calls_race_on_two_devices(engine: Callable[..., Any]) -> None:
    tape = two_calls(engine, 1)
    rows = tape.table("queues").to_pylist()
    assert [q["name"] for q in rows if not q["in_order"]] == ["Meta"]
    report = check_tape(tape)
    assert (report.verdict, report.exit_code) == ("race", 1)
    assert len(report.findings) == 1


@pytest.mark.parametrize("how", [{"second": 0}, {"second": 1, "event": True}, {"second": 1, "sync": True}])
def test_what_orders_the_children_orders_the_calls(engine: Callable[..., Any], how: dict[str, Any]) -> None:
    report = check_tape(two_calls(engine, **how))
    assert (report.findings, report.exit_code) == ([], 0)


def test_a_copy_of_the_meta_device_touches_what_its_children_touch(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    meta = meta_queue(e)
    for q in e.queues:
        e.w.record("get", queue=meta, d=e.memory, e=e.host, c=8, flags=META)
        e.w.record("get", queue=q, d=e.memory, e=e.host, c=8, flags=CHILD)
    e.w.record("get", queue=meta, d=e.memory, e=e.host, c=8, flags=META)  # nobody saw who did it
    sets = [o["access_set"] for o in ops(collected(e))]
    assert [bool(s) for s in sets] == [False, True, False, True, True]


def test_a_meta_compute_without_children_is_unknown(engine: Callable[..., Any]) -> None:
    e = engine()
    meta = meta_queue(e)
    e.w.record("compute", queue=meta, flags=META, e=3)
    e.w.record("compute", queue=meta, flags=META, e=0)  # no nodes: nothing to do
    tape = collected(e)
    assert [o["access_set"] for o in ops(tape)] == [None, 0]
    assert tape.coverage(2).accesses == "partial"
    assert check_tape(tape).exit_code == 4


def test_a_meta_call_that_failed_keeps_its_children(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.memory, 0, 8, "write", "x")])
    e.w.record("compute", queue=meta_queue(e), flags=META | 4)
    e.w.record("compute", queue=e.queues[0], d=g, flags=CHILD | 4)
    assert [o["parent"] for o in ops(collected(e))] == [None, 0]
