"""The columns that the edges need, read once and checked for references that point nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import InvalidTape
from ..plain import NULL, flags, flat, ids, optional, words
from ..tape import Tape

__all__ = ["Ops", "Queues", "Table"]


class Ops:
    """The columns of `ops` that order and accesses need, as lists; null ids are `NULL`."""

    def __init__(self, tape: Tape) -> None:
        table = flat(tape.table("ops"))
        self.rows: int = table.num_rows
        self.op = ids(table, "op")
        self.kind = words(table, "kind")
        self.queue = ids(table, "queue")
        self.issuer = ids(table, "issuer")
        self.parent = ids(table, "parent")
        self.sync = ids(table, "sync")
        self.value = optional(table, "value")
        self.sync_of = ids(table, "sync_of")
        self.wait_state = words(table, "wait_state")
        self.target_kind = words(table, "target_kind")
        self.target = ids(table, "target")
        self.access_set = ids(table, "access_set")
        self.arg = optional(table, "arg")
        self.list = ids(table, "list")
        self.origin = words(table, "origin")


class Queues:
    """The columns of `queues` and what is derived from the devices."""

    def __init__(self, tape: Tape) -> None:
        table = flat(tape.table("queues"))
        self.rows: int = table.num_rows
        self.device = ids(table, "device")
        self.name = words(table, "name")
        self.kind = words(table, "kind")
        self.process = ids(table, "process")
        self.host = [k == "host_thread" for k in self.kind]
        # A host thread runs its program in order whatever the column says.
        self.in_order = [o or h for o, h in zip(flags(table, "in_order"), self.host, strict=True)]


class Table:
    """Checks references while the columns are read; every failure is an `InvalidTape`."""

    def __init__(self, tape: Tape) -> None:
        self.where = tape.where

    def error(self, found: str, expected: str) -> InvalidTape:
        """Return the error."""
        return InvalidTape(
            found,
            expected=expected,
            where=self.where,
            next_step="`tapedelay info --validate` lists every fault",
        )

    def dense(self, values: Sequence[int], what: str) -> None:
        """Refuse ids that are not 0 .. rows-1."""
        if values != list(range(len(values))):
            raise self.error(f"{what} ids have gaps", f"0 .. {len(values) - 1}, in order")

    def below(self, values: Sequence[int], limit: int, what: str, *, nullable: bool = True) -> None:
        """Refuse references outside of 0 .. limit-1."""
        got = np.asarray(values, dtype=np.int64)
        bad = np.flatnonzero((got >= limit) | (got < (NULL if nullable else 0)))
        if bad.size:
            row = int(bad[0])
            raise self.error(f"row {row}: {what} {values[row]}", f"a number below {limit}")

    def rows(self, values: Sequence[int], keys: npt.NDArray[np.int64], what: str) -> list[int]:
        """Return the row of each op id; `NULL` stays."""
        got = np.asarray(values, dtype=np.int64)
        if not (got != NULL).any():
            return list(values)
        at = np.searchsorted(keys, got)
        at[at == len(keys)] = 0
        bad = np.flatnonzero((got != NULL) & (keys[at] != got if len(keys) else True))
        if bad.size:
            row = int(bad[0])
            raise self.error(f"row {row}: {what} {values[row]}", "the id of an op of this tape")
        at[got == NULL] = NULL
        found: list[int] = at.tolist()
        return found
