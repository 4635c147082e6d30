"""A progress bar on stderr, where a person looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..shown import printable

__all__ = ["LARGE", "Progress", "progress"]

LARGE = 50_000
"""Ops from which on it is worth a bar."""

Progress = Callable[[int, int], None]
"""Called now and then with how many of how many are done."""


@contextmanager
def progress(what: str, *, wanted: bool) -> Iterator[Progress | None]:
    """Show a bar while the block runs; None where nobody would see it.

    Parameters
    ----------
    what : str
        What goes on.
    wanted : bool
        It takes long.
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
