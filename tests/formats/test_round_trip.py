"""What is written reads back the same, from a directory and from a zip."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapedelay.formats import write
from tapedelay.formats.builder import TapeBuilder, table_from_rows
from tapedelay.formats.errors import InfrastructureError, UsageError
from tapedelay.formats.manifest import MANIFEST_NAME
from tapedelay.formats.pack import pack_tape
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import REQUIRED, SCHEMAS, TABLES, Column
from tapedelay.formats.tape import Manifest, Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.write import TapeWriter, write_tape


def same(a: Tape, b: Tape) -> None:
    assert a.present == b.present
    for name in SCHEMAS:
        assert a.table(name).to_pylist() == b.table(name).to_pylist(), name
        assert b.table(name).schema.equals(SCHEMAS[name], check_metadata=True)
    assert dataclasses.replace(b.manifest, created_by="") == a.manifest


@pytest.mark.parametrize("name", ["a.tape", "a.tape.zip"])
def test_all_tables(rich_tape: Tape, tmp_path: Path, name: str) -> None:
    assert set(rich_tape.present) == set(SCHEMAS)
    path = write_tape(rich_tape, tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name], "nothing else is left"
    got = open_tape(path)
    same(rich_tape, got)
    assert not got.read_only
    assert got.remarks == ()
    assert validate(got) == []


@pytest.mark.parametrize("name", ["a.tape", "a.tape.zip"])
def test_empty(tmp_path: Path, name: str) -> None:
    empty = TapeBuilder().build()
    got = open_tape(write_tape(empty, tmp_path / name))
    same(empty, got)
    assert got.present == REQUIRED
    assert validate(got) == []


def values(c: Column) -> st.SearchStrategy[Any]:
    plain: st.SearchStrategy[Any]
    if c.words:
        plain = st.sampled_from(c.words)
    elif pa.types.is_dictionary(c.type) or pa.types.is_string(c.type):
        plain = st.text(st.characters(codec="utf-8"), max_size=8)
    elif pa.types.is_boolean(c.type):
        plain = st.booleans()
    elif pa.types.is_floating(c.type):
        plain = st.floats(allow_nan=False)
    elif pa.types.is_binary(c.type):
        plain = st.binary(max_size=8)
    elif pa.types.is_list(c.type):
        item = (
            st.text("ab", max_size=3) if pa.types.is_string(c.type.value_type) else st.integers(-5, 1 << 30)
        )
        plain = st.lists(item, max_size=4)
    else:
        top = (1 << (c.type.bit_width - 1)) - 1
        plain = st.integers(-top - 1, top)
    return st.none() | plain if c.nullable else plain


@st.composite
def tapes(draw: st.DrawFn) -> Tape:
    tables = {}
    for name, spec in TABLES.items():
        row = st.fixed_dictionaries({c.name: values(c) for c in spec.columns})
        rows = draw(st.lists(row, max_size=3))
        if rows or name in REQUIRED:
            tables[name] = table_from_rows(name, rows)
    notes = draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=2))
    return Tape(Manifest(notes=tuple(notes), lost=draw(st.integers(0, 1 << 40))), tables)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(tape=tapes(), as_zip=st.booleans())
def test_any_values(tmp_path_factory: pytest.TempPathFactory, tape: Tape, as_zip: bool) -> None:
    where = tmp_path_factory.mktemp("any") / ("a.tape.zip" if as_zip else "a.tape")
    same(tape, open_tape(write_tape(tape, where)))


def test_writes_the_same_bytes(rich_tape: Tape, tmp_path: Path) -> None:
    a, b = write_tape(rich_tape, tmp_path / "a.tape"), write_tape(rich_tape, tmp_path / "b.tape")
    assert sorted(os.listdir(a)) == sorted(os.listdir(b))
    for n in os.listdir(a):
        assert (a / n).read_bytes() == (b / n).read_bytes()
    packed = [pack_tape(p, tmp_path / f"{i}.zip").read_bytes() for i, p in enumerate((a, b))]
    assert packed[0] == packed[1] == write_tape(rich_tape, tmp_path / "c.tape.zip").read_bytes()
    # packing what is packed changes nothing either
    assert pack_tape(tmp_path / "0.zip", tmp_path / "d.zip").read_bytes() == packed[0]


def test_streamed_in_pieces(rich_tape: Tape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches with dictionaries of their own, more than memory may hold, in several record batches."""
    monkeypatch.setattr(write, "_PENDING_BYTES_MAX", 500)
    monkeypatch.setattr(write, "BATCH_ROWS", 7)
    whole: list[dict[str, Any]] = []
    with TapeWriter(tmp_path / "a.tape") as w:
        for i in range(40):
            piece = rich_tape.table("ops").to_pylist()[i % 5 : i % 5 + 3]
            piece = [{**r, "op": 3 * i + j, "name": f"n{i % 9}"} for j, r in enumerate(piece)]
            whole += piece
            data = table_from_rows("ops", piece)
            w.write("ops", data.to_batches()[0] if i % 2 else data)
        w.close(Manifest())
    got = open_tape(tmp_path / "a.tape")
    assert got.table("ops").to_pylist() == whole
    assert got.table("ops").column("name").num_chunks == -(-120 // 7)
    assert sorted(os.listdir(tmp_path / "a.tape")) == sorted(
        [MANIFEST_NAME, *(f"{n}.arrow" for n in REQUIRED)]
    )


def test_columns_in_any_order_and_left_out(rich_tape: Tape, tmp_path: Path) -> None:
    ops = rich_tape.table("ops").select(["origin", "queue", "kind", "op"])
    with TapeWriter(tmp_path / "a.tape") as w:
        w.write("ops", ops)
        w.close(Manifest())
    got = open_tape(tmp_path / "a.tape").table("ops")
    assert got.select(ops.schema.names).to_pylist() == ops.to_pylist()
    assert got.column("sync").null_count == ops.num_rows


@pytest.mark.parametrize(
    ("table", "data"),
    [
        ("nope", pa.table({"a": [1]})),
        ("ops", pa.table({"a": [1]})),
        ("lists", pa.table({"list": [1]})),
        ("lists", pa.table({"list": [1], "unit": ["x"]})),
        ("lists", pa.table({"list": [1 << 40], "unit": [1]})),
        ("lists", pa.table({"list": [1], "unit": pa.array([None], pa.int64())})),
    ],
)
def test_refuses_what_does_not_fit(tmp_path: Path, table: str, data: pa.Table) -> None:
    with pytest.raises(UsageError), TapeWriter(tmp_path / "a.tape") as w:
        w.write(table, data)
    assert os.listdir(tmp_path) == []


def test_nothing_appears_before_the_end(rich_tape: Tape, tmp_path: Path) -> None:
    for name in ("a.tape", "a.tape.zip"):
        with TapeWriter(tmp_path / name) as w:
            w.write("ops", rich_tape.table("ops"))
            assert not (tmp_path / name).exists()
        with pytest.raises(UsageError):
            w.close(Manifest())
        with pytest.raises(UsageError):
            w.write("ops", rich_tape.table("ops"))
    assert os.listdir(tmp_path) == []


def test_replaces_a_tape_but_nothing_else(rich_tape: Tape, tmp_path: Path) -> None:
    for name in ("a.tape", "a.tape.zip"):
        write_tape(TapeBuilder().build(), tmp_path / name)
        same(rich_tape, open_tape(write_tape(rich_tape, tmp_path / name)))
    mine = tmp_path / "precious"
    mine.mkdir()
    (mine / "file").write_text("x")
    (tmp_path / "note.txt").write_text("x")
    for target in (mine, tmp_path / "note.txt"):
        with pytest.raises(UsageError):
            write_tape(rich_tape, target)
    assert (mine / "file").read_text() == "x"
    (tmp_path / "dir.zip").mkdir()
    with pytest.raises(UsageError):
        write_tape(rich_tape, tmp_path / "dir.zip")


def test_no_room(rich_tape: Tape, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError) as e:
        write_tape(rich_tape, tmp_path / "no" / "such" / "a.tape")
    assert e.value.next_step
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError):
        write_tape(rich_tape, tmp_path / "file" / "a.tape")


def test_doctest_of_the_writer() -> None:
    import doctest

    assert doctest.testmod(write).failed == 0
