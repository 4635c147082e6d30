"""``tapedelay record`` around small real commands; engines are tested in tests/engines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.recorder.launch import Asked, environment, profile_names

ENTRY = "import sys; from tapedelay.formats.cli import main; main()"


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``tapedelay`` in ``tmp_path`` with a plugin that exists but that nobody loads."""
    plugin = tmp_path / "plugin.so"
    plugin.write_text("")

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            cwd=tmp_path,
            env={**os.environ, "TAPEDELAY_PLUGIN": str(plugin), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call


def python(code: str) -> Sequence[str]:
    return ("--", sys.executable, "-c", code)


def copy_spool(spool: Path) -> str:
    """Return the code of a command that leaves these spool files behind, as an engine would."""
    return (
        f"import os, shutil, glob\nfor f in glob.glob({str(spool)!r} + '/*'): "
        "shutil.copy(f, os.environ['TAPEDELAY_SPOOL'])\n"
    )


def computing(e: Any, queue: int) -> Path:
    e.w.record("compute", queue=queue, d=e.w.set([(e.memory, 0, 8, "write", "x")]))
    folder: Path = e.w.write().parent
    return folder


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in ("plugin.so", "spool"))


# --- exit codes -------------------------------------------------------------------------------------------


def test_a_command_without_an_engine_cannot_be_judged(cli: Any, tmp_path: Path) -> None:
    done = cli("record", "-o", "run.tape", *python("print('hello')"))
    assert done.returncode == 4
    assert done.stdout == "hello\n"
    assert "ERROR: nothing was recorded" in done.stderr
    assert "n_gpu_layers" in done.stderr or "PYTHONPATH" in done.stderr
    assert leftovers(tmp_path) == []


def test_the_commands_own_exit_code_comes_first(cli: Any, tmp_path: Path) -> None:
    assert cli("record", "-o", "run.tape", *python("raise SystemExit(7)")).returncode == 7
    assert cli("record", "-o", "run.tape", *python("import os; os.kill(os.getpid(), 9)")).returncode == 137
    assert leftovers(tmp_path) == []


def test_work_on_the_device_gives_zero_and_the_next_step(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--devices", "1", *python(copy_spool(spool)))
    assert done.returncode == 0, done.stderr
    assert "1 ops on 2 queues in run.tape (computes: 1 TAPE0)" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: tapedelay check run.tape"
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1
    assert leftovers(tmp_path) == ["run.tape"]


def test_work_on_the_cpu_only_is_no_recording_of_the_device(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.cpu_queue)
    for words, says in (
        (["--devices", "1"], "no compute was recorded on TAPE0"),
        ([], "on any GPU or test device"),
        (["--devices", "0"], "on any GPU"),
        (["--devices", "2"], "only 1 of 2 test devices"),
    ):
        done = cli("record", "-o", "run.tape", "--force", *words, *python(copy_spool(spool)))
        assert done.returncode == 4, words
        assert says in done.stderr
        assert "next: tapedelay check" not in done.stderr
    assert (tmp_path / "run.tape").is_dir()  # what was recorded can still be looked at


def test_every_device_asked_for_must_work(cli: Any, engine: Any) -> None:
    e = engine(devices=2)
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--devices", "2", *python(copy_spool(spool)))
    assert done.returncode == 4
    assert "no compute was recorded on TAPE1" in done.stderr


def test_any_process_may_do_the_work(cli: Any, engine: Any) -> None:
    idle, busy = engine(wall_ns=1_000), engine(wall_ns=2_000)
    idle.w.record("sync", queue=idle.queues[0])
    idle.w.write()
    spool = computing(busy, busy.queues[0])
    assert cli("record", "-o", "run.tape", "--devices", "1", *python(copy_spool(spool))).returncode == 0


def test_a_spool_that_could_not_be_written_is_said(cli: Any, engine: Any) -> None:
    e = engine()
    e.w.head["flags"] = 2
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "stopped early" in done.stderr
    assert "not complete" in done.stderr


def test_a_recording_that_does_not_hold_together_is_said(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    e.w.record("copy", queue=e.queues[0], d=e.host, a=4090, e=e.memory, c=64)  # beyond the end of both
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "access-range" in done.stderr
    assert (tmp_path / "run.tape").is_dir()


def test_a_damaged_spool_is_said(cli: Any, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    e.w.definitions.write_bytes(b"\xff" * 64 + e.w.definitions.read_bytes())
    e.w.rec.write_bytes(b"\xff" * 64)
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "foreign file" in done.stderr


def test_a_command_that_was_killed_is_collected_all_the_same(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    e.w.head["flags"] = 0
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool) + "os.kill(os.getpid(), 9)"))
    assert done.returncode == 137
    tape = load_tape(tmp_path / "run.tape")
    assert tape.table("ops").num_rows == 1
    assert not tape.manifest.complete


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "run.tape"], "no command"),
        (["-o", "run.tape", "--", "no-such-command-here"], "cannot run 'no-such-command-here'"),
        (["-o", "run.tape", "--", "/"], "cannot run '/'"),
        (["-o", "missing/run.tape", "--", "true"], "folder is not there"),
        (["-o", "plugin.so", "--", "true"], "there already"),
        (["-o", "run.tape", "--devices", "99", "--", "true"], "--devices"),
        (["-o", "run.tape", "--profile", "nvidia", "--", "true"], "--profile"),
        (["-o", "run.tape", "--from-spool", "spool", "--", "true"], "--from-spool"),
        (["--", "true"], "--output"),
    ],
)
def test_wrong_use(cli: Any, tmp_path: Path, words: list[str], says: str) -> None:
    done = cli("record", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(tmp_path) == []


def test_no_plugin_is_said_before_anything_runs(cli: Any, tmp_path: Path) -> None:
    done = cli(
        "record", "-o", "run.tape", *python("print('ran')"), TAPEDELAY_PLUGIN=str(tmp_path / "gone.so")
    )
    assert done.returncode == 5
    assert done.stdout == ""
    assert "plugin is not there" in done.stderr


def test_json_is_one_line_after_the_commands_output(cli: Any, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--json", *python(copy_spool(spool) + "print('mine')"))
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.stdout.splitlines()[0] == "mine"
    assert (said["tape"], said["ops"], said["exit_code"], said["faults"]) == ("run.tape", 1, 0, [])


# --- spools -----------------------------------------------------------------------------------------------


def test_a_kept_spool_is_private_and_collects_to_the_same_tape(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    assert cli("record", "-o", "run.tape", "--keep-spool", *python(copy_spool(spool))).returncode == 0
    kept = next(tmp_path.glob(".run.tape.*.spool"))
    assert kept.stat().st_mode & 0o777 == 0o700
    assert cli("record", "-o", "again.tape", "--from-spool", str(kept)).returncode == 0
    for name in ("ops", "accesses", "buffers"):
        assert load_tape(tmp_path / "again.tape").table(name) == load_tape(tmp_path / "run.tape").table(name)
    assert cli("record", "-o", "x.tape", "--from-spool", "nowhere").returncode == 3


def test_what_the_command_gets(tmp_path: Path) -> None:
    base = {"PYTHONPATH": "/mine", "TAPEDELAY_SYNC": "1", "PATH": "/bin"}
    env = environment(base, Asked(2, "cuda-like"), spool=tmp_path, plugin=Path("/p.so"))
    assert env["PATH"] == "/bin"
    assert env["PYTHONPATH"].endswith(os.pathsep + "/mine")
    assert (env["TAPEDELAY_DEVICES"], env["TAPEDELAY_PROFILE"]) == ("2", "cuda-like")
    assert "async_d2d=1" in env["TAPEDELAY_PROFILE_DATA"]
    assert env["TAPEDELAY_PLUGIN"] == env["GGML_BACKEND_PATH"] == "/p.so"
    assert "TAPEDELAY_SYNC" not in env  # what an outer recording asked for is not asked for here
    auto = environment({}, Asked(sync=True), spool=tmp_path, plugin=Path("/p.so"))
    assert "TAPEDELAY_DEVICES" not in auto
    assert auto["TAPEDELAY_SYNC"] == "1"


def test_profiles_of_test_devices_only() -> None:
    assert profile_names() == ("cuda-like", "full-async", "vulkan-like")


def test_nothing_heavy_is_imported_before_the_engine_has_ended() -> None:
    code = (
        "import sys, tapedelay.recorder.command, tapedelay.recorder.session\n"
        "print({'pyarrow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- signals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_to_the_command_and_the_tape_is_collected(
    tmp_path: Path, engine: Any, number: signal.Signals
) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    code = copy_spool(spool) + (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *a: sys.exit(33))\n"
        "open('ready', 'w').close()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, "record", "-o", "run.tape", *python(code)],
        cwd=tmp_path,
        env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == 33
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        process.communicate()
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_ctrl_c_reaches_the_command_once(tmp_path: Path, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    code = copy_spool(spool) + (
        "import signal, time\n"
        "count = []\n"
        "signal.signal(2, lambda *a: count.append(1))\n"
        "open('ready', 'w').close()\n"
        "end = time.monotonic() + 60\n"
        "while not count and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "raise SystemExit(40 + len(count))\n"
    )
    # A session leader of its own whose terminal is a new pseudo-terminal.
    leader = (
        "import fcntl, os, sys, termios\n"
        "os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", leader, "-c", ENTRY, "record", "-o", "run.tape", *python(code)],
        cwd=tmp_path,
        env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        stdin=slave,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.write(master, b"\x03")
        assert process.wait(60) == 41
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        os.close(master)
        os.close(slave)
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_the_command_gets_clean_signals(cli: Any) -> None:
    # without the two that glibc keeps for itself
    code = (
        "for line in open('/proc/self/status'):\n"
        "    if line[:6] in ('SigBlk', 'SigIgn'): print(line[:6], hex(int(line[7:], 16) & 0x7fffffff))"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SigBlk 0x0" in alone.stdout
    assert cli("record", "-o", "run.tape", *python(code)).stdout == alone.stdout
