"""When recording cannot go on, the engine can: its output stays what it was, and the reason is said once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapedelay.formats.read import open_tape
from tapedelay.recorder.demo.commands import (
    PROGRAMS,
    Finished,
    engine_environment,
    prompt_program,
    record_arguments,
    tapedelay,
)
from tapedelay.recorder.demo.engines import XLLAMACPP_NEWEST, xllamacpp
from tapedelay.recorder.hook import SITE
from tapedelay.recorder.plugin import ggml_plugin

LONG = ("--prompt-tokens", "150", "--ubatch", "16", "--kv-host", "--n-predict", "64", "--repeat", "8")
SHORT = ("--prompt-tokens", "40", "--ubatch", "16", "--kv-host")
STOPPED = "recording stopped early"


@pytest.fixture(scope="module")
def expected(newest: dict[str, str], tiny_model: Path) -> list[int]:
    """The tokens of the long run that nobody records."""
    done = subprocess.run(
        prompt_program(tiny_model, *LONG),
        env={**os.environ, **newest},
        capture_output=True,
        timeout=300,
        check=True,
    )
    tokens: list[int] = json.loads(done.stdout)["tokens"]
    return tokens


def answered(done: Finished) -> list[int]:
    tokens: list[int] = done.json()["tokens"]
    return tokens


def assert_said_once(done: Finished, expected: list[int]) -> None:
    assert done.code == 5, done.err
    assert answered(done) == expected
    assert done.err.count(f"tapedelay: {STOPPED}") == 1, done.err
    assert "Traceback" not in done.err


@pytest.fixture(params=[1, 6], ids=["full at once", "full on the way"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param * 512}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path, newest: dict[str, str], tiny_model: Path, expected: list[int]) -> None:
    done = tapedelay(
        *record_arguments(small_disk / "a.tape", prompt_program(tiny_model, *LONG)), environment=newest
    )
    assert_said_once(done, expected)


@pytest.mark.parametrize("limit_bytes", [100_000, 3_000_000])
def test_a_limit_on_the_size_of_files(
    limit_bytes: int, newest: dict[str, str], tiny_model: Path, expected: list[int], tmp_path: Path
) -> None:
    code = (
        "import os, resource, sys;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, resource.RLIM_INFINITY));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    program = [sys.executable, "-S", "-c", code, *prompt_program(tiny_model, *LONG)]
    done = tapedelay(*record_arguments(tmp_path / "a.tape", program), environment=newest)
    assert_said_once(done, expected)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize("kind", ["absent", "a file"])
def test_a_spool_that_cannot_be_written(
    kind: str, newest: dict[str, str], tiny_model: Path, expected: list[int], tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    if kind == "a file":
        spool.write_text("")
    environment = {
        **os.environ,
        **newest,
        "PYTHONPATH": os.pathsep.join([str(SITE), newest["PYTHONPATH"]]),
        "TAPEDELAY_PLUGIN": str(ggml_plugin()),
        "TAPEDELAY_SPOOL": str(spool),
        "TAPEDELAY_DEVICES": "1",
    }
    done = subprocess.run(
        prompt_program(tiny_model, *LONG),
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout)["tokens"] == expected
    said = [line for line in done.stderr.splitlines() if line.startswith("tapedelay: ")]
    assert len(said) == 1, done.stderr
    assert "TAPEDELAY_SPOOL" in said[0]


def test_a_place_that_cannot_be_written_is_named_before_the_run(tiny_model: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    done = tapedelay(*record_arguments(tmp_path / "absent" / "a.tape", program))
    assert done.code == 2
    assert "folder" in done.err
    assert not ran.exists()
    done = tapedelay(*record_arguments(Path("/proc/a.tape"), program))
    assert done.code == 5
    assert "/proc" in done.err
    assert not ran.exists()


def test_a_killed_engine_leaves_a_tape(newest: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    code = (
        f"import os, subprocess, sys; sys.path.insert(0, {str(PROGRAMS)!r}); import llama_prompt\n"
        "subprocess.Popen(['sh', '-c', f'sleep 2; kill -9 {os.getpid()}'])\n"
        "llama_prompt.main(sys.argv[1:])"
    )
    program = [sys.executable, "-c", code, "--model", str(tiny_model), *SHORT, "--repeat", "100000"]
    done = tapedelay(*record_arguments(tmp_path / "a.tape", program), environment=newest)
    assert done.code == 128 + 9
    assert "not complete" in done.err
    tape = open_tape(tmp_path / "a.tape")
    assert not tape.manifest.complete
    kinds = Counter(tape.table("ops").column("kind").to_pylist())
    assert kinds["compute"] > 20
    assert tapedelay("info", "--validate", tmp_path / "a.tape").code == 0
    assert tapedelay("check", tmp_path / "a.tape").code == 0


def test_two_processes_are_one_tape(tiny_model: Path, newest: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "command = [sys.executable, *sys.argv[1:]]\n"
        "both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]\n"
        "out = [p.communicate()[0].decode() for p in both]\n"
        "assert all(p.returncode == 0 for p in both)\n"
        "print(''.join(out), end='')"
    )
    program = [sys.executable, "-c", code, *prompt_program(tiny_model, *SHORT)[1:]]
    done = tapedelay(*record_arguments(tmp_path / "a.tape", program), environment=newest)
    assert done.code == 0, done.err
    first, second = (json.loads(line) for line in done.out.strip().splitlines())
    assert first["tokens"] == second["tokens"]
    tape = open_tape(tmp_path / "a.tape")
    assert len(tape.manifest.processes) == 2
    devices = tape.table("devices").to_pylist()
    queues = tape.table("queues").to_pylist()
    work: Counter[tuple[int, str]] = Counter()
    for op in tape.table("ops").to_pylist():
        if op["kind"] == "compute":
            device = devices[queues[op["queue"]]["device"]]
            work[device["process"], device["kind"]] += 1
    assert set(work) == {(process, kind) for process in (0, 1) for kind in ("host", "test")}
    assert work[0, "test"] == work[1, "test"] > 5
    assert tapedelay("check", tmp_path / "a.tape").code == 0


def test_no_work_on_the_device_asked_for_is_an_error_though_the_answer_is_right(
    tiny_model: Path, tmp_path: Path
) -> None:
    program = prompt_program(tiny_model, *SHORT, "--gpu-layers", "0")
    environment = engine_environment(xllamacpp(XLLAMACPP_NEWEST))
    done = tapedelay(*record_arguments(tmp_path / "a.tape", program), environment=environment)
    assert done.code == 4
    assert len(answered(done)) == 12
    assert "no compute was recorded on TAPE0" in done.err
