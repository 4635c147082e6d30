"""What the user of the demonstration sees: plain lines, and the commands that ran with what they printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from .commands import Finished, shown, tapedelay

__all__ = ["DemoError", "Screen"]


class DemoError(Exception):
    """A tape does not show what it must show."""


class Screen:
    """Plain lines, and a spinner only where there is a terminal."""

    def __init__(self) -> None:
        self._status = Console(stderr=True)

    def line(self, text: str = "") -> None:
        """Print one line, or several."""
        print(text, flush=True)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Say what takes a while, and afterwards how long it took."""
        start = time.monotonic()
        if self._status.is_terminal:
            with self._status.status(what):
                yield
        else:
            yield
        self.line(f"  {what}: {time.monotonic() - start:.1f} s")

    def told(self, command: str, *arguments: str | Path) -> Finished:
        """Run a command that judges a tape, print what it prints, and return that.

        Raises
        ------
        DemoError
            It came to no verdict.
        """
        told = shown([command, *arguments])
        self.line(f"  $ {told}")
        done = tapedelay(command, *arguments)
        if done.code not in (0, 1):
            raise DemoError(f"`{told}` ended with {done.code}:\n{done.out}{done.err}")
        self.line("\n".join(f"    {line}".rstrip() for line in done.out.rstrip().splitlines()))
        return done

    def judged(self, command: str, *arguments: str | Path) -> dict[str, Any]:
        """Do the same and return the result as data."""
        self.told(command, *arguments)
        found: dict[str, Any] = tapedelay(command, "--json", *arguments).json()
        return found
