"""Files beside the records that no recorder writes: each is one error, whatever stands in it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.delays import parse_expression
from tapedelay.formats.errors import SpoolError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.delays import leave_plan
from tapedelay.recorder.delays.compiled import COUNTS
from tapedelay.recorder.engines.ggml.layout import RING_HEADER, RING_MAGIC, RING_WINDOW_BYTES
from tapedelay.recorder.evidence import SEEN, Watched, evidence_of
from tapedelay.recorder.session import collect_spool
from tapedelay.recorder.telemetry.files import DESCRIPTION, SAMPLES

PLAN = "every op +1us"
TELEMETRY = {"metrics": [["power", "W"]], "devices": [{"bus": ""}], "notes": []}


@pytest.fixture
def spool(engine: Callable[..., Any]) -> Path:
    e = engine()
    e.w.record("compute", queue=e.queues[0], d=e.w.set([(e.memory, 0, 64, "write", "x")]))
    folder: Path = e.w.write().parent
    return folder


def ring(spool: Path) -> str:
    """Make it a flight recorder's that has dropped nothing; return its stem."""
    head = bytearray(RING_HEADER.itemsize)
    struct.pack_into("<QQQQ", head, 0, RING_MAGIC, 1 << 19, 1000, 0)
    stem = next(spool.glob("*.rec")).stem
    (spool / f"{stem}.ring").write_bytes(bytes(head).ljust(4096, b"\0") + bytes(2 * RING_WINDOW_BYTES))
    return stem


@pytest.mark.parametrize("number", ["2", "99999999", "999999999999"])
def test_a_segment_of_any_number_costs_no_memory(spool: Path, tmp_path: Path, number: str) -> None:
    (spool / f"{ring(spool)}.{number}.part").write_bytes(b"\1" * 4096)
    with pytest.raises(SpoolError, match="segment 1 is missing"):
        collect_spool(spool, tmp_path / "out.tape", Asked(None))


def test_segments_in_a_row_are_taken(spool: Path, tmp_path: Path) -> None:
    stem = ring(spool)
    for number in (1, 2, 3):
        (spool / f"{stem}.{number}.part").write_bytes(b"")
    assert collect_spool(spool, tmp_path / "out.tape", Asked(None)).ops


@pytest.mark.parametrize(
    "text", ['[["\\ud800", ""]]', '[["every op +1us", "\\udfff"]]', "[[1, 2]]", "[[[], {}]]"]
)
def test_lines_of_a_plan_that_no_tape_can_hold(spool: Path, tmp_path: Path, text: str) -> None:
    leave_plan(parse_expression(PLAN), spool)
    (spool / "delays.json").write_text(text)
    with pytest.raises(SpoolError, match="counts of its delays"):
        collect_spool(spool, tmp_path / "out.tape", Asked(None))


@pytest.mark.parametrize(("count", "fits"), [(1, True), (1 << 63, False), ((1 << 64) - 1, False)])
def test_counts_that_no_tape_can_hold(spool: Path, tmp_path: Path, count: int, fits: bool) -> None:
    leave_plan(parse_expression(PLAN), spool)
    with (spool / "delays.bin.counts").open("r+b") as file:
        file.seek(COUNTS.itemsize)
        file.write(struct.pack("<QQ", count, 0))
    if not fits:
        with pytest.raises(SpoolError, match="counts of its delays"):
            collect_spool(spool, tmp_path / "out.tape", Asked(None))
        return
    collect_spool(spool, tmp_path / "out.tape", Asked(None))
    assert [d.count for d in load_tape(tmp_path / "out.tape").manifest.delays] == [count]


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": [["\ud800", "W"]]},
        {"metrics": [["power", "\udfff"]]},
        {"notes": ["\ud800"]},
        {"devices": [{"bus": "\ud800"}]},
    ],
)
def test_telemetry_in_words_that_are_no_text(spool: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    (spool / DESCRIPTION).write_text(json.dumps(TELEMETRY | wrong))
    (spool / SAMPLES).write_bytes(struct.pack("<qqd", 1 << 40, 0, 1.0))
    with pytest.raises(SpoolError, match="not what a sampler writes"):
        collect_spool(spool, tmp_path / "out.tape", Asked(None))


def test_telemetry_of_no_metrics_is_none(spool: Path, tmp_path: Path) -> None:
    (spool / DESCRIPTION).write_text(json.dumps(TELEMETRY | {"metrics": []}))
    (spool / SAMPLES).write_bytes(struct.pack("<qq", 1 << 40, 0))
    collect_spool(spool, tmp_path / "out.tape", Asked(None))
    assert load_tape(tmp_path / "out.tape").rows("telemetry") == 0


@pytest.mark.parametrize(
    "said",
    [
        {"processes": [1], "stopped_s": None},
        {"processes": "ab", "stopped_s": None},
        {"processes": [{"command": [1]}], "stopped_s": None},
        {"processes": [{"executable": 5}], "stopped_s": None},
        {"processes": [{"hidden": "abc"}], "stopped_s": None},
        {"processes": [{"secure": []}], "stopped_s": None},
        {"processes": [], "stopped_s": "soon"},
        {"processes": [], "stopped_s": []},
    ],
)
def test_what_no_watcher_saw_is_no_evidence(spool: Path, said: Any) -> None:
    (spool / SEEN).write_text(json.dumps(said))
    assert evidence_of(spool).watched == Watched()
