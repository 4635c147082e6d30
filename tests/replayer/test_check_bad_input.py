"""Tapes whose numbers make no sense: an error of the tree or a report, never another exception."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.schema import TABLES
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape

from .random_tapes import BYTES, random_tape

_TABLES = ("devices", "queues", "buffers", "accesses", "ops", "edges", "lists")
_VALUES = (0, 1, 2, 3, 5, 40, -1, -2, 1 << 20, (1 << 31) - 1, -(1 << 31), None)


def broken(rng: random.Random) -> Tape:
    """Return a random tape with a few integers replaced."""
    tape = random_tape(rng.randbytes(BYTES))
    tables = {n: tape.table(n) for n in tape.present}
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([n for n in _TABLES if n in tables and tables[n].num_rows])
        columns = [c for c in TABLES[name].columns if pa.types.is_integer(c.type)]
        column = rng.choice(columns)
        value = rng.choice(_VALUES)
        if value is None and not column.nullable:
            value = -7
        table = tables[name]
        values = table[column.name].to_pylist()
        values[rng.randrange(len(values))] = value
        at = table.schema.get_field_index(column.name)
        tables[name] = table.set_column(at, table.schema.field(at), pa.array(values, column.type))
    return Tape(tape.manifest, tables)


def test_only_errors_of_the_tree_come_out() -> None:
    seen: Counter[str] = Counter()
    for seed in range(600):
        error = None
        try:
            report = check_tape(broken(random.Random(seed)))
            report.as_dict()
            report.verdict_lines()
        except InvalidTape as e:
            error = e
        seen["reports" if error is None else "errors"] += 1
        assert error is None or (error.where and error.expected)
    assert min(seen["reports"], seen["errors"]) > 100, seen
