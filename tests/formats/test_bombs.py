"""Tapes that claim or decode to far more than they are."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tapedelay.formats.errors import (
    CorruptTape,
    InputError,
)
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import SCHEMAS
from tapedelay.formats.tape import Manifest
from tapedelay.formats.write import TapeWriter

from .damage import ipc, read_all, replace_table


def test_claims_are_summed_before_decoding(written: Path) -> None:
    """A zstd buffer of zeros that would fill gigabytes is refused by its own length prefix."""
    n = 100_000_000
    zeros = pa.array(np.zeros(n, np.int32))
    bomb = ipc(pa.table({"list": zeros, "unit": zeros.cast(pa.int64())}, schema=SCHEMAS["lists"]))
    assert len(bomb) < 1_000_000
    replace_table(written, "lists", bomb)
    del zeros
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written)
    # a modest claim does not help: it is compared with the file's own words
    replace_table(written, "lists", bomb, rows=1000, decoded_bytes=12_000)
    with pytest.raises(CorruptTape, match="as the manifest says"):
        open_tape(written).table("lists")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def _zeros(name: str, n: int) -> pa.Table:
    schema = SCHEMAS[name]
    return pa.table(
        [
            pa.array(np.zeros(n, np.int64)).cast(f.type)
            if pa.types.is_integer(f.type)
            else pa.array(["x"]).dictionary_encode().take(pa.array(np.zeros(n, np.int32))).cast(f.type)
            for f in schema
        ],
        schema=schema,
    )


def test_zeros_are_refused_by_rows(written: Path) -> None:
    """Ten million rows of zeros fit into a few kilobytes; what works per row would take minutes."""
    bomb = ipc(_zeros("edges", 10_000_000))
    assert len(bomb) < 20_000
    replace_table(written, "edges", bomb)
    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written)
    replace_table(written, "edges", ipc(_zeros("edges", 100_000)))
    assert open_tape(written).table("edges").num_rows == 100_000


def test_slack_is_shared(written: Path) -> None:
    """Many tables, each just below its own limit."""
    from tapedelay.formats.read import Limits

    before = open_tape(written)
    for name in ("edges", "lists"):
        replace_table(written, name, ipc(_zeros(name, 100_000)))
    open_tape(written)
    one = Limits(ratio=1, slack_bytes=2 << 20)
    open_tape(written, limits=one)
    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written, limits=Limits(ratio=1, slack_bytes=2 << 20, slack_total_bytes=2 << 20))
    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written, limits=Limits(ratio=1, slack_bytes=1 << 20))
    assert before.table("ops").num_rows


def test_the_densest_tape_is_read(tmp_path: Path) -> None:
    """A million ops that differ in their number only."""
    n = 1_000_000
    ops = pa.table(
        [
            pa.array(np.arange(n))
            if f.name == "op"
            else pa.nulls(n, f.type)
            if f.nullable
            else pa.array(["observed"]).dictionary_encode().take(pa.array(np.zeros(n, np.int32))).cast(f.type)
            if pa.types.is_dictionary(f.type)
            else pa.array(np.zeros(n, np.int64)).cast(f.type)
            for f in SCHEMAS["ops"]
        ],
        schema=SCHEMAS["ops"],
    )
    with TapeWriter(tmp_path / "dense.tape") as w:
        w.write("ops", ops)
        w.close(Manifest())
    assert open_tape(tmp_path / "dense.tape").table("ops").num_rows == n


def test_prefix_that_lies(written: Path) -> None:
    """The length before a compressed buffer says less or more than comes out."""
    lists = pa.table({"list": np.zeros(5000, np.int32), "unit": np.arange(5000)}, schema=SCHEMAS["lists"])
    data = ipc(lists)
    at = data.index((20_000).to_bytes(8, "little"))
    for lie in (8, 19_992, 20_008, 200_000, 1 << 33, (1 << 62), (1 << 64) - 2, (1 << 64) - 1):
        replace_table(written, "lists", data[:at] + lie.to_bytes(8, "little") + data[at + 8 :])
        with pytest.raises(InputError):
            read_all(written)
    replace_table(written, "lists", data)
    read_all(written)


def test_limits_can_be_raised(written: Path) -> None:
    from tapedelay.formats.read import Limits

    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written, limits=Limits(rows=3))
    with pytest.raises(CorruptTape, match="claims"):
        open_tape(written, limits=Limits(decoded_bytes=100))
    open_tape(written, limits=Limits(rows=100))
