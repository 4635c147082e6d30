"""Recording fit for production: kills at any moment, a flight recorder, saving while the engine goes on."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder.demo.commands import PROGRAMS, prompt_program, record_arguments, tapedelay
from tapedelay.recorder.engines.ggml.layout import Kind
from tapedelay.recorder.engines.ggml.spool import read_spools

NATIVE = Path(__file__).parents[1] / "recorder/engines/ggml/native"
KILLS = 50 if os.environ.get("TAPEDELAY_SOAK") else 5
THREADS = 3
_ENTRY = "from tapedelay.formats.cli import main; main()"


@pytest.fixture(scope="module")
def driver(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The program that publishes its own counts, with the plugin's writer in it."""
    spec = importlib.util.spec_from_file_location("native_build", NATIVE / "native_build.py")
    assert spec is not None
    assert spec.loader is not None
    build: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    if build.compiler() is None:
        pytest.skip("no C++ compiler on this machine")
    made = made_once(
        "driver",
        lambda folder: build.compile_with_plugin(NATIVE / "spool_driver.cpp", folder / "spool_driver"),
    )
    return made / "spool_driver"


def published(path: Path) -> list[int]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return [struct.unpack_from("<Q", view, 64 * t)[0] for t in range(THREADS + 1)]


def killed(driver: Path, folder: Path, rng: random.Random, *options: str) -> tuple[Tape, list[int], str]:
    """Record the driver and kill it at a random moment; return the tape and what it had published."""
    counts, tape = folder / "counts", folder / "run.tape"
    program = f'exec "{driver}" mapped "$TAPEDELAY_SPOOL" 0 {THREADS} "{counts}"'
    arguments = ["record", "-o", str(tape), "--force", *options, "--", "sh", "-c", f"echo $$; {program}"]
    counts.unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _ENTRY, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "started\n"
        time.sleep(rng.random() * 0.6)
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL, err
    assert "Traceback" not in err
    found = load_tape(tape)
    assert not found.manifest.complete
    assert validate(found) == []
    return found, published(counts), err


def test_all_that_was_complete_is_in_the_tape_of_a_killed_process(driver: Path, tmp_path: Path) -> None:
    rng = random.Random(4)
    for _ in range(KILLS):
        tape, counts, _ = killed(driver, tmp_path, rng)
        syncs = [r for r in tape.table("ops").to_pylist() if r["kind"] == "sync"]
        assert tape.manifest.lost == 0
        done = [0] * (THREADS + 1)
        first = min(r["target"] for r in syncs)
        for r in syncs:
            done[r["target"] - first] += r["duration_ns"] is not None
        # one more of each may have been recorded and not yet published
        assert all(0 <= d - c <= 1 for d, c in zip(done, counts, strict=True)), (done, counts)


def test_a_flight_recorder_that_is_killed_holds_its_last_records(driver: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    for _ in range(KILLS):
        tape, counts, _ = killed(driver, tmp_path, rng, "--last", "2000")
        (process,) = tape.manifest.processes
        assert process.records == min(2000, process.records + tape.manifest.dropped)
        assert 0 <= process.records + tape.manifest.dropped - sum(counts) <= THREADS + 1


def windowed(tape: Tape) -> list[tuple[Any, ...]]:
    devices = tape.table("queues").to_pylist()
    return [
        (r["kind"], devices[r["queue"]]["name"], r["bytes"], r["wait_state"])
        for r in tape.table("ops").to_pylist()
    ]


def test_the_last_records_of_a_real_engine(newest: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    program = prompt_program(tiny_model, "--prompt-tokens", "40", "--n-predict", "32", "--repeat", "4")
    tapes = []
    for name, last in (("whole", ()), ("end", ("--last", "3000"))):
        words = record_arguments(tmp_path / f"{name}.tape", program)
        at = words.index("--")
        done = tapedelay(*words[:at], "--keep-spool", *last, *words[at:], environment=newest)
        assert done.code == 0, done.err
        tapes.append(load_tape(tmp_path / f"{name}.tape"))
    whole, end = tapes
    assert end.manifest.processes[0].records == 3000
    assert end.manifest.dropped + 3000 == whole.manifest.processes[0].records
    assert end.manifest.complete
    assert validate(end) == []
    assert "older records were dropped" in done.err
    assert end.rows("buffers") <= whole.rows("buffers")
    assert tapedelay("check", tmp_path / "end.tape").code == 0
    assert tapedelay("replay", tmp_path / "end.tape").code == 0
    # the ends of both are the same work: the last compute of each device touches the same
    kinds = [[k for k, *_ in windowed(t) if k in ("compute", "copy")][-200:] for t in tapes]
    assert kinds[0] == kinds[1]


SAVES = """
import os, sys
sys.path.insert(0, sys.argv[1])
import llama_prompt
from tapedelay.recorder import save
words = ["--model", sys.argv[2], "--prompt-tokens", "40", "--n-predict", "8"]
llama_prompt.main(words)
save()
llama_prompt.main(words)
"""


def test_a_program_saves_what_was_recorded_so_far(
    newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", SAVES, str(PROGRAMS), str(tiny_model)]
    done = tapedelay(*record_arguments(tmp_path / "run.tape", program), environment=newest)
    assert done.code == 0, done.err
    first, second = (json.loads(line) for line in done.out.splitlines())
    assert first["tokens"] == second["tokens"]
    early, late = load_tape(tmp_path / "run.1.tape"), load_tape(tmp_path / "run.tape")
    assert validate(early) == []
    assert not early.manifest.complete
    assert late.manifest.complete
    assert windowed(early) == windowed(late)[: early.rows("ops")]
    computes = [sum(k == "compute" for k, *_ in windowed(t)) for t in (early, late)]
    assert 2 * computes[0] == computes[1]


IN_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from tapedelay.recorder import record
import llama_prompt
words = ["--model", sys.argv[2], "--prompt-tokens", "40", "--n-predict", "8"]
with record(sys.argv[3], devices=1, last=100_000) as recording:
    llama_prompt.main(words)
    print(recording.save(sys.argv[3] + ".early.tape"))
    llama_prompt.main(words)
"""


def test_a_recording_of_the_own_process_is_saved(
    newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", IN_PROCESS, str(PROGRAMS), str(tiny_model), str(tmp_path / "a.tape")]
    done = subprocess.run(
        program, env={**os.environ, **newest}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    early, late = load_tape(tmp_path / "a.tape.early.tape"), load_tape(tmp_path / "a.tape")
    assert 0 < early.rows("ops") < late.rows("ops")
    assert windowed(early) == windowed(late)[: early.rows("ops")]


MODELS = """
import json, sys
import xllamacpp
sys.path.insert(0, sys.argv[1])
import llama_prompt, threading
words = ["--model", sys.argv[2], "--prompt-tokens", "24", "--n-predict", "4", "--kv-host"]
for _ in range(4):  # contexts, their schedulers and buffers come and go
    llama_prompt.main(words)
sys.setswitchinterval(1e-6)  # lines that two threads print are written whole, whatever the moment
both = [threading.Thread(target=llama_prompt.main, args=(words,)) for _ in range(2)]
for t in both: t.start()
for t in both: t.join()
"""


def test_many_schedulers_contexts_and_models_in_one_process(
    newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", MODELS, str(PROGRAMS), str(tiny_model)]
    done = tapedelay(*record_arguments(tmp_path / "run.tape", program), environment=newest)
    assert done.code == 0, done.err
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert len(answers) == 6
    assert len({tuple(a["tokens"]) for a in answers}) == 1
    tape = load_tape(tmp_path / "run.tape")
    assert validate(tape) == []
    assert (tape.manifest.complete, tape.manifest.lost) == (True, 0)
    names = [q["name"] for q in tape.table("queues").to_pylist() if q["name"].startswith("TAPE0")]
    assert len(names) == len(set(names)) >= 6
    assert tapedelay("check", tmp_path / "run.tape").code == 0


FORKS = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
import llama_prompt
words = ["--model", sys.argv[2], "--prompt-tokens", "24", "--n-predict", "4"]
import xllamacpp
made, server = [], xllamacpp.Server
def kept(params):  # a child of fork must not destroy what has threads in its parent
    made.append(server(params))
    return made[-1]
xllamacpp.Server = kept
over = False
def others():
    while not over:
        llama_prompt.main(words)
thread = threading.Thread(target=others)
thread.start()
time.sleep(0.5)
children = []
for _ in range(2):
    pid = os.fork()  # while the other thread records
    if not pid:
        llama_prompt.main([*words, "--gpu-layers", "0"])
        sys.stdout.flush()
        os.kill(os.getpid(), 9)  # nor may it run the engine's exit handlers
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in children]
over = True
thread.join()
sys.exit(codes != [-9, -9])
"""


def test_forked_children_of_a_busy_engine_mix_nothing(
    newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = [sys.executable, "-W", "ignore", "-c", FORKS, str(PROGRAMS), str(tiny_model)]
    words = record_arguments(tmp_path / "run.tape", program)
    at = words.index("--")
    done = tapedelay(*words[:at], "--keep-spool", *words[at:], environment=newest, timeout_s=120)
    assert done.code == 0, done.err
    (spool,) = tmp_path.glob(".*.spool")
    spools = read_spools(spool)
    assert len(spools) == 3
    parent, *children = sorted(spools, key=lambda s: s.mono_ns)
    assert parent.ended
    computes = []
    for s in children:
        assert (s.lost, s.ended) == (0, False)
        assert int(s.records["issue_ns"].min()) > int(parent.records["issue_ns"].min())
        assert len(set(s.records["thread"][s.records["kind"] == Kind.COMPUTE].tolist())) == 1
        computes.append(int((s.records["kind"] == Kind.COMPUTE).sum()))
    assert computes[0] == computes[1] > 0
    tape = load_tape(tmp_path / "run.tape")
    assert validate(tape) == []
    assert len(tape.manifest.processes) == 3
