"""Texts and token values that a hook hands over by mistake, and the engine's ids, stay out of everything."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tapedelay.formats.write import write_tape
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all

MARK = "zanzibar"
TOKENS = [48_611, 50_021, 39_119, 47_777]


def traces() -> Iterator[bytes]:
    """Yield the marker, the tokens, and what one might make of them."""
    for text in (MARK, f"{MARK}-7", f"tell me of {MARK}"):
        for raw in (text.encode(), text.encode("utf-16-le")):
            yield raw
            for name in ("md5", "sha1", "sha256", "blake2b"):
                digest = hashlib.new(name, raw).digest()
                yield from (digest[:8], digest.hex()[:16].encode())
            yield struct.pack("<I", zlib.crc32(raw))
    for layout in ("<4i", "<4q", "<4H"):
        raw = struct.pack(layout, *TOKENS)
        yield raw
        yield hashlib.sha256(raw).digest()[:8]
    yield ", ".join(map(str, TOKENS)).encode()
    yield from (struct.pack("<q", hash(x)) for x in (MARK, f"{MARK}-7", tuple(TOKENS)))


def everything(folder: Path) -> bytes:
    """Return every byte below a folder, the tables without compression too."""
    parts = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        raw = path.read_bytes()
        parts.append(raw)
        if path.suffix == ".arrow":
            with pa.ipc.open_file(pa.BufferReader(raw)) as reader:
                table = reader.read_all()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            parts.append(sink.getvalue().to_pybytes())
    return b"\0".join(parts)


def test_nothing_of_an_engines_texts_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    r = SchedulerRecorder(
        "toy", f"1 {MARK}!", {f"{MARK} {MARK}": 1, "prompt": f"tell me of {MARK}", "path": f"/{MARK}/x"},
        [PoolRow(f"k {MARK}", 64, 1, 16)],
    )  # fmt: skip
    key = f"{MARK}-7"
    r.submit(key, prompt_tokens=4, flags=(f"said {MARK}",))
    r.begin("pause", word=f"because {MARK}")
    r.end()
    r.begin("step")
    r.blocks("alloc", 0, [1], key)
    r.schedule([(key, 4, 0, True)])
    r.end()
    r.begin("output")
    r.answers([(key, 1, "stop")])
    r.decision("finish", key)
    r.end()
    assert r.recording
    stop()
    write_tape(collect_all(folder), tmp_path / "run.tape")
    seen = everything(tmp_path)
    assert b"prefill" in seen, "the search sees what is there"
    assert b"other" in seen
    for trace in traces():
        assert trace not in seen, trace
    assert capsys.readouterr() == ("", "")
