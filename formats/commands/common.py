"""What every command does alike: ``--json``, and naming the next useful command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["FILE", "force_option", "json_option", "print_json", "printable", "quoted", "say_next"]

FILE = click.Path(path_type=Path, readable=False)
"""A path argument; whether it can be read is found out, and said, when it is read."""

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add ``--json`` as the parameter ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(
        function
    )


def force_option(function: F) -> F:
    """Add ``--force``."""
    return click.option("--force", is_flag=True, help="Replace an output file that is there.")(function)


def print_json(data: dict[str, Any]) -> None:
    """Print a result for machines."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=True))


def printable(text: str) -> str:
    """Return text from a tape with control characters escaped: a name must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(path: str | Path) -> str:
    """Return a path as one word of a shell command."""
    return shlex.quote(str(path))


def say_next(command: str, *, as_json: bool = False) -> None:
    """Name the next useful command on stderr; nothing with ``--json``."""
    if not as_json:
        click.echo(f"next: {command}", err=True)
