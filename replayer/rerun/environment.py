"""A variable of the environment for a while: engines read some when they build a scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["environment"]


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable; put back what was there."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
