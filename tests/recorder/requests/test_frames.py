"""Raw recordings of killed processes, of full disks, and of people who mean no good."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapedelay.formats.errors import SpoolError
from tapedelay.formats.requests.read import read_inputs
from tapedelay.formats.validate import validate
from tapedelay.recorder.spools import collect_all

from .conftest import ENDLESS, HEADER, SCHEDULER, an_input, frame, head

UNTIMED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
pytestmark = pytest.mark.counted
EXAMPLES = 3000 if os.environ.get("TAPEDELAY_SOAK") else 60


def run_to(folder: Path, steps: int) -> Path:
    """Run the toy program for so many steps and return its raw recording."""
    folder.mkdir(exist_ok=True)
    code = f"STEPS = {steps}\n{ENDLESS}"
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TAPEDELAY_SPOOL": str(folder)}, check=True,
        stdout=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    (path,) = folder.glob("*.frames")
    return path


def inputs_of(folder: Path) -> list[Any]:
    tape = collect_all(folder)
    assert [v.text() for v in validate(tape)] == []
    return list(read_inputs(tape))


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """What is there is a prefix of what happened; only the last input may be missing."""
    whole = inputs_of(run_to(tmp_path / "whole", 400).parent)
    for i, wait_s in enumerate((0.0, 0.003, 0.011)):
        folder = tmp_path / f"spool{i}"
        folder.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-c", f"STEPS = 10 ** 9\n{ENDLESS}"],
            env={**os.environ, "TAPEDELAY_SPOOL": str(folder)}, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == b"going\n"
        time.sleep(wait_s)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        tape = collect_all(folder)
        assert [v.text() for v in validate(tape)] == []
        assert not tape.manifest.complete
        found = list(read_inputs(tape))
        assert len(found) >= 40
        for a, b in zip(found, whole, strict=False):
            assert (a.kind, a.request, a.scheduled, a.answers, a.events) == (
                b.kind, b.request, b.scheduled, b.answers, b.events,
            )  # fmt: skip


def test_cut_at_every_byte(tmp_path: Path) -> None:
    path = run_to(tmp_path / "spool", 6)
    data = path.read_bytes()
    whole = len(inputs_of(path.parent))
    counts = []
    for length in range(HEADER.size, len(data)):
        if length % 17 and length < len(data) - 20:
            continue
        path.write_bytes(data[:length])
        try:
            tape = collect_all(path.parent)
        except SpoolError as e:  # no input is there yet
            assert "no process wrote a spool" in e.found  # noqa: PT017
            continue
        counts.append(tape.rows("inputs"))
        assert tape.manifest.lost <= 1
    assert counts == sorted(counts)
    assert counts[-1] == whole - 1


def test_blocks_that_the_system_had_given_are_no_frames(tmp_path: Path) -> None:
    path = run_to(tmp_path / "spool", 12)
    whole = len(inputs_of(path.parent))
    path.write_bytes(path.read_bytes() + bytes(5000))
    tape = collect_all(path.parent)
    assert (tape.rows("inputs"), tape.manifest.complete) == (whole, False)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(SpoolError, match="no bytes"):
        collect_all(path.parent)


FULL = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
STEPS = 3000
{ENDLESS}
print("done", r.recording, flush=True)
"""


@pytest.mark.parametrize("limit", [20, 4000])
def test_a_full_disk_ends_the_recording_and_not_the_program(tmp_path: Path, cli: Any, limit: int) -> None:
    done = cli("record", "--no-telemetry", "-o", "run.tape", "--", sys.executable, "-c",
               FULL.replace("MOST", str(limit)))  # fmt: skip
    assert done.stdout == "going\ndone False\n"
    assert done.stderr.count("the engine goes on") == 1
    assert done.returncode == 5, done.stderr
    assert "recording stopped early" in done.stderr
    if limit >= 4000:
        tape = cli("info", "run.tape").stdout
        assert "NOT complete" in tape
        assert "File too large" in tape


def test_a_run_is_recorded_by_the_command(tmp_path: Path, cli: Any) -> None:
    done = cli("record", "--no-telemetry", "-o", "run.tape", "--", sys.executable, "-c",
               f"STEPS = 30\n{ENDLESS}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "72 inputs of 1 request scheduler of toy in run.tape" in done.stderr
    shown = cli("info", "run.tape").stdout
    inputs = "72 inputs (output 30, step 30, submit 12)"
    assert f"scheduler 0, toy 1: 12 requests, 30 steps, {inputs}; pools: kv 1,000 units" in shown
    heads = [line.split()[0] for line in shown.splitlines()]
    assert heads == ["run.tape:", "engine", "span", "tables", "requests"]  # nothing of devices and their ops
    assert "complete, 0 records lost" in shown


def test_no_work_on_a_device_that_was_asked_for_is_still_said(tmp_path: Path, cli: Any) -> None:
    done = cli("record", "--no-telemetry", "--devices", "1", "-o", "run.tape", "--", sys.executable, "-c",
               f"STEPS = 30\n{ENDLESS}")  # fmt: skip
    assert done.returncode == 4


def test_a_broken_hook_is_a_fault_of_the_recording(tmp_path: Path, cli: Any) -> None:
    done = cli("record", "--no-telemetry", "-o", "run.tape", "--", sys.executable, "-c",
               f"STEPS = 30\n{ENDLESS}\nr.begin('dance')")  # fmt: skip
    assert done.returncode == 5
    assert "ERROR: the request scheduler is not recorded any more" in done.stderr
    assert (tmp_path / "run.tape").exists()


def test_in_process(tmp_path: Path, cli: Any) -> None:
    """``with record(...)``: what is built inside is recorded, up to the end of the block."""
    code = f"""
from tapedelay.recorder import record
with record("run.tape") as made:
    pass_on = compile({f"STEPS = 30{chr(10)}{ENDLESS}"!r}, "toy", "exec")
    exec(pass_on, scope := {{}})
print(made.inputs, made.schedulers, scope["r"].recording)
scope["r"].submit("later", prompt_tokens=1)
print(scope["r"].recording)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["72 {'toy': 1} True", "False"]


# --- what no recorder writes


def spool(tmp_path: Path, *parts: bytes) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir(exist_ok=True)
    (folder / "requests-4711-0.frames").write_bytes(b"".join(parts))
    return folder


def test_the_least_that_is_sound(tmp_path: Path) -> None:
    assert len(inputs_of(spool(tmp_path, head(), frame(*SCHEDULER), frame(*an_input())))) == 1


def test_what_a_reader_of_the_next_version_writes_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="version 7"):
        collect_all(spool(tmp_path, head(version=7)))


DAMAGED = {
    "foreign": (head(magic=b"NOTTDREQ"),),
    "status": (head(status=9),),
    "time": (head(mono_ns=-1),),
    "no scheduler": (head(), frame(*an_input())),
    "twice": (head(), frame(*SCHEDULER), frame(*SCHEDULER)),
    "kind": (head(), frame(*SCHEDULER), frame(9, 0)),
    "no list": (head(), frame(*SCHEDULER), frame()),
    "text": (head(), frame(0, 0, "tell me", "1", {}, [])),
    "config": (head(), frame(0, 0, "toy", "1", {"prompt": "tell me a story"}, [])),
    "nested config": (head(), frame(0, 0, "toy", "1", {"a": {"b": 1}}, [])),
    "not a number": (head(), frame(0, 0, "toy", "1", {"a": float("nan")}, []), frame(*an_input())),
    "without end": (head(), frame(0, 0, "toy", "1", {"a": float("inf")}, []), frame(*an_input())),
    "arrival": (
        HEADER.pack(b"TDREQSTS", 0, 1, 0, 4711, 0, (1 << 62) - 1), frame(*SCHEDULER),
        frame(*an_input(at_ns=(1 << 62) - 1, new=[[0, -1, 8, None, None, None, None, -(1 << 62) + 1]])),
    ),
    "pool": (head(), frame(0, 0, "toy", "1", {}, [["kv", -1, 0, None]])),
    "short": (head(), frame(*SCHEDULER), frame(*an_input()[:-1])),
    "unknown request": (head(), frame(*SCHEDULER), frame(*an_input(request=5))),
    "rank behind nobody": (
        head(), frame(*SCHEDULER), frame(*an_input(new=[[0, 3, 8, None, None, None, None, None]])),
    ),
    "request twice": (
        head(), frame(*SCHEDULER), frame(*an_input(new=[[0, -1, 8, None, None, None, None, None]] * 2)),
    ),
    "huge": (head(), frame(*SCHEDULER), frame(*an_input(at_ns=1 << 63))),
    "negative": (head(), frame(*SCHEDULER), frame(*an_input(tokens=-1))),
    "float": (head(), frame(*SCHEDULER), frame(*an_input(value=1.5))),
    "flag": (head(), frame(*SCHEDULER), frame(*an_input(decode_only=1))),
    "word": (head(), frame(*SCHEDULER), frame(*an_input(word="two words"))),
    "event": (head(), frame(*SCHEDULER), frame(*an_input(events=[[7]]))),
    "event no list": (head(), frame(*SCHEDULER), frame(*an_input(events=[3]))),
    "event kind": (head(), frame(*SCHEDULER), frame(*an_input(events=[[0, 99, 0, None, None]]))),
    "event long": (head(), frame(*SCHEDULER), frame(*an_input(events=[[1, 0, 1, None, 5]]))),
    "unit": (head(), frame(*SCHEDULER), frame(*an_input(events=[[2, 0, 0, None, -1]]))),
    "pool of another": (head(), frame(*SCHEDULER), frame(*an_input(events=[[2, 0, 3, None, 1]]))),
    "resource": (head(), frame(*SCHEDULER), frame(*an_input(resources=[[0, 1]]))),
    "prefix": (head(), frame(*SCHEDULER), frame(*an_input(prefixes=[[0, 4, 0, 16]]))),
    "not msgpack": (head(), b"\x01\0\0\0" + b"\x75\xb8\x19\xd4" + b"\xc1", frame(*SCHEDULER)),
    "long": (head(), b"\xff\xff\xff\x7f\0\0\0\0" + bytes(64)),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpoolError) as e:
        collect_all(spool(tmp_path, *DAMAGED[name]))
    assert e.value.exit_code == 3


def test_what_breaks_a_rule_is_not_written(tmp_path: Path, cli: Any) -> None:
    again = an_input(new=[], at_ns=2001)
    folder = spool(tmp_path, head(), frame(*SCHEDULER), frame(*an_input()), frame(*again))
    done = cli("record", "-o", "run.tape", "--from-spool", str(folder))
    assert done.returncode == 3
    assert "submitted twice" in done.stderr
    assert not (tmp_path / "run.tape").exists()


def test_no_links_and_no_pipes(tmp_path: Path) -> None:
    folder = spool(tmp_path, head(), frame(*SCHEDULER), frame(*an_input()))
    os.mkfifo(folder / "requests-1-0.frames")
    with pytest.raises(SpoolError, match="not a regular file"):
        collect_all(folder)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return run_to(tmp_path_factory.mktemp("sound") / "spool", 12).read_bytes()


@settings(max_examples=EXAMPLES, suppress_health_check=UNTIMED)
@given(st.data())
def test_bits_that_flip(tmp_path: Path, sound: bytes, data: st.DataObject) -> None:
    """Refused, or a tape that keeps every rule: nothing else."""
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(sound) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        collect_all(spool(tmp_path, bytes(changed)))
    except SpoolError:
        return


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=EXAMPLES, suppress_health_check=UNTIMED)
@given(st.integers(1, 14), VALUES, st.booleans())
def test_other_values_with_a_right_checksum(tmp_path: Path, at: int, value: Any, head_too: bool) -> None:
    """A field holds something else and the checksum is right: refused, or a sound tape."""
    scheduler, fields = list(SCHEDULER), an_input()
    if head_too and at < len(scheduler):
        scheduler[at] = value
    else:
        fields[at] = value
    try:
        parts = (
            head(),
            frame(*scheduler),
            frame(*fields),
            frame(*an_input(kind=8, step=0, request=None, new=[])),
        )
    except (OverflowError, ValueError, msgpack.PackException):
        return
    try:
        tape = collect_all(spool(tmp_path, *parts))
    except SpoolError:
        return
    validate(tape)
    list(read_inputs(tape))


def test_processes_are_merged_by_time(tmp_path: Path) -> None:
    folder = spool(tmp_path, head(), frame(*SCHEDULER), frame(*an_input()), frame(*an_input(
        kind=9, at_ns=4000, request=None, new=[], step=0)))  # fmt: skip
    other = head(mono_ns=1500), frame(*SCHEDULER), frame(*an_input(at_ns=3000))
    (folder / "requests-4712-0.frames").write_bytes(b"".join(other))
    found = inputs_of(folder)
    assert [(i.scheduler, i.kind, i.at_ns) for i in found] == [
        (0, "submit", 0),
        (1, "submit", 1000),
        (0, "step", 2000),
    ]


def test_what_came_later_is_left_out_of_a_tape_saved_on_the_way(tmp_path: Path) -> None:
    folder = spool(tmp_path, head(status=0), frame(*SCHEDULER), frame(*an_input()), frame(*an_input(
        kind=9, at_ns=4000, request=None, new=[], step=0)))  # fmt: skip
    tape = collect_all(folder, until_ns=3000)
    assert tape.rows("inputs") == 1


def shuffled(seed: int, n: int) -> list[int]:
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return order


def test_many_ranks(tmp_path: Path, recorder: Callable[..., Any], folder: Path) -> None:
    r = recorder()
    order = shuffled(1, 300)
    for n in order:
        r.submit(n, prompt_tokens=1)
    from tapedelay.recorder.requests import stop

    stop()
    ranks = collect_all(folder).table("requests").column("id_rank").to_pylist()
    assert ranks == order
