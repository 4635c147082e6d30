"""The table `requests` while it is collected: a request is told of in several frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .rows import Rows

__all__ = ["Requests"]

_COLUMNS = ("max_tokens", "priority", "flags", "reserve_tokens", "arrive_ns")


class Requests:
    """Every request that some scheduler named, by its number in the tape: a list for each column."""

    def __init__(self) -> None:
        self._schedulers: list[int] = []
        self._prompts: list[int | None] = []
        self._ranks: list[int | None] = []
        self._told: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._flags: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._schedulers)

    def add(self, scheduler: int) -> int:
        """Return the number of a request that is seen for the first time."""
        for column in (self._prompts, self._ranks, *self._told.values()):
            column.append(None)
        self._schedulers.append(scheduler)
        return len(self) - 1

    def told(self, request: int) -> bool:
        """Return whether its arrival was told."""
        return self._prompts[request] is not None

    def tell(self, request: int, prompt_tokens: int, *values: Any) -> None:
        """Say with what it arrived: the values of `_COLUMNS`."""
        self._prompts[request] = prompt_tokens
        for (name, column), value in zip(self._told.items(), values, strict=True):
            column[request] = self._once(value) if name == "flags" and value is not None else value

    def rank(self, request: int, rank: int) -> None:
        """Say the place of its id among all of its scheduler."""
        self._ranks[request] = rank

    def table(self) -> pa.Table:
        """Return the table."""
        rows = Rows("requests")
        told = self._told
        for n, values in enumerate(
            zip(
                self._schedulers, self._prompts, told["max_tokens"], told["priority"], told["flags"],
                told["reserve_tokens"], self._ranks, told["arrive_ns"], strict=True,
            )
        ):  # fmt: skip
            scheduler, prompt, *others = values
            rows.add(n, scheduler, prompt or 0, *others)
        return rows.table()

    def _once(self, flags: list[str]) -> tuple[str, ...]:
        """Return flags that many requests have, once for all."""
        key = tuple(flags)
        return self._flags.setdefault(key, key)
