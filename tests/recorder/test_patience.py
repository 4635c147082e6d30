"""Signals while a recording is collected, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal
from tapedelay.recorder.patience import patience
with patience():
    os.kill(os.getpid(), signal.SIGUSR1)
    print("alive", flush=True)
    if os.posix_spawnp("sh", ["sh", "-c", "kill -USR1 $$; exit 0"], os.environ) > 0:
        print(os.WTERMSIG(os.wait()[1]), flush=True)
os.kill(os.getpid(), signal.SIGUSR1)
"""


def test_a_request_to_save_that_comes_too_late_ends_neither_us_nor_is_it_ignored_by_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["alive", str(int(signal.SIGUSR1))]
    assert done.returncode == -signal.SIGUSR1, "as before, afterwards"
