"""The bar of long collecting: on a terminal only, and not for what is done at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.recorder.engines.ggml.collect import collect_directory

BLOCK = """
import sys, threading
from tapedelay.recorder.late_bar import late_bar
with late_bar("collecting the recording", after_s=float(sys.argv[1])) as bar:
    if bar is not None:
        bar(40, 100)
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer) and sys.argv[1] == "0":
                thread.join()
        bar(85, 100)
print("there" if bar else "none")
"""


def run(after_s: str, *, terminal: bool) -> tuple[str, str]:
    """Return what the block wrote to stderr, and to stdout."""
    words = [sys.executable, "-c", BLOCK, after_s]
    env = {**os.environ, "TERM": "xterm"}
    if not terminal:
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
        return done.stderr, done.stdout
    ours, theirs = pty.openpty()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=theirs, text=True, env=env, check=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return shown.decode(), done.stdout


def test_what_takes_long_has_a_bar_on_a_terminal() -> None:
    shown, said = run("0", terminal=True)
    assert "collecting the recording" in shown
    assert "85%" in shown
    assert said == "there\n"


@pytest.mark.parametrize(("after_s", "terminal"), [("0", False), ("1000", True)])
def test_nothing_is_shown_elsewhere_or_of_what_is_done_at_once(after_s: str, terminal: bool) -> None:
    shown, said = run(after_s, terminal=terminal)
    assert shown == ""
    assert said == ("there\n" if terminal else "none\n")


def test_collecting_says_how_much_is_done(engine: Callable[..., Any]) -> None:
    for wall_ns in (1_000, 2_000):
        e = engine(wall_ns=wall_ns)
        e.w.record("sync", queue=e.queues[0], end=50)
        e.w.write()
    told: list[tuple[int, int]] = []
    collect_directory(e.w.rec.parent, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 100), (40, 100), (62, 100), (85, 100)]
