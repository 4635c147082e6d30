"""One value of one row of a recorded tape is another one: all of them, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tapedelay.formats.errors import TapedelayError
from tapedelay.formats.schema import SCHEMAS, TABLES
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.replayer.rerun.from_tape import Recording, recording_of

__all__ = ["COMPARED", "Changed", "beginning", "changes", "is_input", "not_compared", "recorded_as"]

COMPARED = ("inputs", "answers", "decisions", "blocks", "resources")
"""The tables of what a scheduler was given and did."""
_DECIDED = ("preempt", "resume", "finish", "reject")


@dataclass(frozen=True)
class Changed:
    """A tape in which one value is another one.

    Attributes
    ----------
    table, column, row : str, str, int
        Which.
    kind : str
        Of an input its kind, of a decision what it is, of anything else the kind of its input.
    was, now : object
        The values.
    tape : Tape
        With the new one.
    """

    table: str
    column: str
    row: int
    kind: str
    was: Any
    now: Any
    tape: Tape

    def text(self) -> str:
        """Return it in words."""
        return f"{self.table}[{self.row}].{self.column} of {self.kind}: {self.was} -> {self.now}"


def beginning(tape: Tape, scheduler: int, count: int) -> Tape:
    """Return a tape with the first inputs of one scheduler and what they caused, of all others nothing."""
    rows = [r for r in tape.table("inputs").to_pylist() if r["scheduler"] == scheduler][:count]
    ids = {r["input"]: n for n, r in enumerate(rows)}
    tables = {name: tape.table(name) for name in tape.present}
    for name in COMPARED:
        kept = [r for r in tape.table(name).to_pylist() if r["input"] in ids]
        kept = [{**r, "input": ids[r["input"]]} for r in kept]
        tables[name] = pa.Table.from_pylist(kept, SCHEMAS[name])
    return Tape(tape.manifest, tables)


def changes(tape: Tape, rows_max: int, values_max: int = 8) -> Iterator[Changed]:
    """Yield changes of every column: of values in at most so many rows, and of nulls in as many.

    Parameters
    ----------
    tape : Tape
        With inputs of one request scheduler.
    rows_max : int
        Rows of each column and each kind, spread over the table.
    values_max : int
        Other values of each.
    """
    kinds = tape.table("inputs").column("kind").to_pylist()
    last, behind = _places(tape)
    for name in COMPARED:
        rows = tape.table(name).to_pylist()
        for column in TABLES[name].columns:
            groups: dict[tuple[str, bool], list[int]] = {}
            for n, row in enumerate(rows):
                kind = row["kind"] if "kind" in row else kinds[row["input"]]
                groups.setdefault((kind, row[column.name] is None), []).append(n)
            for (kind, _), numbers in groups.items():
                for n in numbers[:: -(-len(numbers) // rows_max)]:
                    was = rows[n][column.name]
                    if column.name == "seq":  # gaps mean nothing: it goes behind all others
                        at = rows[n]["input"]
                        others = [behind[at] + 1] * (was < last.get(at, -1))
                    else:
                        field = SCHEMAS[name].field(column.name)
                        others = list(_others(was, column.words, column.nullable, field))
                    for now in others[:values_max]:
                        changed = [{**row, column.name: now} if m == n else row for m, row in enumerate(rows)]
                        yield Changed(name, column.name, n, kind, was, now, _with(tape, name, changed))


def _places(tape: Tape) -> tuple[dict[int, int], dict[int, int]]:
    """Return of each input the last place of an event whose order counts, and of any event."""
    last: dict[int, int] = {}
    behind: dict[int, int] = {}
    for name in ("answers", "decisions", "blocks"):
        for row in tape.table(name).to_pylist():
            at, seq = row["input"], row["seq"]
            behind[at] = max(behind.get(at, 0), seq)
            if name == "blocks" or row.get("kind") in _DECIDED:
                last[at] = max(last.get(at, 0), seq)
    return last, behind


def _others(was: Any, words: tuple[str, ...] | None, nullable: bool, field: pa.Field) -> Iterator[Any]:
    if was is None:
        yield _something(words, field)
        return
    if words:
        yield from (word for word in words if word != was)
    elif isinstance(was, bool):
        yield not was
    elif isinstance(was, int):
        yield from (was + 1, was - 1)
    elif isinstance(was, list):
        yield from (was[::-1], was[1:])
    else:
        yield "other"
    if nullable:
        yield None


def _something(words: tuple[str, ...] | None, field: pa.Field) -> Any:
    if words:
        return words[0]
    if pa.types.is_boolean(field.type):
        return True
    if pa.types.is_list(field.type):
        return [0]
    return 0 if pa.types.is_integer(field.type) else "other"


def _with(tape: Tape, name: str, rows: list[dict[str, Any]]) -> Tape:
    tables = {n: tape.table(n) for n in tape.present}
    return Tape(tape.manifest, {**tables, name: pa.Table.from_pylist(rows, SCHEMAS[name])})


def recorded_as(changed: Changed, scheduler: int | None = None) -> Recording | None:
    """Return the recording of a changed tape; None where it is refused."""
    if validate(changed.tape):
        return None
    try:
        return recording_of(changed.tape, scheduler=scheduler)
    except TapedelayError:
        return None


def is_input(changed: Changed) -> bool:
    """Return whether the value reached the scheduler from outside.

    With another one it is given something else in the rerun: that is seen where it does something else then.
    """
    return changed.table == "inputs" or (changed.table, changed.column) in _GIVEN


_GIVEN = {("answers", "tokens"), ("answers", "word")}


def not_compared(changed: Changed, first: int) -> str:
    """Return why a value of what a scheduler did is not compared, "" where it is.

    Parameters
    ----------
    changed : Changed
    first : int
        The first input after which units were counted.
    """
    where = changed.table, changed.column
    if where in (("inputs", "at_ns"), ("inputs", "op")):
        return "a time of the recorded run, and what it was tied to"
    placed = changed.table == "blocks" or changed.kind in _DECIDED
    if changed.column == "seq" and not placed:
        return "a schedule stands behind all else that its step did, answers before: whatever their place"
    if changed.table == "resources" and changed.column in ("input", "pool"):
        at = changed.tape.table("resources").column("input")[changed.row].as_py()
        if at <= first + 1:
            return "counts hold until the next row, and the first ones are the sizes of the pools"
    return ""
