"""What hears of the hooks: the recorder while a program runs, a driver while a scheduler is rerun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["Sink"]


class Sink(Protocol):
    """Takes what happens at one scheduler, in order; the methods are those of `SchedulerRecorder`.

    Keys are the engine's own request ids. Every call but `number` is between a `begin` and its `end`.
    """

    def number(self, key: str) -> int:
        """Return the number of a request."""
        ...

    def submit(
        self,
        key: str,
        *,
        prompt_tokens: int,
        max_tokens: int | None = None,
        priority: int | None = None,
        flags: Sequence[str] = (),
        arrive_ns: int | None = None,
    ) -> None:
        """Take a request that arrives."""
        ...

    def equal(self, request: int, of: int, from_tokens: int, to_tokens: int) -> None:
        """Take which tokens a request has in common with one of a lower number; both by number."""
        ...

    def begin(
        self,
        kind: str,
        *,
        key: str | None = None,
        keys: Sequence[str] | None = None,
        tokens: int | None = None,
        value: int | None = None,
        word: str | None = None,
        decode_only: bool | None = None,
        step: int | None = None,
        arrive_ns: int | None = None,
    ) -> None:
        """Take the begin of an input."""
        ...

    def blocks(self, action: str, pool: int, units: Sequence[int], key: str | None = None) -> None:
        """Take units that change hands."""
        ...

    def decision(self, kind: str, key: str, tokens: int | None = None, computed: int | None = None) -> None:
        """Take a decision that schedules nothing."""
        ...

    def schedule_columns(
        self,
        keys: Sequence[str],
        tokens: list[int],
        computed: list[int],
        is_prefill: list[bool],
        after: list[int],
    ) -> None:
        """Take a whole step: requests, tokens, those computed before, whether a prefill, computed after."""
        ...

    def answer_columns(self, keys: Sequence[str], tokens: list[int], words: Mapping[str, str]) -> None:
        """Take what the model gave: requests, tokens, and why it ends of those among them that do."""
        ...

    def resources(self, pool: int, free: int, used: int) -> None:
        """Take the units of a pool that are free and used now."""
        ...

    def end(self) -> None:
        """Take the end of the input."""
        ...
