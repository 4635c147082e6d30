"""What no engine's process could hold: refused before one is started. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .protocol import Pool

__all__ = ["MOST_ALIVE_TOKENS", "MOST_TOKENS", "MOST_UNITS", "Alive", "too_many_units"]

MOST_TOKENS = 1 << 22
"""Tokens of one request: they are made one by one, within one call, in the memory of the engine's process."""

MOST_ALIVE_TOKENS = 1 << 26
"""Tokens of all requests that are there at the same time."""

MOST_UNITS = 1 << 22
"""Units of a pool: an engine makes them one by one."""

Fault = tuple[str, str]
"""What was found, and what was expected."""


class Alive:
    """Counts the tokens of requests while they come, grow and go.

    Parameters
    ----------
    refuse : callable
        Given what was found and what was expected; raises.
    """

    def __init__(self, refuse: Callable[[str, str], None]) -> None:
        self._refuse = refuse
        self._tokens: dict[int, int] = {}
        self._all = 0

    def arrives(self, request: int, tokens: int) -> None:
        """Count a request with the tokens of its prompt, or those that it reserves."""
        self._tokens.setdefault(request, 0)
        self.grows(request, tokens)

    def grows(self, request: int, tokens: int) -> None:
        """Count more tokens of a request; of one that has ended they are held no longer than a call."""
        known = request in self._tokens
        held = self._tokens.get(request, 0) + tokens
        if held > MOST_TOKENS:
            self._refuse(
                f"request {request} has {held:,} tokens",
                f"at most {MOST_TOKENS:,}, since a rerun makes them in memory",
            )
        if not known:
            return
        self._tokens[request] = held
        self._all += tokens
        if self._all > MOST_ALIVE_TOKENS:
            self._refuse(
                f"{len(self._tokens):,} requests at once with {self._all:,} tokens",
                f"at most {MOST_ALIVE_TOKENS:,}, since a rerun makes them in memory",
            )

    def gone(self, requests: Iterable[int]) -> None:
        """Let go of requests that have ended."""
        for request in requests:
            self._all -= self._tokens.pop(request, 0)


def too_many_units(pools: Iterable[Pool]) -> Fault | None:
    """Return what is wrong with the pools, None where nothing is."""
    for pool in pools:
        if pool.units > MOST_UNITS:
            found = f"pool {pool.name!r} has {pool.units:,} units"
            return found, f"at most {MOST_UNITS:,}, since a rerun makes them in memory"
    return None
