"""What hooks tell is what a reader gets; a hook that breaks ends the recording, never the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.requests.read import read_inputs, read_schedulers
from tapedelay.formats.requests.recorded import Changed, Decided
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, enabled, stop
from tapedelay.recorder.spools import collect_all

Recorder = Callable[..., SchedulerRecorder]


def collected(folder: Path) -> Tape:
    stop()
    tape = collect_all(folder)
    assert [v.text() for v in validate(tape)] == []
    return tape


def test_a_run_comes_back_whole(recorder: Recorder, folder: Path) -> None:
    r = recorder(policy="fcfs", slots=2, ratio=0.5, lora=None, chunked=True)
    r.submit("x", prompt_tokens=20, max_tokens=2, priority=-3, flags=("stream",), reserve_tokens=7)
    r.submit("y", prompt_tokens=20, prefixes=[(r.number("x"), 0, 16)])
    r.begin("step", decode_only=False)
    r.blocks("alloc", 0, [1, 2], "x")
    r.schedule([("x", 16, 0, True)])
    r.resources(0, 61, 2)
    r.end()
    r.begin("output")
    r.answers([])
    r.end()
    r.begin("step", decode_only=True)
    r.decision("preempt", "x")
    r.blocks("free", 0, [2, 1], "x")
    r.blocks("alloc", 0, [1, 2], "y")
    r.schedule([("y", 20, 0, True)])
    r.resources(0, 61, 2)
    r.end()
    r.begin("abort", keys=["y", "x"])
    r.blocks("free", 0, [2, 1], "y")
    r.resources(0, 63, 0)
    r.end()
    r.begin("output")
    r.answers([("y", 1, None)])
    r.decision("emit", "y", 0)
    r.end()
    tape = collected(folder)
    (scheduler,) = read_schedulers(tape)
    assert scheduler.config == {
        "policy": "fcfs", "slots": 2, "ratio": 0.5, "lora": None, "chunked": True,
    }  # fmt: skip
    x, y = scheduler.requests.values()
    assert (x.priority, x.flags, x.reserve_tokens, x.max_tokens) == (-3, ("stream",), 7, 2)
    assert (x.id_rank, y.id_rank, scheduler.prefixes) == (0, 1, ((1, 0, 0, 16),))
    inputs = list(read_inputs(tape))
    kinds = [(i.kind, i.step, i.aborted()) for i in inputs]
    assert kinds == [
        ("submit", None, (0,)), ("submit", None, (1,)), ("step", 0, ()), ("output", 0, ()),
        ("step", 1, ()), ("abort", None, (1, 0)), ("output", 1, ()),
    ]  # fmt: skip
    assert [s.request for s in inputs[4].scheduled] == [1]
    assert inputs[4].events == (
        Decided("preempt", 0), Changed("free", "kv", (2, 1), 0), Changed("alloc", "kv", (1, 2), 1),
    )  # fmt: skip
    assert inputs[4].decode_only
    assert inputs[4].free == {}, "it did not change"
    assert inputs[5].free == {"kv": (63, 0)}
    assert (inputs[3].answers[0].tokens, inputs[6].answers[0].tokens, inputs[6].emitted) == (0, 1, ())
    assert tape.table("answers").num_rows == 0, "all as expected"
    assert tape.manifest.complete


def test_ranks_are_the_order_of_the_ids(recorder: Recorder, folder: Path) -> None:
    ids = ["m", "c", "z", "a", "n", "b", "y", "mm"]
    r = recorder()
    for key in ids:
        r.submit(key, prompt_tokens=1)
    (scheduler,) = read_schedulers(collected(folder))
    ranks = [q.id_rank for q in scheduler.requests.values()]
    assert ranks == [sorted(ids).index(k) for k in ids]


def test_ranks_of_living_requests_hold_though_old_ids_are_forgotten(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapedelay.recorder.requests.numbers._ENDED_KEPT", 3)
    r = recorder()
    keys = [f"{(i * 37) % 100:03}" for i in range(100)]
    for i, key in enumerate(keys):
        r.submit(key, prompt_tokens=1)
        if i >= 10:  # ten live at any time
            r.begin("abort", key=keys[i - 10])
            r.end()
    assert len(r._numbers._of) < 20
    assert len(r._numbers._ids) < 20
    (scheduler,) = read_schedulers(collected(folder))
    ranks = [q.id_rank for q in scheduler.requests.values()]
    assert sorted(r for r in ranks if r is not None) == list(range(100))
    for i in range(10, 100):
        living = range(i - 10, i + 1)
        assert sorted(living, key=lambda n: ranks[n] or 0) == sorted(living, key=lambda n: keys[n])


def test_an_id_that_is_used_again_is_another_request(recorder: Recorder, folder: Path) -> None:
    r = recorder()
    for tokens in (3, 5):
        r.submit("x", prompt_tokens=tokens)
        r.begin("step")
        r.schedule([("x", tokens, 0, True)])
        r.end()
        r.begin("output")
        r.answers([("x", 1, "stop")])
        r.decision("finish", "x")
        r.end()
    (scheduler,) = read_schedulers(tape := collected(folder))
    assert [q.prompt_tokens for q in scheduler.requests.values()] == [3, 5]
    assert [s.request for i in read_inputs(tape) for s in i.scheduled] == [0, 1]


def test_the_same_ids_may_be_of_other_requests_in_the_next_step(recorder: Recorder, folder: Path) -> None:
    r = recorder()
    for _ in range(2):
        r.submit("x", prompt_tokens=4)
        for _ in range(2):
            r.begin("step")
            r.schedule_columns(["x"], [4], [0], [True])
            r.end()
        r.begin("abort", key="x")
        r.end()
    steps = [i for i in read_inputs(collected(folder)) if i.kind == "step"]
    assert [i.scheduled[0].request for i in steps] == [0, 0, 1, 1]


def test_an_input_inside_of_another_is_part_of_it(recorder: Recorder, folder: Path) -> None:
    r = recorder()
    r.submit("x", prompt_tokens=1)
    r.begin("output")
    r.begin("abort", key="x")
    r.blocks("free", 0, [1], "x")
    r.end()
    r.decision("finish", "x")
    r.end()
    inputs = list(read_inputs(collected(folder)))
    assert [i.kind for i in inputs] == ["submit", "output"]
    assert inputs[1].events == (Changed("free", "kv", (1,), 0), Decided("finish", 0))


def test_an_input_whose_end_was_lost_ends_with_the_next_step(recorder: Recorder, folder: Path) -> None:
    r = recorder()
    r.begin("step")
    r.begin("step")
    r.end()
    r.begin("output")
    r.begin("step")
    r.end()
    assert [i.kind for i in read_inputs(collected(folder))] == ["step", "step", "output", "step"]


def test_two_schedulers_of_one_process(recorder: Recorder, folder: Path) -> None:
    one, two = recorder(), recorder()
    for r, key in ((one, "x"), (two, "x"), (one, "y")):
        r.submit(key, prompt_tokens=4)
        r.begin("step")
        r.schedule([(key, 4, 0, True)])
        r.end()
    tape = collected(folder)
    assert [i.scheduler for i in read_inputs(tape)] == [0, 0, 1, 1, 0, 0]
    assert [len(s.requests) for s in read_schedulers(tape)] == [2, 1]
    assert [s.request for i in read_inputs(tape) for s in i.scheduled] == [0, 1, 2]


@pytest.mark.parametrize(
    "breaks",
    [
        lambda r: r.begin("dance"),
        lambda r: (r.begin("step"), r.blocks("juggle", 0, [1])),
        lambda r: (r.begin("step"), r.schedule([("x", 1, 0, True), ("x", 1, 0, True)]), r.end()),
        lambda r: (r.begin("step"), r.schedule([("x",)])),
        lambda r: (r.begin("output"), r.answers(None)),
        lambda r: r.schedule([("x", 1, 0, True)]),
        lambda r: r.submit("x", prompt_tokens="many"),
        lambda r: (r.begin("step"), r.blocks("alloc", 0, [object()]), r.end()),
        lambda r: r.number(object()),
    ],
)
def test_a_broken_hook_is_said_once_and_stays_out(
    recorder: Recorder, folder: Path, capsys: pytest.CaptureFixture[str], breaks: Callable[[Any], None]
) -> None:
    r = recorder()
    r.submit("first", prompt_tokens=1)
    breaks(r)
    breaks(r)
    assert not r.recording
    assert r.number("x") == -1
    r.submit("second", prompt_tokens=1)
    said = capsys.readouterr().err
    assert said.count("is not recorded any more") == 1
    assert said.count("\n") == 1
    tape = collected(folder)
    assert len(list(read_inputs(tape))) == 1
    assert not tape.manifest.complete
    assert "missing from some moment on" in tape.manifest.notes[0]


def test_calls_from_two_threads_at_once_end_the_recording(
    recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    import threading

    r = recorder()
    r.begin("step")
    other = threading.Thread(target=lambda: r.begin("output"))
    other.start()
    other.join()
    assert not r.recording
    assert "two threads" in capsys.readouterr().err


def test_without_a_recording_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TAPEDELAY_SPOOL", raising=False)
    r = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 4)])
    assert not r.recording
    r.submit("x", prompt_tokens=1)
    r.begin("step")
    r.schedule([("x", 1, 0, True)])
    r.end()
    assert capsys.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_no_limit_as_a_number_is_no_fault(recorder: Recorder, folder: Path) -> None:
    r = recorder(most=sys.maxsize)
    for key, value in (("x", sys.maxsize), ("y", -sys.maxsize - 1)):
        r.submit(key, prompt_tokens=1, max_tokens=abs(value), priority=value, reserve_tokens=abs(value))
        r.begin("next_chunk", key=key, tokens=1, value=abs(value))
        r.end()
    (found,) = read_schedulers(collected(folder))
    assert found.config["most"] > 1 << 61
    one, other = found.requests.values()
    assert min(one.max_tokens or 0, one.priority or 0, one.reserve_tokens or 0) > 1 << 61
    assert (other.priority or 0) < -(1 << 61)


def test_a_chunk_arrives_on_the_clock_of_its_request(recorder: Recorder, folder: Path) -> None:
    r = recorder()
    r.submit("x", prompt_tokens=1, arrive_ns=5_000_000_000)
    r.begin("next_chunk", key="x", tokens=2, arrive_ns=7_000_000_001)
    r.end()
    tape = collected(folder)
    (scheduler,) = read_schedulers(tape)
    submit, chunk = read_inputs(tape)
    assert submit.arrive_ns is None, "its request has it"
    assert chunk.arrive_ns is not None
    assert chunk.arrive_ns - (scheduler.requests[0].arrive_ns or 0) == 2_000_000_001


def test_a_copy_of_the_process_stays_out(recorder: Recorder, folder: Path, capfd: Any) -> None:
    r = recorder()
    r.submit("x", prompt_tokens=1)
    child = os.fork()
    if not child:
        r.submit("y", prompt_tokens=1)
        r.submit("z", prompt_tokens=1)
        os._exit(0 if not r.recording else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    r.submit("w", prompt_tokens=1)
    assert capfd.readouterr().err.count("that a fork copied is not recorded") == 1
    assert len(list(read_inputs(collected(folder)))) == 2


def test_what_was_not_written_before_a_fork_is_recorded_in_the_new_process(
    recorder: Recorder, folder: Path
) -> None:
    r = recorder()
    child = os.fork()
    if not child:
        r.submit("x", prompt_tokens=1)
        stop()
        os._exit(0 if r.recording else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (inputs,) = read_inputs(collect_all(folder))
    assert inputs.kind == "submit"
    assert [p.name.split("-")[1] for p in folder.glob("requests-*")] == [str(child)]


def test_memory_of_the_recorder_stays_as_it_is(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapedelay.recorder.requests.numbers._ENDED_KEPT", 16)
    r = recorder()
    for i in range(500):
        key = f"r{i}"
        r.submit(key, prompt_tokens=1)
        r.begin("step")
        r.schedule([(key, 1, 0, True)])
        r.end()
        r.begin("output")
        r.answers([(key, 1, "stop")])
        r.decision("finish", key)
        r.end()
    assert r.recording
    held = [*vars(r).items(), *vars(r._numbers).items(), *vars(r._carry).items()]
    sizes = {n: len(v) for n, v in held if hasattr(v, "__len__")}
    assert max(sizes.values()) <= 20, sizes


def test_the_descriptor_of_a_file_that_the_program_closed_is_left_alone(
    recorder: Recorder, folder: Path, tmp_path: Path, capfd: Any
) -> None:
    r = recorder()
    r.submit("x", prompt_tokens=1)
    (fd,) = [int(n) for n in os.listdir("/proc/self/fd") if is_recording(n)]
    os.close(fd)
    own = tmp_path / "own"
    own.write_bytes(b"the program's")
    opened = os.open(own, os.O_RDWR)
    assert opened == fd, "the number is given again"
    r.submit("y", prompt_tokens=1)
    stop()
    assert own.read_bytes() == b"the program's"
    os.close(opened)
    assert not r.recording
    assert capfd.readouterr().err.count("its file was closed by the program") == 1


def is_recording(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").endswith(".frames")
    except OSError:
        return False


def test_a_fault_after_the_program_cleared_its_environment_stands_in_the_recording(
    recorder: Recorder, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = recorder()
    r.submit("x", prompt_tokens=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAPEDELAY_SPOOL")
    r.schedule([("x", 1, 0, True)])
    assert [p.name for p in tmp_path.iterdir()] == ["spool"]
    (said,) = folder.glob("refused-requests-*.txt")
    assert "outside of a step" in said.read_text()


def test_a_program_that_clears_its_environment_before_a_scheduler_is_built_is_told(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enabled()
    monkeypatch.delenv("TAPEDELAY_SPOOL")
    assert not recorder().recording
    assert not recorder().recording
    fault = "the program removed TAPEDELAY_SPOOL from its environment"
    assert capsys.readouterr().err.count(fault) == 1
    (said,) = folder.glob("refused-requests-*.txt")
    assert fault in said.read_text()


def test_after_the_end_of_a_recording_an_empty_environment_is_no_fault(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorder().recording
    monkeypatch.delenv("TAPEDELAY_SPOOL")
    stop()
    assert not recorder().recording
    assert not enabled()
    assert capsys.readouterr().err == ""
    assert not list(folder.glob("refused-requests-*.txt"))


FORKED = """
import os, signal, threading
from tapedelay.recorder.requests import SchedulerRecorder, PoolRow, spool, stop
held, let = threading.Event(), threading.Event()

def hold():
    with spool._lock:
        held.set()
        let.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()  # another thread of the parent looks for its writer
if not child:
    signal.alarm(20)
    r = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 4)])
    r.submit("x", prompt_tokens=1)
    stop()
    os._exit(0)
let.set()
thread.join()
print(os.waitpid(child, 0)[1])
"""


def test_a_child_forked_while_a_thread_holds_the_lock_records(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "0\n", done.stderr
    assert collect_all(folder).rows("requests") == 1
