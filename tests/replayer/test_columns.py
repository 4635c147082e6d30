"""The native columns, edges and reference order against the readable ones of `formats.edges`."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.edges import resolve
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.litmus import read
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.columns import core_tape

from .random_tapes import BYTES, random_tape

HERE = Path(__file__).parent
CORPUS = sorted(f for d in ("ops", "own") for f in (HERE.parent / "corpus" / d).glob("*.litmus"))
TRACES = sorted((HERE.parent.parent / "traces").glob("*.tape.zip"))


def same(tape: Tape) -> None:
    """Compare edges, order and what is stuck."""
    contract = refused = None
    try:
        contract = resolve(tape)
    except InvalidTape as e:
        refused = e.as_dict()
    if contract is None:
        with pytest.raises(InvalidTape) as got:
            core_tape(tape)
        assert got.value.as_dict() == refused
        return
    core = core_tape(tape)
    assert core.units().tolist() == contract.unit
    source, target, rule = core.edges()
    # The order within a target is the order in which the rules add them.
    by = contract.target.argsort(kind="stable")
    assert source.tolist() == contract.source[by].tolist()
    assert target.tolist() == contract.target[by].tolist()
    assert rule.tolist() == contract.rule[by].tolist()
    assert core.any_of() == {u: list(records) for u, records in contract.any_of.items()}
    for unit, parents in contract.parents.items():
        assert tuple(core.parents(unit)) == parents
    assert core.unresolved() == sorted(contract.unresolved)
    assert core.never() == list(contract.never)
    order = contract.order()
    assert core.schedule().tolist() == order.schedule
    stuck, never, cycles = core.stuck()
    assert tuple(stuck) == order.stuck.units
    assert tuple(never) == order.stuck.never
    assert tuple(map(tuple, cycles)) == order.stuck.cycles


@pytest.mark.parametrize("file", CORPUS, ids=[f.stem for f in CORPUS])
def test_corpus(file: Path) -> None:
    litmus = read(file)
    for variant in ("buggy", "fixed") if litmus.has_variants else ("buggy",):
        same(litmus.tape(variant))


def test_random_tapes() -> None:
    for seed in range(300):
        same(random_tape(random.Random(seed).randbytes(BYTES)))


@pytest.mark.parametrize("file", TRACES, ids=[f.stem for f in TRACES])
def test_recordings(file: Path) -> None:
    same(load_tape(file))


def in_pieces(tape: Tape) -> Tape:
    """Return a tape whose tables have several chunks with dictionaries of their own."""
    tables = {}
    for name in tape.present:
        whole = tape.table(name)
        if whole.num_rows > 1:
            half = whole.num_rows // 2
            first, second = whole.slice(0, half), whole.slice(half)
            plain = [
                pa.table({c: p.column(c).cast(t) for c, t in zip(p.column_names, types, strict=True)})
                for types in [
                    [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in whole.schema]
                ]
                for p in (first, second)
            ]
            encoded = [
                pa.Table.from_arrays(
                    [
                        p.column(f.name).dictionary_encode().cast(f.type)
                        if pa.types.is_dictionary(f.type)
                        else p.column(f.name)
                        for f in whole.schema
                    ],
                    schema=whole.schema,
                )
                for p in plain
            ]
            whole = pa.concat_tables(encoded)
        tables[name] = whole
    return Tape(tape.manifest, tables, name=tape.name)


def test_columns_in_pieces() -> None:
    for seed in range(100):
        tape = random_tape(random.Random(seed).randbytes(BYTES))
        try:
            core = core_tape(tape)
        except InvalidTape:
            continue
        pieces = in_pieces(tape)
        assert pieces.table("ops").column("kind").num_chunks > 1
        other = core_tape(pieces)
        assert other.schedule().tolist() == core.schedule().tolist()
        for column in range(6):
            assert other.accesses()[column].tolist() == core.accesses()[column].tolist()


def test_a_slice_of_a_table_is_read_from_its_first_row() -> None:
    tape = random_tape(random.Random(3).randbytes(BYTES))
    tables = {n: tape.table(n) for n in tape.present}
    doubled = pa.concat_tables([tables["ops"], tables["ops"]]).combine_chunks()
    tables["ops"] = doubled.slice(tables["ops"].num_rows)
    assert core_tape(Tape(tape.manifest, tables)).schedule().tolist() == core_tape(tape).schedule().tolist()


def test_columns_outlive_the_tape() -> None:
    tape = random_tape(random.Random(5).randbytes(BYTES))
    order = core_tape(tape).schedule().tolist()
    core = core_tape(tape)
    del tape
    assert core.schedule().tolist() == order


def test_no_rows() -> None:
    core = core_tape(TapeBuilder().build())
    assert core.rows == 0
    assert core.schedule().tolist() == []
    assert core.stuck() == ([], [], [])
    assert [len(a) for a in core.accesses()] == [1, 0, 0, 0, 0, 0]
