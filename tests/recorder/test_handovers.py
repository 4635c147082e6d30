"""What may be assumed where host threads hand work over, and what not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape

from .test_collect import HOST, collected, ops, short

WEIGHTS = 2
BACKEND_NOTE = "(ggml callers serialise calls on one backend object)"


def assumed(tape: Tape) -> list[str]:
    return [n for n in tape.manifest.notes if n.startswith("assumed: ")]


def write_and_read(e: Any, *between: tuple[str, dict[str, Any]]) -> Tape:
    """Thread 0 writes host memory, thread 1 reads it; they compute on backend objects of their own."""
    writes = e.w.set([(e.host, 0, 64, "write", "x")])
    reads = e.w.set([(e.host, 0, 64, "read", "x")])
    other = e.w.queue(e.cpu, "CPU", is_async=False)
    e.w.record("compute", queue=e.cpu_queue, d=writes, thread=0, at=100, end=110)
    for kind, words in between:
        e.w.record(kind, **words)
    e.w.record("compute", queue=other, d=reads, thread=1, at=200, end=210)
    return collected(e)


def test_two_threads_on_one_buffer_are_not_ordered(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    words = {"e": e.memory, "c": 8, "flags": HOST}
    tape = write_and_read(
        e,
        ("set", words | {"thread": 0, "at": 120, "end": 125}),
        ("set", words | {"thread": 1, "b": 512, "at": 130, "end": 135}),
    )
    assert assumed(tape) == []
    report = check_tape(tape)
    assert ([f.verdict for f in report.findings], report.exit_code) == (["unknown"], 4)


def test_two_threads_on_one_backend_object_are(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    words = {"queue": e.queues[0]}
    tape = write_and_read(
        e,
        ("sync", words | {"thread": 0, "at": 120, "end": 125}),
        ("sync", words | {"thread": 1, "at": 130, "end": 135}),
    )
    assert assumed(tape) == [f"assumed: 1 hand-over between host threads {BACKEND_NOTE}"]
    assert check_tape(tape).findings == []


def test_who_uses_a_backend_object_comes_after_who_made_it(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    words = {"queue": e.queues[0]}
    tape = write_and_read(
        e,
        ("queue_init", words | {"thread": 0, "at": 120}),
        ("sync", words | {"thread": 1, "at": 130, "end": 135}),
    )
    assert short(tape) == ["compute host0", "record host0", "wait host1", "sync host1", "compute host1"]
    assert check_tape(tape).findings == []


def test_calls_that_overlap_were_not_serialised(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    words = {"queue": e.queues[0]}
    tape = write_and_read(
        e,
        ("sync", words | {"thread": 0, "at": 120, "end": 140}),
        ("sync", words | {"thread": 1, "at": 130, "end": 150}),
    )
    assert assumed(tape) == []


# --- weights ----------------------------------------------------------------------------------------------


def loaded_and_used(engine: Callable[..., Any], *, flags: int = WEIGHTS, **how: bool) -> Tape:
    """Thread 0 loads a buffer, thread 1 computes with it on a backend object of its own."""
    e = engine(devices=2, threads=2)
    model = e.w.buffer(e.devices[0], 4096, flags=flags, name="model")
    uses = e.w.set([(model, 0, 64, "read", "w"), (e.memory, 0, 8, "write", "y")])
    others = e.w.set([(e.memory, 64, 8, "write", "z")])
    upload = {"queue": e.queues[1]} if how.get("queued") else {"flags": HOST}
    e.w.record("set", thread=0, e=model, c=64, at=100, end=0 if how.get("queued") else 110, **upload)
    if how.get("computes"):
        e.w.record("compute", queue=e.cpu_queue, d=others, thread=0, at=120, end=125)
    if how.get("waits"):
        e.w.record("sync", queue=e.queues[1], thread=0, at=130, end=140)
    e.w.record("compute", queue=e.queues[0], d=uses, thread=1, at=150)
    if how.get("again"):
        e.w.record("set", thread=0, e=model, b=1024, c=64, at=160, end=170, flags=HOST)
    return collected(e)


@pytest.mark.parametrize("how", [{}, {"waits": True}, {"queued": True, "waits": True}])
def test_loaded_weights_are_handed_over(engine: Callable[..., Any], how: dict[str, bool]) -> None:
    tape = loaded_and_used(engine, **how)
    assert check_tape(tape).findings == []
    assert assumed(tape) == [
        "assumed: 1 hand-over between host threads (weights are loaded before another thread uses them)"
    ]
    assert {o["origin"] for o in ops(tape) if o["name"] == "api-serial"} == {"declared"}


@pytest.mark.parametrize("how", [{"flags": 0}, {"again": True}])
def test_other_memory_is_not(engine: Callable[..., Any], how: dict[str, Any]) -> None:
    tape = loaded_and_used(engine, **how)
    assert assumed(tape) == []
    assert (check_tape(tape).verdict, check_tape(tape).exit_code) == ("unknown", 4)


@pytest.mark.parametrize("how", [{}, {"waits": True, "computes": True}])
def test_an_upload_that_nobody_waited_for_races(engine: Callable[..., Any], how: dict[str, bool]) -> None:
    # a wait after the thread's own compute is no longer part of loading
    report = check_tape(loaded_and_used(engine, queued=True, **how))
    assert report.exit_code in (1, 4)
    assert report.findings


def test_a_thread_takes_weights_once(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    model = e.w.buffer(e.devices[0], 4096, flags=WEIGHTS)
    uses = e.w.set([(model, 0, 64, "read", "w")])
    e.w.record("set", thread=0, e=model, c=64, at=100, end=110, flags=HOST)
    for _ in range(3):
        e.w.record("compute", queue=e.queues[0], d=uses, thread=1)
    assert short(collected(e)).count("wait host1") == 1
