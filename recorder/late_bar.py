"""A progress bar on stderr for what may take long: only on a terminal, and only when it has taken a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..formats.commands.progress import Progress
from ..formats.shown import printable
from .threads import start_without_signals

__all__ = ["late_bar"]

_AFTER_S = 1.0


@contextmanager
def late_bar(what: str, *, after_s: float = _AFTER_S) -> Iterator[Progress | None]:
    """Show a bar while the block runs, from `after_s` on; None where nobody would see it.

    Parameters
    ----------
    what : str
        What goes on.
    after_s : float
        A block that ends before that shows nothing.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what)
    timer = threading.Timer(after_s, bar.show)
    timer.daemon = True
    start_without_signals(timer)
    try:
        yield bar.update
    finally:
        timer.cancel()
        bar.hide()


class _Bar:
    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._at: tuple[int, int | None] = (0, None)
        self._bar: Any = None
        self._over = False

    def show(self) -> None:
        """Show it, unless it is over."""
        from rich.console import Console
        from rich.progress import Progress as Bar

        with self._lock:
            if self._over:
                return
            self._bar = Bar(console=Console(stderr=True), transient=True)
            done, total = self._at
            self._bar.add_task(printable(self._what), completed=done, total=total)
            self._bar.start()

    def update(self, done: int, total: int) -> None:
        """Say how much is done."""
        with self._lock:
            self._at = done, total
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total)

    def hide(self) -> None:
        """Take it away."""
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()
