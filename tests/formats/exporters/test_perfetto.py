"""Perfetto traces: read back as protobuf, and by Perfetto's own trace processor."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.edges import resolve
from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.exporters.mark import Mark
from tapedelay.formats.exporters.perfetto import Written, packets, write_perfetto
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Manifest, Tape
from tapedelay.formats.window import window

from .conftest import Query

ROOT = Path(__file__).resolve().parents[3]
BAD = ROOT / "traces" / "ggml-26040-bad.tape.zip"
ERRORS = "select name, idx, value from stats where value and name not like '%duration%'"
"""Whatever Perfetto counted on the way: it calls its own parser's errors information."""
TRACKS = "select t.id, t.name, p.name as parent from track t left join track p on t.parent_id = p.id"
SLICES = """
select s.name, s.ts, s.dur, s.category, s.depth, t.name as track from slice s
join track t on s.track_id = t.id
"""
FLOWS = """
select a.name as source, b.name as target, ta.name as out_of, tb.name as into_ from flow f
join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
join track ta on a.track_id = ta.id join track tb on b.track_id = tb.id
"""
NOTES = "select s.name, a.key, a.display_value as value from slice s join args a using (arg_set_id)"
COUNTS = """
select t.name, p.name as parent, c.ts, c.value from counter c
join track t on c.track_id = t.id left join track p on t.parent_id = p.id order by t.id, c.ts
"""

NO_OPS = ("issue", "end", "tape", "finding")
"""Categories of what is no op."""

TEXT = """
1 | host   | H   |    | M0[0:4096] |
2 | copy   | vk0 | M0[0:4096] | D0 | | bytes=4096
3 | record | vk0 | | | e
4 | wait   | vk1 | | | e
5 | kernel | vk1 | D0 | D1 |
6 | host   | H   |    | M0[1024:2048] |
"""


def export(tape: Tape, **options: Any) -> tuple[bytes, Written]:
    file = io.BytesIO()
    written = write_perfetto(tape, file, **options)
    return file.getvalue(), written


def decoded(trace: bytes) -> Any:
    found = packets.require_perfetto().Trace()
    found.ParseFromString(trace)
    return found.packet


def mark(*rows: int, link: str = "missing edge") -> Mark:
    return Mark(
        "RACE WAR on `M0`",
        "nothing orders them",
        rows,
        tuple(f"#{r}" for r in rows),
        link,
        (("found", "once"),),
    )


# --- without the trace processor ---


def test_packets() -> None:
    trace, written = export(parse(TEXT).tape(), marks=[mark(1, 5)])
    assert written == Written(6, 6, 3, 1, 0, recorded=False)
    names: dict[int, str] = {}
    tracks: dict[int, str] = {}
    depth: dict[int, int] = {}
    kinds: dict[int, int] = {}
    left: set[int] = set()
    for packet in decoded(trace):
        assert packet.trusted_packet_sequence_id == 1
        names.update({n.iid: n.name for n in packet.interned_data.event_names})
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
            continue
        event = packet.track_event
        kinds[event.type] = kinds.get(event.type, 0) + 1
        assert event.track_uuid in tracks
        if event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_INSTANT):
            assert names[event.name_iid]
        depth[event.track_uuid] = depth.get(event.track_uuid, 0) + {1: 1, 2: -1}.get(event.type, 0)
        assert depth[event.track_uuid] in (0, 1)
        left.update(event.flow_ids)
    assert not any(depth.values())
    assert len(left) == written.flows + written.findings
    assert kinds[1] == kinds[2] == 6  # four slices of the tape, two of the finding
    assert {"findings", "1: RACE WAR on `M0`", "H", "vk0", "vk1 waits and marks", "H issues"} <= set(
        tracks.values()
    )


def test_texts_are_written_once() -> None:
    b = TapeBuilder()
    q = b.queue(device=b.device(name="gpu", kind="gpu"), name="q")
    touched = b.access_set([{"buffer": b.buffer(device=0, name="M", bytes=64), "offset": 0, "bytes": 64}])
    for i in range(2000):
        b.op(
            kind="kernel",
            name="a_kernel_with_quite_a_long_name",
            queue=q,
            access_set=touched,
            issue_ns=i,
            duration_ns=1,
        )
    trace, _ = export(b.build())
    assert trace.count(b"a_kernel_with_quite_a_long_name") == 2  # as a title, and as what is noted
    assert len(trace) < 2000 * 80


def test_memory_does_not_hold_the_trace() -> None:
    class Sink(io.BytesIO):
        largest = 0

        def write(self, data: Any) -> int:
            self.largest = max(self.largest, len(data))
            return len(data)

    sink = Sink()
    write_perfetto(load_tape(BAD), sink)
    assert 0 < sink.largest < 100_000
    some = packets.Packets(sink)
    for at in range(1000):  # protobuf frees what a message held only with the message
        some.event(1, at, "x")
        held = some._batch
    some.flush()
    assert some._batch is not held


def test_progress() -> None:
    calls: list[tuple[int, int]] = []
    export(load_tape(BAD), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1423, 1423)]


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(InfrastructureError, match="needs the package perfetto") as error:
        export(parse(TEXT).tape())
    assert "pip install 'tapedelay[export]'" in error.value.next_step
    assert not error.value.expected


def test_the_package_is_loaded_when_a_trace_is_written_only() -> None:
    code = (
        "import sys, tapedelay.formats.exporters.perfetto, tapedelay.replayer.export.command\n"
        "sys.exit(any(m.split('.')[0] in ('perfetto', 'google') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_tape_gives_the_same_bytes() -> None:
    assert export(load_tape(BAD), marks=[mark(75, 77)]) == export(load_tape(BAD), marks=[mark(75, 77)])


def test_edges_may_come_from_elsewhere() -> None:
    tape = parse(TEXT).tape()
    contract = resolve(tape)
    edges = (contract.source, contract.target, contract.rule)
    assert export(tape, edges=edges) == export(tape)


# --- as Perfetto sees it ---


def test_perfetto_says_what_is_wrong_with_a_trace(query: Query) -> None:
    """What the other tests rely on."""

    def traced(write: Callable[[packets.Packets], None]) -> list[list[dict[str, Any]]]:
        file = io.BytesIO()
        some = packets.Packets(file)
        write(some)
        some.flush()
        return query(file.getvalue(), ERRORS, SLICES, FLOWS)

    def below_nothing(some: packets.Packets) -> None:
        some.track(1, "a", 77)
        some.event(1, 5, "x")

    def number_on_a_track_of_slices(some: packets.Packets) -> None:
        some.track(1, "a")
        some.count(1, 5, 6)

    def overlap_and_backward_flow(some: packets.Packets) -> None:
        some.track(1, "a")
        some.event(1, 0, "first", ends=[1])
        some.event(1, 5, "second", flows=[1])
        some.end(1, 10)
        some.end(1, 15)

    assert traced(below_nothing)[0] != []
    assert traced(number_on_a_track_of_slices)[0] != []
    errors, slices, flows = traced(overlap_and_backward_flow)  # these two it does not count
    assert (errors, flows) == ([], [])
    assert {(s["name"], s["dur"]) for s in slices} == {("first", 15), ("second", 5)}


def test_a_small_tape(query: Query) -> None:
    tape = parse(TEXT).tape()
    trace, written = export(tape, marks=[mark(1, 5)])
    errors, tracks, slices, flows, counts = query(trace, ERRORS, TRACKS, SLICES, FLOWS, COUNTS)
    assert errors == []
    parents = {t["name"]: t["parent"] for t in tracks}
    assert parents["vk0"] == parents["vk1"] == "device (gpu)"
    assert parents["H"] == "host (host)"
    assert parents["H issues"] == "H"
    assert parents["vk0 waits and marks"] == "vk0"
    assert parents["1: RACE WAR on `M0`"] == "findings"
    assert {n for n, p in parents.items() if p == tape.name} == {"findings", "host (host)", "device (gpu)"}
    at = {(s["track"], s["name"]): (s["ts"], s["dur"]) for s in slices}
    assert at["H", "host M0"] == (1000, 1000)  # the second one
    assert at["vk0", "copy D0"] == (1000, 1000)
    assert at["vk1", "kernel D1"] == (2000, 1000)
    assert at["vk1 waits and marks", "wait e"] == (2000, 0)
    shown = {(f["source"], f["target"]) for f in flows}
    assert ("record e", "wait e") in shown
    assert ("issue copy D0", "copy D0") in shown
    assert ("copy D0", "host M0") in shown  # the missing one
    assert ("first: #1 copy D0", "second: #5 host M0") in shown
    assert len(flows) == written.flows + 1
    values = {(c["parent"], c["name"], c["ts"]): c["value"] for c in counts}
    assert values["device (gpu)", "ops in flight", 1000] == 2
    assert values["device (gpu)", "ops in flight", 3000] == 0
    assert values["device (gpu)", "bytes moved", 2000] == 4096


def test_a_recording(query: Query) -> None:
    tape = load_tape(BAD)
    trace, written = export(tape, marks=[mark(75, 77)])
    errors, slices, flows, notes, counts = query(trace, ERRORS, SLICES, FLOWS, NOTES, COUNTS)
    assert errors == []
    ops = [s for s in slices if s["category"].split(",")[0] not in NO_OPS]
    assert len(ops) == written.ops == tape.table("ops").num_rows
    assert all(s["dur"] >= 0 for s in slices)
    assert len(flows) == written.flows + 1
    assert written.backward == 0
    table = tape.table("ops").to_pylist()
    took = {o["op"]: o["duration_ns"] for o in table if o["duration_ns"] is not None}
    assert sorted(s["dur"] for s in ops) == sorted(took.get(o["op"], 0) for o in table)
    found = {(n["key"], n["value"]) for n in notes if n["name"] == "copy model.input_embed"}
    assert {("debug.op", "75"), ("debug.bytes", "2048"), ("debug.reads", "TAPE_Host.2")} <= found
    assert ("debug.finding", "RACE WAR on `M0`") in found
    moved = sum(
        o["bytes"] for o in table if o["kind"] in ("copy", "memset") and o["bytes"] and o["queue"] == 1
    )
    on_device = [c["value"] for c in counts if c["name"] == "bytes moved" and c["parent"].startswith("TAPE0")]
    assert on_device[-1] == moved or moved == 0
    assert on_device == sorted(on_device)
    flying = [c["value"] for c in counts if c["name"] == "ops in flight"]
    assert min(flying) == 0
    assert max(flying) > 1


def test_a_window_of_a_recording(query: Query) -> None:
    trace, written = export(window(load_tape(BAD), 70, 90))
    errors, slices = query(trace, ERRORS, SLICES)
    assert errors == []
    assert written.ops == 20
    assert len([s for s in slices if s["category"] not in NO_OPS]) == 20


def timed(rows: list[dict[str, Any]], edges: list[tuple[int, int]] = (), in_order: bool = True) -> Tape:  # type: ignore[assignment]
    b = TapeBuilder()
    host, gpu = b.device(name="host", kind="host"), b.device(name="gpu", kind="gpu")
    b.queue(device=host, name="H", kind="host_thread")
    for name in ("q0", "q1"):
        b.queue(device=gpu, name=name, in_order=in_order)
    b.sync(name="e", device=gpu, process=0)
    for row in rows:
        b.op(**{"kind": "kernel", "access_set": 0, **row})
    for source, target in edges:
        b.edge(source, target)
    return b.build()


def test_ops_that_overlap_on_one_queue_are_all_there(query: Query) -> None:
    spans = [(0, 100), (10, 50), (20, 130), (100, 20), (100, 0), (130, 5), (150, 10)]
    tape = timed(
        [{"queue": 1, "name": f"k{i}", "issue_ns": at, "duration_ns": d} for i, (at, d) in enumerate(spans)],
        in_order=False,
    )
    trace, _ = export(tape)
    errors, slices = query(trace, ERRORS, SLICES)
    assert errors == []
    assert sorted((s["ts"], s["dur"]) for s in slices if s["category"] == "kernel") == sorted(spans)
    assert all(s["depth"] == 0 for s in slices)
    assert {s["track"] for s in slices} == {"q0", "q0 overlap 1", "q0 overlap 2", "tape"}


def test_a_flow_into_a_wait_that_began_before_ends_where_the_wait_ends(query: Query) -> None:
    rows = [
        {"queue": 1, "issue_ns": 0, "duration_ns": 100, "name": "a"},
        {"queue": 1, "kind": "record", "sync": 0, "issue_ns": 100, "duration_ns": 0, "name": "r"},
        {"queue": 2, "kind": "wait", "sync": 0, "issue_ns": 5, "duration_ns": 95, "name": "w"},
    ]  # fmt: skip
    trace, written = export(timed(rows))
    assert (written.flows, written.backward) == (1, 0)
    errors, slices, flows = query(trace, ERRORS, SLICES, FLOWS)
    assert errors == []
    assert [(f["source"], f["target"], f["into_"]) for f in flows] == [
        ("record r", "end of wait w", "q1 waits ended")
    ]
    assert ("end of wait w", 100) in [(s["name"], s["ts"]) for s in slices]
    rows[2]["duration_ns"] = 94  # over before the record
    assert export(timed(rows))[1].backward == 1


def test_an_edge_that_the_clock_turns_backwards_is_counted_not_lost(query: Query) -> None:
    rows = [
        {"queue": 1, "issue_ns": 50, "duration_ns": 9, "name": "a"},
        {"queue": 2, "issue_ns": 0, "duration_ns": 9, "name": "b"},
    ]
    trace, written = export(timed(rows, [(0, 1)]), marks=[mark(0, 1)])
    assert (written.flows - 1, written.backward) == (0, 1)
    errors, flows = query(trace, ERRORS, FLOWS)
    assert errors == []
    # the finding is seen all the same, from the op that began first to the other
    assert [(f["source"], f["target"]) for f in flows] == [
        ("kernel b", "kernel a"),
        ("second: #1 kernel b", "first: #0 kernel a"),
    ]


def test_ops_that_start_at_one_instant_keep_the_order_of_their_edges(query: Query) -> None:
    text = """
1 | semwait | s1 | | | s
2 | record | s1 | | | e
3 | wait | s2 | | | e
4 | semsig | s0 | | | s
"""
    trace, written = export(parse(text).tape())
    errors, flows = query(trace, ERRORS, FLOWS)
    assert errors == []
    found = {(f["source"], f["target"]) for f in flows if not f["source"].startswith("issue")}
    assert found == {("semsig s", "semwait s"), ("record e", "wait e")}
    assert written.backward == 0


def test_memory(query: Query) -> None:
    text = """
buffer P 4096
1 | alloc | H | | | P
2 | alloc | H | | | A=P[0:1024]
3 | kernel | s0 | | A |
4 | sync | H | | | s0
5 | free | H | | | A
6 | alloc | H | | | B=P[0:512]
"""
    trace, _ = export(parse(text).tape())
    (counts,) = query(trace, COUNTS)
    assert [c["value"] for c in counts if c["name"] == "memory allocated"] == [4096]
    assert [c["value"] for c in counts if c["name"] == "memory handed out"] == [1024, 512]


def test_samples_of_the_recorder(query: Query, rich_tape: Tape) -> None:
    trace, _ = export(rich_tape)
    errors, counts = query(trace, ERRORS, COUNTS)
    assert errors == []
    assert [(c["parent"], c["ts"], c["value"]) for c in counts if c["name"] == "power"] == [
        ("TAPE0 (test)", 4, 12.5)
    ]


def test_names_that_do_not_belong_on_a_screen(query: Query) -> None:
    names = [
        "<script>alert(1)</script>",
        "a\x1b[31mred\x00",
        "\u202egnp.exe",
        "\ud800" if False else "é\n\t",
        "x" * 10_000,
    ]
    b = TapeBuilder()
    gpu = b.device(name="gpu\x1b]0;title\x07", kind="gpu")
    for name in names:
        b.op(
            kind="kernel",
            name=name,
            queue=b.queue(device=gpu, name=name),
            access_set=0,
            issue_ns=0,
            duration_ns=5,
        )
    trace, _ = export(b.build(Manifest(notes=("a\x1bnote",), engine={"name\x1b": "b\u202ex"})))
    errors, tracks, slices, notes = query(trace, ERRORS, TRACKS, SLICES, NOTES)
    assert errors == []
    texts = [t["name"] for t in tracks] + [s["name"] for s in slices] + [n["value"] for n in notes]
    assert all(t.isprintable() for t in texts)
    assert "kernel <script>alert(1)</script>" in texts
    assert "kernel \\u202egnp.exe" in texts


def test_many_sorts_of_rows(query: Query, rich_tape: Tape) -> None:
    trace, written = export(rich_tape, marks=[mark(2, 3), mark(13, 14, link="")])
    errors, slices = query(trace, ERRORS, SLICES)
    assert errors == []
    assert len([s for s in slices if s["category"].split(",")[0] not in NO_OPS]) == written.ops == 17


@pytest.mark.parametrize("text", ["", "1 | mark | H | | |"])
def test_tapes_with_hardly_anything(text: str) -> None:
    trace, written = export(parse(text).tape())
    events = [p.track_event for p in decoded(trace) if p.HasField("track_event")]
    assert [e.type for e in events if e.type != e.TYPE_COUNTER] == [3] * (written.ops + 1)


def test_the_whole_corpus() -> None:
    """Decoded only: the trace processor is a process of a second for each file."""
    corpus = ROOT / "tests" / "corpus"
    files = sorted(f for d in ("ops", "own") for f in (corpus / d).glob("*.litmus"))
    assert len(files) > 100
    for file in files:
        tape = load_tape(file)
        trace, written = export(tape)
        begun: dict[int, int] = {}
        seen = np.zeros(3, int)
        for packet in decoded(trace):
            if packet.HasField("track_event"):
                event = packet.track_event
                begun[event.track_uuid] = begun.get(event.track_uuid, 0) + {1: 1, 2: -1}.get(event.type, 0)
                seen[0] += event.type in (1, 3)
                seen[1] += len(event.flow_ids)
                seen[2] += len(event.terminating_flow_ids)
        assert not any(begun.values())
        assert seen[1] == seen[2] == written.flows
        assert written.backward == 0 or resolve(tape).order().stuck.cycles, file.name


def test_times_beyond_all_measure() -> None:
    far = (1 << 63) - 1
    copy: dict[str, Any] = {"queue": 1, "kind": "copy", "issue_ns": far, "bytes": far}
    rows: list[dict[str, Any]] = [
        {"queue": 1, "issue_ns": -far, "duration_ns": far},
        {**copy, "start_after_issue_ns": far, "duration_ns": far},
        {**copy, "start_after_issue_ns": -far, "duration_ns": 1},
    ]
    trace, written = export(timed(rows))
    assert written.ops == 3
    assert all(0 <= p.timestamp < 1 << 63 for p in decoded(trace))
