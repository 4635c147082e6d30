"""Whatever a file holds: an error of the tree, never a crash, a hang or a full memory."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.errors import (
    CorruptTape,
    InputError,
    MissingInput,
    NotATape,
    UsageError,
    VersionError,
)
from tapedelay.formats.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME
from tapedelay.formats.pack import pack_tape
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import REQUIRED, SCHEMAS
from tapedelay.formats.write import write_tape

from .damage import Json, change_manifest, ipc, read_all, replace_table

# --- foreign, empty, missing ---


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("empty.tape.zip", b"", "empty"),
        ("random.tape", random.Random(1).randbytes(5000), "another kind"),
        ("picture.tape", b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
        ("db.tape", b"SQLite format 3\0" + bytes(100), "SQLite"),
        ("text.tape", b"hello\n", "another kind"),
        ("trace.json", b'{"traceEvents": []}', "JSON"),
        ("half.zip", b"PK\x03\x04", "damaged zip"),
        ("a.rec", b"TDSPOOL0" + bytes(56), "spool"),
        ("a.frames", b"TDREQSTS" + bytes(32), "spool"),
    ],
)
def test_foreign_files(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NotATape, match=word) as e:
        open_tape(tmp_path / name)
    assert e.value.expected
    assert e.value.where == str(tmp_path / name)
    assert e.value.next_step


def test_missing(tmp_path: Path) -> None:
    for path in (
        tmp_path / "no.tape",
        tmp_path / "no" / "no.tape.zip",
        tmp_path / "a\0b",
        tmp_path / ("x" * 5000),
    ):
        with pytest.raises(MissingInput):
            open_tape(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotATape):
        open_tape(tmp_path / "pipe")


def test_directories_of_other_things(tmp_path: Path) -> None:
    with pytest.raises(NotATape):
        open_tape(tmp_path)
    for name in ("requests-1-0.frames", "1-2.rec"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(NotATape, match="spool"):
            open_tape(tmp_path)
    (tmp_path / MANIFEST_NAME).write_text('{"name": "an extension"}')
    with pytest.raises(NotATape, match="something else"):
        open_tape(tmp_path)
    for junk in (
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 10_000,
        b" " * (MANIFEST_BYTES_MAX + 1),
    ):
        (tmp_path / MANIFEST_NAME).write_bytes(junk)
        with pytest.raises(InputError):
            open_tape(tmp_path)


# --- versions ---


def test_future_read_version(written: Path) -> None:
    change_manifest(written, lambda m: m.update(format_read=7, format_write=9))
    with pytest.raises(VersionError) as e:
        open_tape(written)
    assert "7" in e.value.found
    assert "up to format 0" in e.value.found
    # also when a later format counts its checksum differently
    obj = json.loads((written / MANIFEST_NAME).read_text())
    (written / MANIFEST_NAME).write_text(json.dumps({**obj, "crc32": "sha3", "new": 1}))
    with pytest.raises(VersionError):
        open_tape(written)


def test_future_write_version_opens_read_only(written: Path, tmp_path: Path) -> None:
    before = open_tape(written).table("ops").to_pylist()
    ops = open_tape(written).table("ops")
    more = ops.append_column("colour", pa.array(["red"] * ops.num_rows)).select(
        ["colour", *reversed(ops.schema.names)]
    )
    replace_table(written, "ops", ipc(more))
    # an unknown column, but the writer claims to be of this version
    with pytest.raises(CorruptTape):
        open_tape(written).table("ops")

    def later(m: Json) -> None:
        m["format_write"] = 1
        m["hue"] = {"x": 1}
        m["processes"][0]["host"] = 1
        m["tables"].append({**m["tables"][0], "name": "colours", "note": 1})

    shutil.copy(written / "devices.arrow", written / "colours.arrow")
    change_manifest(written, later)
    tape = open_tape(written)
    assert tape.read_only
    assert "format 1" in tape.remarks[0]
    assert "format 0" in tape.remarks[0]
    assert tape.table("ops").to_pylist() == before
    assert "colours" not in tape.present
    with pytest.raises(UsageError):
        write_tape(tape, tmp_path / "again.tape")
    packed = open_tape(pack_tape(written))
    assert packed.read_only
    assert packed.table("ops").to_pylist() == before
    # known columns stay exactly as they are
    bad = ops.set_column(0, pa.field("op", pa.int32(), nullable=False), ops.column("op").cast(pa.int32()))
    replace_table(written, "ops", ipc(bad))
    with pytest.raises(CorruptTape, match="column op"):
        open_tape(written).table("ops")


# --- manifests that lie ---


def test_missing_tables(written: Path) -> None:
    for name in REQUIRED:
        copy = written.with_name(f"no-{name}.tape")
        shutil.copytree(written, copy)
        (copy / f"{name}.arrow").unlink()
        with pytest.raises(CorruptTape, match=f"{name}.arrow is missing"):
            open_tape(copy)
        change_manifest(copy, lambda m, n=name: m.update(tables=[t for t in m["tables"] if t["name"] != n]))  # type: ignore[misc]
        with pytest.raises(CorruptTape, match=f"no table {name}"):
            open_tape(copy)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["tables"].append({**m["tables"][0], "name": "strange"}),
        lambda m: m["tables"].append(m["tables"][0]),
        lambda m: m["tables"][0].update(name="../../etc/passwd"),
        lambda m: m["tables"][0].update(name=""),
        lambda m: m["tables"][0].update(rows=-1),
        lambda m: m["tables"][0].update(rows=1 << 62),
        lambda m: m["tables"][0].update(rows=True),
        lambda m: m["tables"][0].update(rows=1.0),
        lambda m: m["tables"][0].update(rows=m["tables"][0]["rows"] + 1),
        lambda m: m["tables"][0].update(bytes=1 << 50),
        lambda m: m["tables"][0].update(decoded_bytes=1 << 60),
        lambda m: m["tables"][0].update(decoded_bytes=1 << 80),
        lambda m: m["tables"][0].update(decoded_bytes=m["tables"][0]["decoded_bytes"] + 8),
        lambda m: m["tables"][0].update(sha256="x"),
        lambda m: m["tables"][0].update(sha256="0" * 64),
        lambda m: m["tables"][0].pop("rows"),
        lambda m: m.update(tables={}),
        lambda m: m.update(tables=[m["tables"][0]] * 1000),
        lambda m: m.update(complete="yes"),
        lambda m: m.update(lost=-1),
        lambda m: m.update(notes=[1]),
        lambda m: m.update(notes=["\ud800"]),
        lambda m: m.update(engine=[]),
        lambda m: m.update(profiles={"x": 1}),
        lambda m: m.update(switches={"x": 1}),
        lambda m: m.update(processes=[{}]),
        lambda m: m["processes"][0].update(wall_offset_ns="now"),
        lambda m: m["coverage"][0].update(waits=None),
        lambda m: m["coverage"][0].update(queue=-1),
        lambda m: m.update(extra=1),
        lambda m: m.pop("engine"),
        lambda m: m.pop("format_write"),
        lambda m: m.update(format_read="0"),
        lambda m: m.update(format="other"),
    ],
)
def test_manifest_that_lies(written: Path, change: Callable[[Json], Any]) -> None:
    change_manifest(written, change)
    with pytest.raises(InputError):
        read_all(written)


def test_manifest_is_canonical(written: Path) -> None:
    obj = json.loads((written / MANIFEST_NAME).read_text())
    (written / MANIFEST_NAME).write_text(json.dumps(obj, sort_keys=True))
    with pytest.raises(CorruptTape, match="checksum"):
        open_tape(written)
    change_manifest(written, lambda m: m)
    read_all(written)


# --- tables that lie ---


def test_schema_has_to_be_exact(written: Path) -> None:
    q = open_tape(written).table("queues")
    for bad in (
        q.drop_columns(["clock"]),
        q.append_column("x", pa.array([1] * q.num_rows)),
        q.select(list(reversed(q.schema.names))),
        q.rename_columns([*q.schema.names[:-1], "name"]),
        q.set_column(2, "name", q.column("name").cast(pa.string())),
        pa.Table.from_arrays(q.columns, schema=pa.schema([f.with_nullable(True) for f in q.schema])),
        pa.table({}),
    ):
        replace_table(written, "queues", ipc(bad))
        with pytest.raises(CorruptTape):
            open_tape(written).table("queues")
    for compression in (None, "lz4", "zstd"):
        replace_table(written, "queues", ipc(q, compression))
        assert open_tape(written).table("queues").to_pylist() == q.to_pylist()


def test_nulls_and_indices(written: Path) -> None:
    q = open_tape(written).table("queues")
    schema = SCHEMAS["queues"]
    kind = q.column("kind").combine_chunks()

    def put(column: str, value: pa.Array) -> None:
        columns = [value if f.name == column else q.column(f.name) for f in schema]
        replace_table(written, "queues", ipc(pa.Table.from_arrays(columns, schema=schema)))
        with pytest.raises(CorruptTape):
            open_tape(written).table("queues")

    put("device", pa.array([0, None, 1], pa.int32()))
    put("kind", pa.DictionaryArray.from_arrays(pa.array([0, 1, 99], pa.int8()), kind.dictionary, safe=False))
    put("kind", pa.DictionaryArray.from_arrays(pa.array([0, 1, -1], pa.int8()), kind.dictionary, safe=False))
    put("kind", pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["queue", None])))
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    put("name", pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), broken))


def test_links_are_not_followed(written: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(written / "ops.arrow", outside)
    for target in (outside, Path("../outside"), Path("/dev/zero"), tmp_path / "nothing"):
        (written / "ops.arrow").symlink_to(target)
        with pytest.raises(InputError, match=r"ops\.arrow is a link"):
            open_tape(written)
        (written / "ops.arrow").unlink()
    os.mkfifo(written / "ops.arrow")
    with pytest.raises(CorruptTape, match="regular"):
        open_tape(written)
    (written / "ops.arrow").unlink()
    (written / "ops.arrow").mkdir()
    with pytest.raises(InputError):
        open_tape(written)
    (written / "ops.arrow").rmdir()
    shutil.move(outside, written / "ops.arrow")
    (written / "notes.txt").write_text("an editor's file is no part of the tape")
    read_all(written)


# --- the command line says it in one line ---


def test_cli_exit_codes(written: Path, tmp_path: Path, run_cli: Any) -> None:
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n")
    write_tape(TapeBuilder().build(), tmp_path / "cut.tape")
    (tmp_path / "cut.tape" / "ops.arrow").write_bytes(b"")
    for arguments in (
        ["info", tmp_path / "nothing"],
        ["info", "--dump", tmp_path / "x.png"],
        ["info", "--validate", tmp_path / "cut.tape"],
        ["pack", tmp_path / "cut.tape"],
        ["info", "--json", tmp_path / "cut.tape"],
    ):
        done = run_cli(*arguments)
        assert done.returncode == 3, (arguments, done.stderr)
        assert "Traceback" not in done.stderr + done.stdout
        if "--json" in arguments:
            assert json.loads(done.stdout)["exit_code"] == 3
        else:
            assert done.stderr.startswith("error: ")


def test_cli_with_little_memory(written: Path, run_cli: Any) -> None:
    """A hostile tape within the limits must fail with a message when memory ends, not with a traceback."""
    n = 20_000_000
    zeros = np.zeros(n, np.int64)
    bomb = ipc(pa.table({"list": zeros.astype(np.int32), "unit": zeros}, schema=SCHEMAS["lists"]))
    replace_table(written, "lists", bomb)
    done = run_cli("info", written, memory_bytes=500 << 20)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
