"""More host threads than a tape has queues: an order that nothing gives is never made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.errors import SpoolError
from tapedelay.formats.limits import MAX_QUEUES
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml import thread_rows
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.spool import read_spool
from tapedelay.replayer.check import check_tape

MANY = 10_000
Make = Callable[..., Any]


def collected(e: Any) -> Tape:
    tape = collect([read_spool(e.w.write())])
    assert validate(tape) == []
    return tape


def names(tape: Tape) -> list[str]:
    found: list[str] = tape.table("queues").column("name").to_pylist()
    return found


def blocking(report: Any) -> list[Any]:
    return [c for c in report.conditions if c.blocks]


def requests(e: Any, threads: int, *, first: str = "", last: str = "") -> None:
    """Each thread computes on one backend object and waits for it, one thread after the other."""
    graph = e.w.set([(e.memory, 0, 64, "write", "x")])
    for t in range(threads):
        if first:
            e.w.record(first, thread=t, e=e.host, b=0, c=16)
        e.w.record("compute", thread=t, queue=e.queues[0], d=graph)
        e.w.record("sync", thread=t, queue=e.queues[0], end=e.w.now + 12)
        if last:
            e.w.record(last, thread=t, e=e.host, b=0, c=16, at=e.w.now + 5)


def test_threads_that_hand_a_backend_over_share_a_row_and_may_be_clean(engine: Make) -> None:
    e = engine(threads=MANY)
    requests(e, MANY)
    tape = collected(e)
    assert names(tape) == ["host0", "TAPE0"]
    assert tape.rows("ops") == 2 * MANY + 2 * (MANY - 1)
    report = check_tape(tape)
    assert report.findings == []
    assert blocking(report) == []


def test_ten_thousand_threads_that_nothing_orders(engine: Make) -> None:
    e = engine(threads=MANY)
    requests(e, MANY, first="set")
    tape = collected(e)
    assert len(names(tape)) == MAX_QUEUES
    assert len([n for n in names(tape) if n.startswith("other threads")]) == thread_rows.SHARED_MAX
    marks = [o for o in tape.table("ops").to_pylist() if o["name"] == "another thread"]
    assert len(marks) == MANY - (MAX_QUEUES - 1)
    assert {m["access_set"] for m in marks} == {None}
    assert any("more than a tape has queues" in n for n in tape.manifest.notes)


@pytest.mark.parametrize("more", [{"first": "set"}, {"last": "set"}])
@pytest.mark.parametrize("room", [300, 20])
def test_what_is_in_no_known_order_is_never_clean(
    engine: Make, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], room: int
) -> None:
    monkeypatch.setattr(
        "tapedelay.recorder.engines.ggml.collect.thread_rows", lambda s: thread_rows.thread_rows(s, room)
    )
    e = engine(threads=100)
    requests(e, 100, **more)
    tape = collected(e)
    report = check_tape(tape)
    assert ("accesses" in {c.name for c in blocking(report)}) is (room < 100)
    assert len(names(tape)) == min(room, 101)


def test_a_row_of_its_own_for_each_as_long_as_there_is_room(engine: Make) -> None:
    e = engine(threads=MAX_QUEUES - 1)
    requests(e, MAX_QUEUES - 1, first="set")
    tape = collected(e)
    assert names(tape) == [*(f"host{t}" for t in range(MAX_QUEUES - 1)), "TAPE0"]


def small(e: Any, most: int) -> list[Any]:
    return thread_rows.thread_rows([read_spool(e.w.write())], most)


def test_the_busiest_keep_their_rows_and_the_others_take_turns(engine: Make) -> None:
    e = engine(threads=6)
    for t, times in ((0, 1), (1, 9), (2, 1), (3, 8), (4, 1), (5, 1)):
        for _ in range(times):
            e.w.record("set", thread=t, e=e.host, c=4)
    (rows,) = small(e, 5)  # one of them is the device's
    assert rows.leaders == [0, 1, 2, 3, 0, 2]
    assert rows.shared == {0, 2}
    assert [t for _, t in rows.begins] == [4, 5]


def test_threads_that_live_at_the_same_time_share_a_row_only_if_they_must(engine: Make) -> None:
    e = engine(threads=4)
    for t in (0, 1, 2, 3, 0):  # thread 0 lives all the time
        e.w.record("set", thread=t, e=e.host, c=4)
    (rows,) = small(e, 4)
    assert rows.leaders == [0, 1, 2, 2]
    assert rows.shared == {2}


@pytest.mark.parametrize("overlap", [False, True])
def test_a_call_that_began_before_the_other_had_ended_hands_nothing_over(engine: Make, overlap: bool) -> None:
    e = engine(threads=2)
    e.w.record("sync", thread=0, queue=e.queues[0], at=10, end=40)
    e.w.record("sync", thread=1, queue=e.queues[0], at=30 if overlap else 50, end=60)
    (rows,) = small(e, 2)
    assert rows.leaders == [0, 0]
    assert bool(rows.begins) is overlap


@pytest.mark.parametrize("flags", [4, 8, 16])
def test_declined_and_nested_calls_hand_nothing_over(engine: Make, flags: int) -> None:
    e = engine(threads=2)
    e.w.record("sync", thread=0, queue=e.queues[0], at=10, end=20)
    e.w.record("compute", thread=1, queue=e.queues[0], at=50, end=60, flags=flags)
    assert small(e, 2)[0].begins


def test_a_gap_at_the_end_of_a_thread_hands_nothing_over(engine: Make) -> None:
    e = engine(threads=2)
    e.w.head["lost"] = 1
    e.w.record("sync", thread=0, queue=e.queues[0], at=10, end=20)
    e.w.record("gap", thread=0, at=30, end=31, a=1)
    e.w.record("sync", thread=1, queue=e.queues[0], at=50, end=60)
    assert small(e, 2)[0].begins


def test_too_many_backend_objects_are_one_error(engine: Make) -> None:
    e = engine()
    for _ in range(MAX_QUEUES):
        e.w.queue(e.devices[0], "TAPE0")
    e.w.record("sync", queue=e.queues[0], end=50)
    with pytest.raises(SpoolError, match="4,097 backend objects"):
        collected(e)
