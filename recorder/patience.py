"""Signals while a recording is collected: an impatient second Ctrl-C must not cost the tape."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Patience", "patience"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAID = b"\ntapedelay: collecting the recording; Ctrl-C again leaves it uncollected\n"


class Patience:
    """What to do with a signal that would end this process.

    Attributes
    ----------
    collecting : bool
        Whether there is something to lose. Ctrl-C is then answered once and heeded the second time, other
        signals at once: with a KeyboardInterrupt.
    done : bool
        Whether the recording is safe, as a tape or as a spool; signals are then too late to matter.
    """

    def __init__(self) -> None:
        self.collecting = False
        self.done = False
        self._pressed = 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.done:
            return
        if self.collecting and number == signal.SIGINT:
            self._pressed += 1
            if self._pressed == 1:
                os.write(2, _SAID)
                return
        self.done = self.collecting
        raise KeyboardInterrupt


def _too_late(number: int, frame: FrameType | None) -> None:
    """Do nothing. A function: what is ignored outright would be ignored by the command, too."""


@contextmanager
def patience() -> Iterator[Patience]:
    """Take over the signals that end a process, but for those that it ignores.

    Elsewhere than in the main thread, which alone can do so, nothing is taken over.
    """
    ours = Patience()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            # None: a handler that Python did not set and could not restore
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, ours._on_signal)
        # A request to save, answered only while the command runs: one that comes later must not end us.
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, _too_late)
    try:
        yield ours
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
