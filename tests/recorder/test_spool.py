"""The spool reader: what a dying writer may leave behind is read, what it cannot is refused."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InputError, MissingInput, SpoolError
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml import layout as reader
from tapedelay.recorder.engines.ggml.collect import collect_directory, hook_reports
from tapedelay.recorder.engines.ggml.layout import Kind
from tapedelay.recorder.engines.ggml.spool import read_spool, read_spools

HEADER = Path(__file__).parents[2] / "recorder/engines/ggml/native/spool.h"


def full(engine: Callable[..., Any]) -> Any:
    e = engine()
    e.w.record("buffer_alloc", e=e.memory)
    graph = e.w.set([(e.memory, 0, 64, "write", "x")])
    e.w.record("compute", queue=e.queues[0], d=graph)
    e.w.record("sync", queue=e.queues[0], end=100)
    return e


# --- the layout of spool.h --------------------------------------------------------------------------------


def members(struct_name: str) -> list[tuple[str, int, int]]:
    """Return (name, offset, bytes) of a struct of plain integers in spool.h, laid out as C does."""
    body = re.search(rf"struct {struct_name} \{{(.*?)\n\}};", HEADER.read_text(), re.S)
    assert body is not None
    found, at = [], 0
    for line in body[1].splitlines():
        declared = re.match(r"\s*u?int(\d+)_t\s+([^;]+);", line)
        if declared is None:
            continue
        size = int(declared[1]) // 8
        for name in declared[2].split(","):
            array = re.match(r"\s*(\w+)(?:\[(\d+)\])?", name)
            assert array is not None
            at = -(-at // size) * size
            found.append((array[1], at, size * int(array[2] or 1)))
            at += size * int(array[2] or 1)
    return found


@pytest.mark.parametrize(
    ("struct_name", "dtype"),
    [
        ("spool_header", reader.HEADER),
        ("record", reader.RECORD),
        ("access", reader.ACCESS),
        ("graph_node", reader.GRAPH_NODE),
    ],
)
def test_layouts_equal_the_header_of_the_plugin(struct_name: str, dtype: Any) -> None:
    assert [(n, dtype.fields[n][1], dtype.fields[n][0].itemsize) for n in dtype.names] == members(struct_name)


def test_constants_equal_the_header_of_the_plugin() -> None:
    source = HEADER.read_text()
    for name, value in (
        ("SPOOL_MAGIC", reader.MAGIC), ("SPOOL_VERSION", reader.SPOOL_VERSION), ("COMMIT", reader.COMMIT),
        ("NONE", reader.NONE),
    ):  # fmt: skip
        found = re.search(rf"{name}\s*=\s*(\w+?)(?:ull|u)?;", source)
        assert found is not None
        assert int(found[1], 0) == value, name
    kinds = re.search(r"enum kind_t : uint8_t \{(.*?)\n\};", source, re.S)
    assert kinds is not None
    assert re.findall(r"^\s*K_(\w+)", kinds[1], re.M) == [k.name for k in Kind]
    defs = re.search(r"enum def_t : uint32_t \{(.*?)\n\};", source, re.S)
    assert defs is not None
    assert re.findall(r"^\s*D_(\w+)", defs[1], re.M) == [d.name for d in reader.Def]
    for prefix, flags in (("F", reader.Flag), ("HDR", reader.HeaderFlag)):
        for name, value in re.findall(rf"\b{prefix}_(\w+)\s*=\s*(\d+)", source):
            assert flags[name] == int(value)
        assert len(re.findall(rf"\b{prefix}_(\w+)\s*=\s*\d+", source)) == len(flags)


# --- what is read -----------------------------------------------------------------------------------------


def test_reads_everything(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.switch("GGML_SCHED_DEBUG", "off")
    e.w.note("a note")
    s = read_spool(e.w.write())
    assert s is not None
    assert [Kind(k) for k in s.records["kind"]] == [Kind.BUFFER_ALLOC, Kind.COMPUTE, Kind.SYNC]
    assert (s.engine, s.build, s.api_version, s.threads) == ("ggml", "b1", 2, 1)
    assert [d.name for d in s.devices] == ["CPU", "TAPE0"]
    assert [q.is_async for q in s.queues] == [False, True]
    assert s.switches == {"GGML_SCHED_DEBUG": "off"}
    assert s.notes == ["a note"]
    assert s.complete


def test_order_is_issue_time_then_slot(engine: Callable[..., Any]) -> None:
    e = engine()
    for at in (30, 10, 20, 10):
        e.w.record("buffer_free", e=e.host, at=at)
    s = read_spool(e.w.write())
    assert s is not None
    assert s.slots.tolist() == [1, 3, 2, 0]


def test_a_buffer_frame_that_comes_again_replaces_the_first(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.buffer(e.devices[0], 4096, flags=2, again=e.memory)
    s = read_spool(e.w.write())
    assert s is not None
    assert [b.flags for b in s.buffers] == [1, 2]


def test_holes_are_skipped_and_are_not_lost_records(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("buffer_free", e=e.host)
    e.w.hole()
    e.w.record("buffer_free", e=e.host)
    s = read_spool(e.w.write())
    assert s is not None
    assert s.slots.tolist() == [0, 2]
    assert s.lost == 0
    assert s.complete


def test_a_commit_word_that_is_neither_empty_nor_right_counts_as_lost(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.slots[1] = e.w.slots[1][:60] + struct.pack("<I", 5)
    s = read_spool(e.w.write())
    assert s is not None
    assert (len(s.records), s.lost, s.complete) == (2, 1, False)


def test_a_writer_that_was_killed_leaves_an_incomplete_recording(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.head["flags"] = 0
    s = read_spool(e.w.write())
    assert s is not None
    assert len(s.records) == 3
    assert not s.complete


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 13])
def test_a_torn_last_definition_is_left_out(engine: Callable[..., Any], cut: int) -> None:
    e = full(engine)
    e.w.head["flags"] = 0
    e.w.write()
    e.w.frame(10, struct.pack("<I", 4) + b"torn")
    data = b"".join(e.w.frames)
    e.w.definitions.write_bytes(data[:-cut])
    s = read_spool(e.w.rec)
    assert s is not None
    assert s.torn
    assert s.notes == []
    assert len(s.records) == 3


def test_torn_definitions_of_an_ended_recording_are_refused(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.write()
    data = e.w.definitions.read_bytes()
    e.w.definitions.write_bytes(data[:-1])
    with pytest.raises(SpoolError, match="cut short"):
        read_spool(e.w.rec)
    # ... but for one that had stopped before: what it had written in part could not be taken back
    e.w.head["flags"] = int(reader.HeaderFlag.ENDED | reader.HeaderFlag.FAILED)
    e.w.write()
    e.w.definitions.write_bytes(data[:-1])
    s = read_spool(e.w.rec)
    assert (s.torn, s.ended, s.complete) == (True, True, False)


def test_records_whose_definition_was_torn_away_are_lost(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.head["flags"] = 0
    e.w.write()
    e.w.definitions.write_bytes(b"".join(e.w.frames[:-1]))  # the access set, which is the last one
    with pytest.raises(SpoolError, match="not defined"):  # whole frames: no writer does that
        read_spool(e.w.rec)
    e.w.definitions.write_bytes(b"".join(e.w.frames)[:-1])
    s = read_spool(e.w.rec)
    assert s is not None
    assert (len(s.records), s.lost) == (2, 1)


@pytest.mark.parametrize("size", [0, 1, 63, 6400])
def test_a_file_without_header_is_a_spool_that_could_not_be_written(
    engine: Callable[..., Any], size: int
) -> None:
    e = full(engine)
    e.w.write()
    e.w.rec.write_bytes(e.w.header()[:size] if size < 64 else bytes(size))
    s = read_spool(e.w.rec)
    assert (len(s.records), s.failed, s.complete) == (0, True, False)
    tape = collect_directory(e.w.rec.parent)
    assert validate(tape) == []
    assert any(n.startswith("recording stopped early") for n in tape.manifest.notes)


def test_a_file_without_header_beside_a_whole_spool(engine: Callable[..., Any]) -> None:
    broken, whole = full(engine), full(lambda: engine(wall_ns=5_000))
    for e in (broken, whole):
        e.w.write()
    broken.w.rec.write_bytes(b"")
    tape = collect_directory(whole.w.rec.parent)
    assert validate(tape) == []
    assert [p.complete for p in tape.manifest.processes] == [True, False]
    assert tape.table("ops").num_rows


def test_a_file_cut_inside_a_record_keeps_the_others(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.write()
    with e.w.rec.open("r+b") as f:
        f.truncate(64 + 2 * 64 + 17)
    s = read_spool(e.w.rec)
    assert s is not None
    assert len(s.records) == 2


def test_a_sparse_file_of_absurd_size_costs_nothing(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.write()
    os.truncate(e.w.rec, 1 << 42)
    s = read_spool(e.w.rec)
    assert s is not None
    assert len(s.records) == 3


def test_several_processes_come_oldest_first(engine: Callable[..., Any]) -> None:
    late, early = full(lambda: engine(wall_ns=9_000)), full(lambda: engine(wall_ns=5_000))
    late.w.write()
    early.w.write()
    assert [s.wall_ns for s in read_spools(late.w.rec.parent)] == [5_000, 9_000]


# --- what is refused --------------------------------------------------------------------------------------


def test_no_directory_and_nothing_to_collect(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        read_spools(tmp_path / "nowhere")
    with pytest.raises(SpoolError, match="no process"):
        collect_directory(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("magic", 0x1234, "foreign"), ("version", 7, "version 7"), ("record_bytes", 128, "128"),
        ("wall_ns", 1 << 63, "wall_ns"), ("lost", (1 << 64) - 1, "lost"),
    ],
)  # fmt: skip
def test_wrong_headers(engine: Callable[..., Any], field: str, value: int, says: str) -> None:
    e = full(engine)
    e.w.head[field] = value
    with pytest.raises(SpoolError, match=says):
        read_spool(e.w.write())


def test_a_wrong_checksum_is_refused(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.write()
    data = bytearray(e.w.definitions.read_bytes())
    data[20] ^= 1
    e.w.definitions.write_bytes(data)
    with pytest.raises(SpoolError, match="checksum"):
        read_spool(e.w.rec)


HOSTILE: list[tuple[str, int, bytes]] = [
    ("unknown frame", 99, b""),
    ("short payload", 1, b"\1\0\0\0"),
    ("long payload", 2, struct.pack("<II", 1, 0)),
    ("thread id from nowhere", 2, struct.pack("<I", 7)),
    ("string longer than its frame", 10, struct.pack("<I", 1 << 31) + b"x"),
    ("set larger than its frame", 8, struct.pack("<II", 1, 1 << 31)),
    ("buffer on no device", 5, struct.pack("<IIIQQI", 2, 9, 0, 1, 0, 0)),
    ("buffer of 2^63 bytes", 5, struct.pack("<IIIQQI", 2, 0, 0, 1 << 63, 0, 0)),
    ("queue on no device", 4, struct.pack("<IIII", 2, 9, 1, 0)),
    ("event on no device", 6, struct.pack("<III", 0, 9, 0)),
    ("access to no buffer", 8, struct.pack("<IIIIQQBBHI", 1, 1, 9, 0, 0, 1, 0, 0, 0, 0)),
    ("access of no mode", 8, struct.pack("<IIIIQQBBHI", 1, 1, 0, 0, 0, 1, 9, 0, 0, 0)),
    ("access beyond 2^62", 8, struct.pack("<IIIIQQBBHI", 1, 1, 0, 0, 1 << 63, 1, 0, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "payload"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_definitions(engine: Callable[..., Any], kind: int, payload: bytes) -> None:
    e = full(engine)
    e.w.frame(kind, payload)
    with pytest.raises(SpoolError):
        read_spool(e.w.write())


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": "none"}, {"kind": "compute", "queue": 0, "d": 99}, {"kind": "compute"},
        {"kind": "copy", "e": 99},
        {"kind": "memset"}, {"kind": "memset", "d": 99, "e": 0},
        {"kind": "event_wait", "queue": 1, "d": 0}, {"kind": "sync", "queue": 77},
        {"kind": "sync", "queue": 1, "thread": 9}, {"kind": "copy", "c": 1 << 63},
        {"kind": "sync", "queue": 1, "end": 1 << 63}, {"kind": "sync", "queue": 1, "end": 1 << 61},
        {"kind": "copy", "d": 0, "a": 4000, "c": 97}, {"kind": "copy", "e": 1, "b": 4096, "c": 1},
        {"kind": "memset", "e": 0, "b": 4097}, {"kind": "get", "d": 1, "a": 1 << 61, "c": 1 << 61},
    ],
)  # fmt: skip
def test_hostile_records(engine: Callable[..., Any], columns: dict[str, Any]) -> None:
    e = full(engine)
    e.w.record(**columns)
    with pytest.raises(SpoolError):
        read_spool(e.w.write())


@pytest.mark.parametrize(
    ("calls", "fits"),
    [
        (("buffer_alloc", "buffer_free"), True),
        (("buffer_alloc", "buffer_free", "buffer_free"), True),  # a fault of the program, which check names
        (("buffer_free",), True),
        (("buffer_alloc", "buffer_alloc"), False),
        (("buffer_free", "buffer_alloc"), False),
    ],
)
def test_a_buffer_begins_once_and_ends_after_that(
    engine: Callable[..., Any], calls: tuple[str, ...], fits: bool
) -> None:
    e = full(engine)
    for call in calls:
        e.w.record(call, e=e.host)
    e.w.write()
    if fits:
        assert validate(collect_directory(e.w.rec.parent)) == []
        return
    with pytest.raises(SpoolError, match="says what cannot be"):
        read_spool(e.w.rec)


def test_an_access_ends_where_its_buffer_ends(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.record("copy", queue=1, d=e.host, a=4000, e=e.memory, b=0, c=96)
    e.w.record("copy", queue=1, d=e.host, a=4000, e=e.memory, b=0, c=97, flags=4)  # it did nothing
    e.w.set([(e.memory, 4000, 96, "read", "t")])
    e.w.write()
    assert validate(collect_directory(e.w.rec.parent)) == []
    e.w.set([(e.memory, 4000, 97, "read", "t")])
    with pytest.raises(SpoolError, match="beyond its buffer"):
        read_spool(e.w.write())


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("{}")
    path.symlink_to(target)


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("make", [_pipe, _endless, _link, _large, Path.mkdir])
@pytest.mark.parametrize("what", ["definitions", "report"])
def test_other_files_than_the_recorder_made(
    engine: Callable[..., Any], make: Callable[[Path], None], what: str
) -> None:
    e = full(engine)
    e.w.write()
    path = e.w.definitions if what == "definitions" else e.w.rec.with_name("hook-1.json")
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(SpoolError, match=r"regular|at most"):
        collect_directory(e.w.rec.parent)


def test_a_report_of_nothing_useful_costs_nothing(engine: Callable[..., Any]) -> None:
    e = full(engine)
    e.w.write()
    for i, text in enumerate((b"", b"\xff", b"[" * 60_000, b"9" * 5000, b"[]", b'{"package": 1}')):
        e.w.rec.with_name(f"hook-{i}.json").write_bytes(text)
    assert hook_reports(e.w.rec.parent) == []
    good = e.w.rec.with_name("hook-9.json")
    good.write_text('{"package": "p\\ud800", "version": "1", "fault": "/home/somebody"}')
    assert hook_reports(e.w.rec.parent) == [{"package": "p?", "version": "1", "fault": "<path>"}]


def test_random_damage_never_gives_a_traceback(engine: Callable[..., Any]) -> None:
    e = full(engine)
    rec = e.w.write().read_bytes()
    definitions = e.w.definitions.read_bytes()
    rng = random.Random(7)
    refused = 0
    for _ in range(400):
        for path, data in ((e.w.rec, rec), (e.w.definitions, definitions)):
            bad = bytearray(data)
            for _ in range(rng.randrange(3)):
                bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            path.write_bytes(bad[: rng.randrange(len(bad))] if rng.random() < 0.3 else bad)
        try:
            collect_directory(e.w.rec.parent)
        except InputError:
            refused += 1
    assert 50 < refused < 400
