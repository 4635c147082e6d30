"""Takes what the hooks of the recorder tell and gives it to a rerun, as the events of one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import BlockChange, Decision

__all__ = ["POOL_NAME", "Told"]

POOL_NAME = "kv"


class Told:
    """A sink of the hooks (`recorder.engines.vllm.sink`).

    Recording and rerun see the engine through the same hooks: what differs between them differs in it.

    Parameters
    ----------
    numbers : mapping of str to int
        The number of each request by the engine's id; grows as requests come.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._events: list[Decision | BlockChange] = []

    def take(self) -> tuple[Decision | BlockChange, ...]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return tuple(events)

    def number(self, key: str) -> int:
        """Return the number of a request."""
        return self._numbers[key]

    def submit(self, key: str, **about: Any) -> None:
        """Nothing: the rerun knows what it submits."""

    def equal(self, request: int, of: int, from_tokens: int, to_tokens: int) -> None:
        """Nothing: the rerun knows which tokens are equal."""

    def begin(self, kind: str, **about: Any) -> None:
        """Nothing: the rerun knows what it calls."""

    def blocks(self, action: str, pool: int, units: Sequence[int], key: str | None = None) -> None:
        """Note units that change hands."""
        owner = None if key is None else self._numbers.get(key)
        self._events.append(BlockChange(action, POOL_NAME, tuple(units), owner))

    def decision(self, kind: str, key: str, tokens: int | None = None, computed: int | None = None) -> None:
        """Note a decision that schedules nothing."""
        self._events.append(Decision(kind, self._numbers[key], tokens, computed))

    def schedule_columns(
        self,
        keys: Sequence[str],
        tokens: list[int],
        computed: list[int],
        is_prefill: list[bool],
        after: list[int],
    ) -> None:
        """Note a whole step."""
        self._events += (
            Decision("prefill" if prefill else "decode", self._numbers[key], n, at)
            for key, n, at, prefill in zip(keys, tokens, computed, is_prefill, strict=True)
        )

    def answer_columns(self, keys: Sequence[str], tokens: list[int], words: Mapping[str, str]) -> None:
        """Nothing: the rerun gives the answers."""

    def resources(self, pool: int, free: int, used: int) -> None:
        """Nothing: the rerun looks at the pools itself."""

    def end(self) -> None:
        """Nothing: the rerun takes the events after each call."""
