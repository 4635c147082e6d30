"""DeepInfer's request scheduler, recorded from inside the program."""

from __future__ import annotations

__all__ = ["install"]


def install() -> None:
    """Let every scheduler that is built from now on be recorded; call it after ``deepinfer._C`` is imported.

    Raises
    ------
    hooks.Unknown
        This build of DeepInfer does not have what is recorded.
    """
    from .hooks import install as put

    put()
