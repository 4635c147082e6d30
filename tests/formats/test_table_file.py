"""Columns that are decoded one by one, in one piece or batch by batch, hold what the whole table holds."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tapedelay.formats.errors import CorruptTape, InvalidTape
from tapedelay.formats.framing import scan_frames
from tapedelay.formats.load import load_tape
from tapedelay.formats.manifest import TableEntry
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import SCHEMAS
from tapedelay.formats.table_file import TableFile
from tapedelay.formats.tape import Manifest, Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.write import write_tape

ROWS = 150_001
"""More than are decoded as a whole; the last byte of a bitmap is not full."""


def ops_table(rows: int = ROWS, *, seed: int = 0) -> pa.Table:
    """Return ops with random values, some or all of them null, that no rule would accept."""
    rng = np.random.default_rng(seed)
    columns = []
    for number, f in enumerate(SCHEMAS["ops"]):
        share = (0, 0.3, 1)[number % 3] if f.nullable else 0
        null = rng.random(rows) < share
        if pa.types.is_dictionary(f.type):
            words = pa.array([f"w{i}" for i in range(5)])
            codes = pa.array(rng.integers(0, 5, rows), f.type.index_type, mask=null)
            columns.append(pa.DictionaryArray.from_arrays(codes, words))
        else:
            columns.append(pa.array(rng.integers(0, 1 << 20, rows), f.type, mask=null))
    return pa.Table.from_arrays(columns, schema=SCHEMAS["ops"])


def file_of(table: pa.Table, name: str = "ops", *, batch_rows: int) -> TableFile:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(table, max_chunksize=batch_rows)
    data = sink.getvalue()
    frames = scan_frames(memoryview(data), name)
    digest = hashlib.sha256(data).hexdigest()
    entry = TableEntry(name, frames.rows, len(data), frames.decoded_bytes, digest)
    return TableFile(memoryview(data), entry, where=name)


@pytest.mark.parametrize("batch_rows", [1 << 17, 65_537, 30_000, 500])
def test_columns_are_those_of_the_table(batch_rows: int) -> None:
    """Batches whose bitmaps begin within a byte, and very small ones, take another way to the same values."""
    table = ops_table()
    file = file_of(table, batch_rows=batch_rows)
    for names in (["op"], ["sync", "op", "kind"], ["wait_state"], ["label", "value"], table.schema.names):
        got = file.columns(names)
        assert got.equals(table.select(names))
        assert got.schema.equals(pa.schema([SCHEMAS["ops"].field(n) for n in names]))
        pieces = list(file.batches(names))
        assert pa.Table.from_batches(pieces).equals(table.select(names))
        got.validate(full=True)


def test_large_columns_are_in_one_piece() -> None:
    file = file_of(ops_table(), batch_rows=30_000)
    assert {c.num_chunks for c in file.columns(SCHEMAS["ops"].names).columns} == {1}


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_small_tables(rows: int) -> None:
    table = ops_table(rows)
    file = file_of(table, batch_rows=100)
    assert file.columns(["op", "sync"]).equals(table.select(["op", "sync"]))
    assert sum(b.num_rows for b in file.batches(["op"])) == rows


@pytest.mark.parametrize("rows", [100, ROWS])
@pytest.mark.parametrize("column", ["queue", "origin"])
def test_null_where_none_may_be(rows: int, column: str) -> None:
    table = ops_table(rows)
    at = table.schema.get_field_index(column)
    values = table.column(column).combine_chunks()
    null = pa.nulls(1, values.type)
    damaged = pa.concat_arrays([values[:-1], null])
    fields = [f.with_nullable(True) if f.name == column else f for f in table.schema]
    bad = table.set_column(at, fields[at], damaged)
    # the file says that there is none: its schema is the specification's, its values are not
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, SCHEMAS["ops"], options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        for batch in bad.to_batches():
            out.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=SCHEMAS["ops"]))
    data = sink.getvalue()
    frames = scan_frames(memoryview(data), "ops")
    file = TableFile(memoryview(data), TableEntry("ops", frames.rows, len(data), frames.decoded_bytes, ""))
    with pytest.raises(CorruptTape, match=f"column {column} holds a null"):
        file.columns([column])
    with pytest.raises(CorruptTape, match=f"column {column} holds a null"):
        list(file.batches([column]))
    assert file.columns(["op"]).num_rows == rows


def test_index_beyond_the_dictionary() -> None:
    table = ops_table()
    at = table.schema.get_field_index("kind")
    words = pa.array(["host"])
    codes = pa.array(np.where(np.arange(ROWS) == ROWS - 3, 7, 0), pa.int8())
    bad = table.set_column(
        at, table.schema.field(at), pa.DictionaryArray.from_arrays(codes, words, safe=False)
    )
    file = file_of(bad, batch_rows=1 << 17)
    for read in (lambda: file.columns(["kind"]), lambda: list(file.batches(["op", "kind"]))):
        with pytest.raises(CorruptTape, match="cannot be decoded"):
            read()


def test_tape_decodes_each_column_once(tmp_path: Path) -> None:
    """What `columns` gave, `table` holds; what nobody asked for is as in the file."""
    from tapedelay.formats.builder import TapeBuilder

    b = TapeBuilder()
    b.device(name="host", kind="host")
    small = b.build()
    tables = {n: small.table(n) for n in small.present}
    path = write_tape(Tape(Manifest(), {**tables, "ops": ops_table()}), tmp_path / "a.tape")
    tape, again = open_tape(path), open_tape(path)
    some = tape.columns("ops", ["sync", "op"])
    assert some.column_names == ["sync", "op"]
    assert tape.rows("ops") == ROWS
    whole = tape.table("ops")
    assert whole.equals(again.table("ops"))
    assert some.equals(whole.select(["sync", "op"]))
    assert tape.columns("ops", ["sync", "op"]).equals(some)
    assert tape.columns("edges", ["src"]).num_rows == tape.rows("edges") == 0
    assert list(tape.batches("edges", ["src"])) == []
    assert pa.Table.from_batches(tape.batches("ops", ["op"])).equals(whole.select(["op"]))


def timed(rows: int, threads: int, seed: int) -> Tape:
    """Return a valid tape whose host threads issue in turn, each on with its own clock."""
    rng = np.random.default_rng(seed)
    by = rng.integers(0, threads, rows)
    at = np.empty(rows, np.int64)
    for thread in range(threads):
        mine = np.flatnonzero(by == thread)
        at[mine] = np.cumsum(rng.integers(0, 50, len(mine)))
    null = rng.random(rows) < 0.1

    def same(word: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([word]))

    columns = {
        "op": pa.array(np.arange(rows)),
        "kind": same("mark"),
        "queue": pa.array(by, pa.int32()),
        "issuer": pa.array(by, pa.int32(), mask=rng.random(rows) < 0.1),
        "issue_ns": pa.array(at, mask=null),
        "origin": same("observed"),
    }
    from tapedelay.formats.builder import TapeBuilder

    b = TapeBuilder()
    host = b.device(name="host", kind="host")
    for thread in range(threads):
        b.queue(device=host, name=f"T{thread}", kind="host_thread")
    small = b.build()
    ops = pa.Table.from_arrays(
        [columns.get(f.name, pa.nulls(rows, f.type)) for f in SCHEMAS["ops"]], schema=SCHEMAS["ops"]
    )
    return Tape(Manifest(), {**{n: small.table(n) for n in small.present}, "ops": ops})


def early_rows(tape: Tape) -> list[int]:
    """Return the rows whose issue time is before that of the same issuer's previous row, one by one."""
    last: dict[int, int] = {}
    found = []
    issuers, times = (tape.table("ops").column(c).to_pylist() for c in ("issuer", "issue_ns"))
    for row, (issuer, at) in enumerate(zip(issuers, times, strict=True)):
        if issuer is None or at is None:
            continue
        if at < last.get(issuer, -1):
            found.append(row)
        last[issuer] = at
    return found


@pytest.mark.parametrize("threads", [1, 3, 40])
@pytest.mark.parametrize("rows", [50, 40_000, 140_000])
def test_issue_times_that_go_back(tmp_path: Path, threads: int, rows: int) -> None:
    """Found wherever they stand, also across the pieces in which the times are looked at."""
    tape = timed(rows, threads, seed=rows)
    assert validate(tape) == []
    rng = np.random.default_rng(threads)
    ops = tape.table("ops")
    at = ops.column("issue_ns").to_pylist()
    edges = [i for i in (1 << 14, 1 << 15, 1 << 17) if i < rows]
    for row in [*rng.integers(0, rows, 10).tolist(), *edges, *(e - 1 for e in edges)]:
        at[row] = int(rng.integers(0, 1000))
    position = ops.schema.get_field_index("issue_ns")
    broken = ops.set_column(position, ops.schema.field(position), pa.array(at, pa.int64()))
    changed = Tape(Manifest(), {**{n: tape.table(n) for n in tape.present}, "ops": broken})
    wanted = early_rows(changed)
    assert wanted
    for made in (changed, open_tape(write_tape(changed, tmp_path / "a.tape"))):
        found = validate(made)
        assert {v.code for v in found} == {"time-order"}
        assert [v.row for v in found if v.row is not None] == wanted[:100]
    with pytest.raises(InvalidTape, match="time-order"):
        load_tape(tmp_path / "a.tape")


def test_columns_that_are_surveyed_are_validated(tmp_path: Path) -> None:
    """A negative duration in the last row of a large tape."""
    tape = timed(ROWS, 2, seed=1)
    ops = tape.table("ops")
    for name in ("duration_ns", "bytes", "step"):
        values = np.zeros(ROWS, np.int64)
        values[-1] = -5
        at = ops.schema.get_field_index(name)
        bad = ops.set_column(at, ops.schema.field(at), pa.array(values))
        made = Tape(Manifest(), {**{n: tape.table(n) for n in tape.present}, "ops": bad})
        (violation,) = validate(open_tape(write_tape(made, tmp_path / f"{name}.tape")))
        assert (violation.code, violation.row) == ("negative", ROWS - 1)
        assert name in violation.message
