"""Threads that go along with a recorded command."""

from __future__ import annotations

import signal
import threading

__all__ = ["start_without_signals"]


def start_without_signals(thread: threading.Thread) -> None:
    """Start a thread that no signal reaches, nor what it starts: the main thread waits for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
