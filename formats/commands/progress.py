"""A progress bar on stderr, where a person looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..shown import printable

__all__ = ["LARGE", "Progress", "Stage", "progress", "stages"]

LARGE = 50_000
"""Ops from which on it is worth a bar."""

Progress = Callable[[int, int], None]
"""Called now and then with how many of how many are done."""

Stage = Callable[[str, str, int, int | None], None]
"""Called now and then: what goes on, more about it, how many are done of how many (None: nobody knows)."""


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


@contextmanager
def stages() -> Iterator[Stage]:
    """Show what goes on and since when while the block runs; nothing where nobody would see it.

    What the block prints meanwhile on stdout would go astray: print it after.
    """
    if not sys.stderr.isatty():
        yield _unseen
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        shown: dict[str, TaskID] = {}

        def show(what: str, more: str, done: int, total: int | None) -> None:
            said = printable(what + more)
            if what not in shown:  # its time begins
                for task in shown.values():
                    bar.remove_task(task)
                shown.clear()
                shown[what] = bar.add_task(said, total=total)
            bar.update(shown[what], description=said, completed=done, total=total)

        yield show


def _unseen(what: str, more: str, done: int, total: int | None) -> None:
    pass
