"""Any Arrow reader opens the files without this package."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from tapedelay.formats.pack import pack_tape
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import SCHEMAS, TABLES


def members(written: Path, tmp_path: Path, packed: bool) -> dict[str, bytes]:
    if not packed:
        return {p.stem: p.read_bytes() for p in written.glob("*.arrow")}
    with zipfile.ZipFile(pack_tape(written, tmp_path / "a.zip")) as z:
        return {n.removesuffix(".arrow"): z.read(n) for n in z.namelist() if n.endswith(".arrow")}


@pytest.mark.parametrize("packed", [False, True])
def test_pyarrow_polars_duckdb(written: Path, tmp_path: Path, packed: bool) -> None:
    files = members(written, tmp_path, packed)
    assert set(files) == set(SCHEMAS)
    for name, data in files.items():
        ours = open_tape(written).table(name)
        plain = pa.ipc.open_file(data).read_all()
        assert plain.to_pylist() == ours.to_pylist()
        for c in TABLES[name].columns:
            metadata = plain.schema.field(c.name).metadata
            assert metadata[b"doc"].decode() == c.doc
            assert metadata.get(b"unit", b"").decode() == c.unit
        frame = pl.read_ipc(io.BytesIO(data))
        assert frame.height == ours.num_rows
        for c in TABLES[name].columns:
            assert frame[c.name].to_list() == ours.column(c.name).to_pylist(), f"{name}.{c.name}"
        rows = duckdb.sql("SELECT * FROM plain").fetchall()
        assert [dict(zip(ours.schema.names, r, strict=True)) for r in rows] == ours.to_pylist()


def test_duckdb_joins(written: Path) -> None:
    ops = pa.ipc.open_file(written / "ops.arrow").read_all()
    queues = pa.ipc.open_file(written / "queues.arrow").read_all()
    sql = "SELECT q.name, count(*) FROM ops JOIN queues q USING (queue) WHERE ops.kind = 'wait' GROUP BY 1"
    assert (ops.num_rows, queues.num_rows) == (17, 3)
    assert duckdb.sql(sql).fetchall() == [("TAPE0 copy", 2)]


def test_without_the_package(written: Path) -> None:
    """In an interpreter that cannot see the package."""
    code = (
        "import sys, pyarrow as pa, polars as pl\n"
        "n = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all().num_rows\n"
        "m = pl.scan_ipc(sys.argv[1]).filter(pl.col('kind') == 'wait').collect().height\n"
        "print(n, m, 'tapedelay' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(written / "ops.arrow")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["17", "2", "False"]
