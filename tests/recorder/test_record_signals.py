"""``tapedelay record`` and signals: to the command, to the saver, while it collects."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.load import load_tape

from .small_commands import ENTRY, computing, copy_spool, last_command, leftovers, python


def test_a_request_that_comes_too_early_or_too_late_kills_nothing(tmp_path: Path, engine: Any) -> None:
    """SIGUSR1 while the command's module is imported, and when the tape is collected."""
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    entry = (
        "import os, signal, sys\n"
        "from tapedelay.formats.cli import main\n"
        "class Asks:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name in ('tapedelay.recorder.command', 'tapedelay.recorder.engines.ggml.collect'):\n"
        "            open(name, 'w').close()\n"
        "            os.kill(os.getpid(), signal.SIGUSR1)\n"
        "sys.meta_path.insert(0, Asks())\n"
        "main()\n"
    )
    shows = "import signal\nprint(signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    done = subprocess.run(
        [sys.executable, "-c", entry, "record", "-o", "run.tape", *python(copy_spool(spool) + shows)],
        cwd=tmp_path, env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert load_tape(tmp_path / "run.tape").rows("ops") == 1
    assert len(list(tmp_path.glob("tapedelay.recorder.*"))) == 2


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


@pytest.mark.parametrize(
    ("number", "times", "collected"),
    [(signal.SIGINT, 1, True), (signal.SIGINT, 6, False), (signal.SIGTERM, 3, False)],
)
def test_signals_while_it_collects_cost_nothing(
    cli: Any, engine: Any, tmp_path: Path, number: int, times: int, collected: bool
) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    # a process that outlives the command, waits for its end, and signals `record`
    code = copy_spool(spool) + (
        "import signal, sys, time\n"
        "record, command = os.getppid(), os.getpid()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for fd in range(3): os.dup2(os.open(os.devnull, os.O_RDWR), fd)\n"
        "    while os.path.exists(f'/proc/{command}'): time.sleep(0.001)\n"
        "    time.sleep(0.03)\n"
        f"    for _ in range({times}):\n"
        f"        os.kill(record, {int(number)}); time.sleep(0.02)\n"
        "os._exit(0)\n"
    )
    done = cli("record", "-o", "run.tape", *python(code))
    if collected:
        assert done.returncode == 0, done.stderr
        assert "Ctrl-C again leaves it uncollected" in done.stderr
        assert leftovers(tmp_path) == ["run.tape"]
        return
    assert done.returncode in (5, -number)  # the last one may come when everything has been said
    assert "the recording is not collected: collecting was interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    again = last_command(done)
    assert again[:-1] == ["record", "-o", "run.tape", "--from-spool"]
    assert cli(*again).returncode == 0
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
