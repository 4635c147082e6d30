"""Where on the stack a step runs: that alone moves a step of a Python scheduler by some percent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["at_depth"]

T = TypeVar("T")
_DEPTHS = 32


def at_depth(number: int, call: Callable[[], T]) -> T:
    """Call something below `number` modulo 32 more frames.

    With and without hooks a step runs at different places of the stack, and meets the caches differently;
    over all depths that is levelled out.
    """
    return _below(number % _DEPTHS, call)


def _below(frames: int, call: Callable[[], T]) -> T:
    return _below(frames - 1, call) if frames else call()
