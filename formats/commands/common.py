"""What every command does alike: ``--json``, and naming the next useful command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..shown import printable, quoted

__all__ = ["FILE", "force_option", "json_option", "print_json", "printable", "quoted", "say", "say_next"]


class _File(click.Path):
    """A path that can be one; whether it can be read is found out, and said, when it is read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty", param, ctx)
        try:
            os.lstat(value)
        except OSError as e:
            if e.errno == errno.ENAMETOOLONG:
                self.fail("the name is too long", param, ctx)
        except ValueError:
            self.fail("no file can have this name", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path, readable=False)
"""A path argument or option."""

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


def say(text: str) -> None:
    """Print on stderr; where nobody takes it, the exit code has to do."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def say_next(command: str, *, as_json: bool = False) -> None:
    """Name the next useful command on stderr; nothing with ``--json``."""
    if not as_json:
        say(f"next: {printable(command)}")
