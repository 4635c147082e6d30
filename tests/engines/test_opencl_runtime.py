"""What the OpenCL backend stands on: the runtime is asynchronous, kernels and host agree, nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.delays.resolved import BEFORE_START, Delays
from tapedelay.formats.errors import ReplayFailed, Unsupported, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.opencl.device_side import DeviceSide
from tapedelay.replayer.backends.opencl.memory import AFTER, SLOTS, STAMP
from tapedelay.replayer.backends.opencl.platform import Device, choose
from tapedelay.replayer.backends.opencl.session import Session
from tapedelay.replayer.backends.opencl.values import digest, fold, lost, mark_of, pattern, stamp_of
from tapedelay.replayer.backends.protocol import Options, Pin

from .opencl import backend, loaded

LONG_NS = 80_000_000
RACE = "w | kernel | s0 | | A\nr | kernel | s1 | A | Y\n"


@pytest.fixture
def device() -> Device:
    backend()
    return choose()


@pytest.fixture
def session() -> Iterator[Session]:
    with loaded(parse("a | kernel | s0 | | A\nb | kernel | s1 | A | B\n").tape()) as (_, run):
        run.session.reset()
        yield run.session


def spin(session: Session, queue: Any, ns: int = LONG_NS) -> Any:
    session.spin.set_arg(1, np.uint64(session.spinning.rounds(ns)))
    event = session.device.cl.enqueue_nd_range_kernel(queue, session.spin, (1,), (1,))
    queue.flush()
    return event


def copied(session: Session, *, wait: bool) -> tuple[int, int]:
    """Copy host memory behind a long kernel, overwrite it; return what arrived and the status before."""
    cl = session.device.cl
    queue = cl.CommandQueue(session.device.context, session.device.device)
    target = cl.Buffer(session.device.context, cl.mem_flags.READ_WRITE, 4096)
    host = np.full(4096, 1, np.uint8)
    busy = spin(session, queue)
    copy = cl.enqueue_copy(queue, target, host, is_blocking=False)
    queue.flush()
    if wait:
        copy.wait()
    status = int(copy.command_execution_status)
    host[:] = 2
    copy.wait()
    busy.wait()
    arrived = np.zeros(4096, np.uint8)
    cl.enqueue_copy(queue, arrived, target, is_blocking=True)
    assert len(set(arrived.tolist())) == 1
    return int(arrived[0]), status


def test_a_copy_reads_host_memory_when_it_runs_and_not_when_it_is_issued(session: Session) -> None:
    complete = int(session.device.cl.command_execution_status.COMPLETE)
    assert copied(session, wait=False)[0] == 2
    assert copied(session, wait=False)[1] > complete
    assert copied(session, wait=True) == (1, complete)


def test_queues_run_side_by_side(session: Session) -> None:
    cl, context, device = session.device.cl, session.device.context, session.device.device
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    events = [spin(session, cl.CommandQueue(context, device, profiling)) for _ in range(6)]
    for event in events:
        event.wait()
    assert max(e.profile.start for e in events) < min(e.profile.end for e in events)


def test_an_event_that_the_host_completes_holds_up_a_queue(session: Session) -> None:
    cl = session.device.cl
    gate = cl.UserEvent(session.device.context)
    queue = session.queues[1]
    held = cl.enqueue_marker(queue, wait_for=[gate])
    queue.flush()
    time.sleep(0.05)
    assert held.command_execution_status > cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    held.wait()


def test_a_spin_takes_the_time_that_it_is_told(session: Session) -> None:
    for ns in (300_000, 5_000_000, LONG_NS):
        event = spin(session, session.clock, ns)
        event.wait()
        assert event.profile.end - event.profile.start > 0.85 * ns


def run_kernel(session: Session, kernel: Any, rows: list[list[int]]) -> np.ndarray[Any, Any]:
    """Run a kernel over rows of a table of its own; return the slots."""
    cl, flags = session.device.cl, session.device.cl.mem_flags
    table = np.array(rows, np.int64)
    columns = cl.Buffer(session.device.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=table)
    kernel.set_arg(1, columns)
    kernel.set_arg(4, np.int64(0))
    kernel.set_arg(5, np.int64(len(rows)))
    cl.enqueue_nd_range_kernel(session.clock, kernel, (1,), (1,)).wait()
    slots = np.zeros((2, SLOTS), np.uint64)
    return np.asarray(session.fetch(session.slots, slots))


@pytest.mark.parametrize(("at", "size"), [(0, 8), (1, 1), (3, 9), (7, 17), (8, 24), (13, 50)])
def test_host_and_device_agree_on_digests_marks_and_stamps(session: Session, at: int, size: int) -> None:
    """Ranges of any alignment: READ | FOLD from one end of the arena, WRITE to the other."""
    cl = session.device.cl
    content = np.random.default_rng(at).integers(0, 256, 128).astype(np.uint8)
    cl.enqueue_copy(session.clock, session.arena, content, is_blocking=True)
    to = 64 + (at * 5) % 8
    rows = [[at, size, at, 3, 0, 0, -1, 7, 0], [to, 9, to, 4, 0, 0, -1, 7, 1]]
    slots = run_kernel(session, session.begin, rows)
    seen = digest(content[at : at + size], at)
    assert int(slots[0, 0]) == seen
    arena = session.fetch(session.arena, np.empty(128, np.uint8))
    assert arena[to : to + 9].tolist() == pattern(mark_of(7), to, 9).tolist()
    assert not lost(arena[to : to + 9], to, mark_of(7)).any()
    # Another op writes in between, in the first word of the range only.
    arena[to] ^= 1
    cl.enqueue_copy(session.clock, session.arena, arena, is_blocking=True)
    torn = lost(arena[to : to + 9], to, mark_of(7))
    assert torn.sum() == min(8 - to % 8, 9)
    slots = run_kernel(session, session.end, rows)
    stamp = stamp_of(7, 1, fold([(0, seen, seen)]))
    assert slots[:, AFTER : STAMP + 1].tolist() == [[seen, 0], [0, stamp]]
    wanted = np.where(torn, pattern(mark_of(7), to, 9), pattern(stamp, to, 9))
    after = session.fetch(session.arena, np.empty(128, np.uint8))
    assert after[to : to + 9].tolist() == wanted.tolist()
    outside = np.r_[0:to, to + 9 : 128]
    assert after[outside].tolist() == content[outside].tolist()


def test_digests_add_up_over_neighbours() -> None:
    content = np.arange(40, dtype=np.uint8)
    whole = digest(content, 5)
    assert whole == (digest(content[:13], 5) + digest(content[13:], 18)) % 2**64
    assert whole != digest(content, 6)
    assert digest(content[:0], 5) == 0


def test_a_run_without_progress_is_given_up_and_the_next_one_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded(parse(RACE).tape(), Options(timeout_s=0.5)) as (_, run):
        monkeypatch.setattr(DeviceSide, "submit", lambda self, unit: None)
        host = parse("w | kernel | s0 | | A\n1 | sync | H | | | s0\n").tape()
        with pytest.raises(ReplayFailed, match="no op ended"), loaded(host, Options(timeout_s=0.5)):
            pass
        monkeypatch.undo()
        assert run.run(Delays.of()).reads == 3


def test_an_error_of_a_host_thread_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded(parse(RACE).tape()) as (_, run):

        def fail(self: DeviceSide, unit: int) -> None:
            raise OSError("out of something")

        monkeypatch.setattr(DeviceSide, "submit", fail)
        with pytest.raises(OSError, match="out of something"):
            run.run(Delays.of())
        monkeypatch.undo()
        assert run.run(Delays.of()).reads == 3


COLLECTIVE = """device h host
device g gpu
host H h
queue q g order=out
sync c collective
"""
MEMBERS = {
    "a queue's after its own": "a | coll | H | A | | c\nb | coll | q@H | A | | c\n",
    "two of its own": "a | coll | H | A | | c\nb | coll | H | A | | c\n",
    "a queue's between its own": "a | coll | H | A | | c\nb | coll | q@H | A | | c\nd | coll | H | A | | c\n",
    "a queue's on both sides": "b | coll | q@H | A | | c\na | coll | H | A | | c\nd | coll | q@H | A | | c\n",
}


@pytest.mark.parametrize("members", MEMBERS)
def test_a_thread_that_waits_in_a_collective_has_issued_all_of_it_before(members: str) -> None:
    text = COLLECTIVE + MEMBERS[members] + "r | kernel | q | A | |\n"
    with loaded(parse(text).tape(), Options(timeout_s=5)) as (program, run):
        assert not program.core.stuck()[0]
        assert run.run(Delays.of()).clean


def test_a_long_delay_ends_with_ctrl_c() -> None:
    backend()
    code = f"""
import _thread, threading, time
from tapedelay.formats.delays.resolved import Delays
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.opencl import OpenCLBackend
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.program import Program
run = OpenCLBackend().load(Program.from_tape(parse({RACE!r}).tape()), Options())
threading.Timer(1.0, _thread.interrupt_main).start()
at = time.monotonic()
try:
    run.run(Delays.of([(0, {BEFORE_START}, 60_000_000_000)]))
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - at < 20)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    name = choose().name if not backend().available() else ""
    monkeypatch.setenv("TAPEDELAY_OPENCL", "no such thing")
    why = backend_without_skip()
    assert "'no such thing'" in why
    assert name in why
    with pytest.raises(Unsupported, match="no such thing"):
        choose()


def backend_without_skip() -> str:
    from tapedelay.replayer.backends.opencl import OpenCLBackend

    return OpenCLBackend().available()


def test_a_pin_of_another_program_is_refused() -> None:
    with loaded(parse(RACE).tape()) as (program, run):
        pin = program.interleaving(Delays.of())
        assert run.run(Delays.of(), pin=pin).reads == 3
        for schedule in (pin.schedule[:-1], np.append(pin.schedule, pin.schedule[-1])):
            with pytest.raises(UsageError, match="another program"):
                run.run(Delays.of(), pin=Pin(schedule.astype(np.int32)))


def test_memory_as_recorded_and_scaled_down_tell_the_same() -> None:
    text = (
        "w | kernel | s0 | | A[8:8000]\n1 | sync | H | | | s0\nv | kernel | s0 | | A[1000:1024]\n"
        "r | kernel | s1 | A[16:7000] | Y\n"
    )
    for compact in (True, False):
        with loaded(parse(text).tape(), Options(compact=compact)) as (program, run):
            late = Delays.of([(2, BEFORE_START, 3_000_000)])
            outcome = run.run(late, pin=program.interleaving(late))
            assert outcome.first is not None
            assert [(s.begin, s.end, s.writer) for s in outcome.first.saw] == [(1000, 1024, 0)]
            assert [(s.begin, s.end, s.writer) for s in outcome.first.expected] == [(1000, 1024, 2)]


def test_too_much_memory_is_refused() -> None:
    tape = parse("buffer A 8589934592\nw | kernel | s0 | A[0:8] | A[8589934584:8589934592]\n").tape()
    with (
        pytest.raises(Unsupported, match=r"need 8,589,934,\d\d\d bytes of real memory") as caught,
        loaded(tape, Options()),
    ):
        pass
    assert "--compact" in caught.value.next_step
    with loaded(tape, Options(compact=True)) as (_, run):
        assert run.run(Delays.of()).clean


def test_memory_that_is_scaled_down_unasked_is_said() -> None:
    """Much that is touched is too slow in memory as recorded."""
    most = backend().capabilities().max_real_bytes
    assert most is not None
    for size, said in ((most, False), (most + 8, True)):
        tape = parse(f"buffer A {size}\nw | kernel | s0 | | A\n").tape()
        with loaded(tape, Options()) as (_, run):
            notes = run.run(Delays.of()).notes
        assert any(f"ops touch {size:,} bytes" in n for n in notes) == said
        with loaded(tape, Options(compact=True)) as (_, run):
            assert not any("scaled down" in n for n in run.run(Delays.of()).notes)
    with loaded(parse("buffer A 64\nw | kernel | s0 | | A[0:60]\n").tape(), Options()) as (_, run):
        assert any("no whole words" in n for n in run.run(Delays.of()).notes)


def test_the_backend_is_there_without_opencl_and_says_what_is_missing() -> None:
    code = """
import sys
import tapedelay.replayer.backends.opencl as backends
from tapedelay.replayer.backends import registry
registry.names()
assert "pyopencl" not in sys.modules
sys.modules["pyopencl"] = None
print(backends.OpenCLBackend().available())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "tapedelay[opencl]" in done.stdout, done.stderr
