"""What the commands that run a program have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..formats.errors import UsageError
from .asked import profile_names

__all__ = ["device_options", "refuse_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


def device_options(function: _F) -> _F:
    """Add ``--devices`` and ``--profile``."""
    profile = click.option(
        "--profile",
        type=click.Choice(profile_names()),
        default="vulkan-like",
        show_default=True,
        help="How test devices behave.",
    )
    devices = click.option(
        "--devices",
        type=click.IntRange(0, 15),
        help="Test devices [default: 0 where a GPU backend is, else 1].",
    )
    return devices(profile(function))


def refuse_options(command: Sequence[str], usage: str) -> None:
    """Refuse what looks like an option in the place of the program.

    Raises
    ------
    UsageError
        It begins with a dash.
    """
    if command and command[0].startswith("-"):
        raise UsageError(
            f"the command is {command[0]!r}", expected=usage, next_step="put options in front of `--`"
        )
