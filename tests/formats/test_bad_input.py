"""Whatever a file holds: an error of the tree, never a crash, a hang or a full memory."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import zipfile
import zlib
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
from tapedelay.formats.framing import scan_frames
from tapedelay.formats.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME
from tapedelay.formats.pack import pack_tape
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import REQUIRED, SCHEMAS
from tapedelay.formats.tape import Manifest
from tapedelay.formats.write import TapeWriter, write_tape

Json = dict[str, Any]


def read_all(path: Path) -> None:
    """Open a tape and decode everything in it."""
    tape = open_tape(path)
    for name in tape.present:
        tape.table(name)


def sealed(obj: Json) -> bytes:
    """Return a manifest with a checksum that fits, whatever it says."""

    def canonical(o: Json) -> bytes:
        return json.dumps(o, sort_keys=True, indent=1).encode() + b"\n"

    obj = {k: v for k, v in obj.items() if k != "crc32"}
    return canonical({**obj, "crc32": zlib.crc32(canonical(obj))})


def change_manifest(tape: Path, change: Callable[[Json], Any]) -> None:
    """Change a directory tape's manifest and seal it again."""
    file = tape / MANIFEST_NAME
    obj = json.loads(file.read_text())
    change(obj)
    file.write_bytes(sealed(obj))


def claims(data: bytes) -> Json:
    """Return what a manifest has to say of a table file, as far as that can be told."""
    try:
        frames = scan_frames(memoryview(data), "table")
        rows, decoded = frames.rows, frames.decoded_bytes
    except InputError:
        rows, decoded = 1, 4
    digest = hashlib.sha256(data).hexdigest()
    return {"rows": rows, "bytes": len(data), "decoded_bytes": decoded, "sha256": digest}


def replace_table(tape: Path, name: str, data: bytes, **lies: Any) -> None:
    """Put other bytes in place of a table, with a manifest that fits them except for the lies."""
    (tape / f"{name}.arrow").write_bytes(data)
    facts = {**claims(data), **lies}
    change_manifest(tape, lambda m: next(t for t in m["tables"] if t["name"] == name).update(facts))


def ipc(table: pa.Table, compression: str | None = "zstd") -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as w:
        w.write_table(table)
    return sink.getvalue()


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
    (tmp_path / "1-2.rec").write_bytes(b"x")
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


# --- zips that lie ---


def zip_of(tape: Path, out: Path, **kwargs: Any) -> zipfile.ZipFile:
    z = zipfile.ZipFile(out, "w", **kwargs)
    for f in sorted(tape.iterdir()):
        z.write(f, f.name)
    return z


@pytest.mark.parametrize(
    "name",
    [
        "../ops.arrow",
        "/etc/passwd",
        "a/ops.arrow",
        "..\\ops.arrow",
        "C:\\x.arrow",
        "notes.txt",
        "x/",
        "OPS.arrow",
        "ops.arrow ",
    ],
)
def test_zip_member_names(written: Path, tmp_path: Path, name: str) -> None:
    with zip_of(written, tmp_path / "a.zip") as z:
        z.writestr(name, b"x")
    with pytest.raises(CorruptTape, match="a member"):
        open_tape(tmp_path / "a.zip")
    assert not (tmp_path.parent / "ops.arrow").exists()


def test_zip_kinds(written: Path, tmp_path: Path) -> None:
    zip_of(written, tmp_path / "good.zip").close()
    read_all(tmp_path / "good.zip")
    zip_of(written, tmp_path / "packed.zip", compression=zipfile.ZIP_DEFLATED).close()
    with pytest.raises(CorruptTape, match="compressed"):
        open_tape(tmp_path / "packed.zip")
    with zip_of(written, tmp_path / "twice.zip") as z, pytest.warns(UserWarning, match="Duplicate"):
        z.writestr("ops.arrow", b"x")
    with pytest.raises(CorruptTape, match="two members"):
        open_tape(tmp_path / "twice.zip")
    with zip_of(written, tmp_path / "comment.zip") as z:
        z.comment = b"hello"
    with pytest.raises(NotATape):
        open_tape(tmp_path / "comment.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as z:
        z.writestr("ops.arrow", b"x")
    with pytest.raises(NotATape, match=r"without manifest\.json"):
        open_tape(tmp_path / "other.zip")
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as z:
        z.writestr("a/b.py", b"x")
    with pytest.raises(InputError):
        open_tape(tmp_path / "wheel.zip")
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as z:
        for i in range(2000):
            z.writestr(f"t{i}.arrow", b"")
    with pytest.raises(CorruptTape, match="member"):
        open_tape(tmp_path / "many.zip")
    with zipfile.ZipFile(tmp_path / "long.zip", "w") as z:
        for i in range(4000):
            z.writestr(f"t{i:050}.arrow", b"")
    with pytest.raises(CorruptTape, match="member list"):
        open_tape(tmp_path / "long.zip")


@pytest.mark.parametrize("where", ["central", "local", "both"])
@pytest.mark.parametrize("size", [0, 1, 5, 1 << 20, 0xFFFFFFFE])
def test_zip_sizes_that_lie(written: Path, tmp_path: Path, where: str, size: int) -> None:
    zip_of(written, tmp_path / "a.zip").close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = {"local": data.index(b"ops.arrow") - 30 + 18, "central": data.rindex(b"ops.arrow") - 46 + 20}
    for place, offset in at.items():
        if where in (place, "both"):
            data[offset : offset + 8] = size.to_bytes(4, "little") * 2
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError):
        read_all(tmp_path / "a.zip")


def test_zip_members_on_top_of_each_other(written: Path, tmp_path: Path) -> None:
    """Every member name points at one body: a small file must not be read many times."""
    zip_of(written, tmp_path / "a.zip").close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    first = data.index(b"accesses.arrow") - 30
    at = data.rindex(b"ops.arrow") - 46 + 42
    data[at : at + 4] = first.to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError):
        read_all(tmp_path / "a.zip")


# --- mutations ---


def mutate(r: random.Random, data: bytes) -> bytes:
    how = r.randrange(6)
    b = bytearray(data)
    at = r.randrange(len(b))
    if how == 0:
        return bytes(b[:at])
    if how == 1:
        b[at] ^= 1 << r.randrange(8)
    elif how == 2:
        b[at : at + 8] = r.choice((0, 1, (1 << 62), (1 << 63) - 1, (1 << 64) - 1, 1 << 31, 1 << 40)).to_bytes(
            8, "little"
        )
    elif how == 3:
        n = r.randrange(1, 64)
        b[at : at + n] = r.randbytes(n)
    elif how == 4:
        del b[at : at + r.randrange(1, 64)]
    else:
        b[at:at] = r.randbytes(r.randrange(1, 64))
    return bytes(b)


def test_mutated_files(written: Path, tmp_path: Path) -> None:
    """1,500 damaged tapes, directory and zip: each refused. No change goes unseen."""
    r = random.Random(2)
    packed = pack_tape(written, tmp_path / "a.zip").read_bytes()
    small = sorted(written.iterdir())
    for i in range(1500):
        if i % 3:
            damaged = mutate(r, packed)
            if damaged == packed:
                continue
            (tmp_path / "b.zip").write_bytes(damaged)
            try:
                read_all(tmp_path / "b.zip")
            except InputError:
                continue
            # dates, modes and the like are no content
            assert len(damaged) == len(packed)
            assert sum(x != y for x, y in zip(damaged, packed, strict=True)) <= 64
            same_content(tmp_path / "a.zip", tmp_path / "b.zip")
        else:
            f = r.choice(small)
            whole = f.read_bytes()
            damaged = mutate(r, whole)
            if damaged == whole:
                continue
            f.write_bytes(damaged)
            with pytest.raises(InputError):
                read_all(written)
            f.write_bytes(whole)


def same_content(a: Path, b: Path) -> None:
    x, y = open_tape(a), open_tape(b)
    assert x.manifest == y.manifest
    for name in SCHEMAS:
        assert x.table(name).to_pylist() == y.table(name).to_pylist()


DEEP = """
import faulthandler, random, resource, sys
from pathlib import Path
faulthandler.enable()
sys.path.insert(0, sys.argv[1])
from test_bad_input import claims, mutate
from tapedelay.formats.dump import dump_lines
from tapedelay.formats.errors import InputError
from tapedelay.formats.manifest import TableEntry
from tapedelay.formats.read import decode_table, open_tape
from tapedelay.formats.summary import summarise
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
path, seed, count, limit = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
whole = open_tape(path)
tables = {n: whole.table(n) for n in whole.present}
files = {n: (path / f"{n}.arrow").read_bytes() for n in tables}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
r = random.Random(seed)
refused = opened = 0
for _ in range(count):
    name = r.choice(list(files))
    data = mutate(r, files[name])
    try:
        table = decode_table(data, TableEntry(name, **claims(data)))
    except InputError:
        refused += 1
        continue
    got = Tape(whole.manifest, {**tables, name: table})
    validate(got)
    sum(len(x) for x in dump_lines(got))
    summarise(got)
    opened += 1
print(refused, opened, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("count", [1000, pytest.param(40_000, marks=pytest.mark.soak)])
def test_mutated_below_the_checksums(written: Path, count: int) -> None:
    """Someone who seals the damage again reaches the Arrow reader: it must not crash, hang or fill memory."""
    done = subprocess.run(
        [sys.executable, "-c", DEEP, str(Path(__file__).parent), str(written), "3", str(count), str(4 << 30)],
        capture_output=True,
        text=True,
        timeout=count,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, opened, rss_kib = map(int, done.stdout.split())
    assert refused + opened == count
    assert refused > count / 4
    assert opened > count / 40, "mutations of what is only described are harmless"
    assert rss_kib < 1 << 20, f"{rss_kib} KiB"


# --- bombs ---


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
