"""transformers' continuous batching: what is recorded of its request scheduler, and how it is watched."""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Let every scheduler that is built from now on be recorded.

    Raises
    ------
    watch.Unknown
        This version of transformers does not have what is recorded.
    """
    from .hook import install as put

    put()
