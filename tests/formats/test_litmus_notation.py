"""What each part of the litmus notation means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import MissingInput, UsageError
from tapedelay.formats.litmus import Verdict, load, parse, read
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Coverage, Process, Tape
from tapedelay.formats.validate import validate


def table(text: str, name: str = "ops", variant: str = "buggy") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parse(text).tape(variant).table(name).to_pylist()
    return rows


def column(text: str, name: str, key: str) -> list[Any]:
    return [r[key] for r in table(text, name)]


def accesses(text: str) -> list[tuple[Any, ...]]:
    """Return (op, buffer id, offset, bytes, mode) of every access."""
    tape = parse(text).tape()
    sets: dict[int, list[dict[str, Any]]] = {}
    for a in tape.table("accesses").to_pylist():
        sets.setdefault(a["set"], []).append(a)
    return [
        (o["op"], a["buffer"], a["offset"], a["bytes"], a["mode"])
        for o in tape.table("ops").to_pylist()
        for a in sets.get(o["access_set"], [])
    ]


# --- files without a header ---


def test_first_letter_rule() -> None:
    text = "1 | host | H | | A |\n2 | host | T2 | | B |\n3 | kernel | s0 | A | |\n4 | rdma | nic@T2 | B | |\n"
    rows = table(text, "queues")
    assert [(q["name"], q["kind"]) for q in rows] == [
        ("H", "host_thread"),
        ("T2", "host_thread"),
        ("s0", "queue"),
        ("nic", "queue"),
    ]
    assert [(o["queue"], o["issuer"]) for o in table(text)] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert [d["kind"] for d in table(text, "devices")] == ["host", "gpu"]


def test_device_rows_are_issued_by_h_even_if_it_has_no_row() -> None:
    text = "1 | kernel | s0 | | A |\n2 | kernel | s1 | A | |"
    assert column(text, "queues", "name") == ["s0", "H", "s1"]
    assert column(text, "ops", "issuer") == [1, 1]
    assert column("1 | kernel | s0@? | | A |", "ops", "issuer") == [None]


def test_buffers_cover_all_their_ranges() -> None:
    text = "1 | host | H | | M0[16:32] |\n2 | copy | s0 | M0 | D |\n+3 | host | H | | M0[0:100] |"
    assert [(b["name"], b["bytes"], b["kind"]) for b in table(text, "buffers")] == [
        ("M0", 100, "host"),
        ("D", 4096, "device"),
    ]
    assert accesses(text) == [(0, 0, 16, 16, "write"), (1, 0, 0, 100, "read"), (1, 1, 0, 4096, "write")]


def test_variants() -> None:
    text = "1 | kernel | s0 | | A |\n-2 | record | q | | | e\n+2 | record | s0 | | | e\n3 | wait | s1 | | | e"
    assert [o["label"] for o in table(text)] == ["1", "2", "3"]
    names = [q["name"] for q in table(text, "queues")]
    assert names[table(text)[1]["queue"]] == "q"
    assert names[table(text, variant="fixed")[1]["queue"]] == "s0"
    assert parse(text).has_variants
    assert not parse("1 | host | H").has_variants
    assert parse(text).labels("fixed") == {"1": 0, "2": 1, "3": 2}
    with pytest.raises(UsageError, match="buggy or fixed"):
        parse(text).tape("broken")


def test_bare_alloc_and_free_name_nothing() -> None:
    text = "1 | alloc | H | | |\n2 | free | H"
    assert column(text, "ops", "target") == [None, None]
    assert table(text, "buffers") == []


def test_sync_kinds_follow_the_rows() -> None:
    text = "1 | record | s | | | e\n2 | semsig | s | | | t\n3 | coll | s | | | c\n4 | destroy | H | | | t\n"
    assert [(s["name"], s["kind"]) for s in table(text, "syncs")] == [
        ("e", "event"),
        ("t", "semaphore"),
        ("c", "collective"),
    ]


# --- accesses ---


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("A | B", [("A", "read", "observed", None), ("B", "write", "observed", None)]),
        ("A, B |", [("A", "read", "observed", None), ("B", "read", "observed", None)]),
        ("| A:update", [("A", "update", "observed", None)]),
        ("| B, A:read", [("B", "write", "observed", None), ("A", "read", "observed", None)]),
        ("| A:may_write:inferred", [("A", "may_write", "inferred", None)]),
        (
            "A:declared:name=blk.0.k | B:reduce",
            [("A", "read", "declared", "blk.0.k"), ("B", "reduce", "observed", None)],
        ),
        ('A:name="a, b | c" |', [("A", "read", "observed", "a, b | c")]),
    ],
)
def test_modes_origins_and_names(cells: str, expected: list[tuple[Any, ...]]) -> None:
    text = f"1 | kernel | s0 | {cells} |"
    names = {b["buffer"]: b["name"] for b in table(text, "buffers")}
    got = [(names[a["buffer"]], a["mode"], a["origin"], a["name"]) for a in table(text, "accesses")]
    assert got == expected


@pytest.mark.parametrize(
    ("range_", "expected"),
    [
        ("8:24", (8, 16, 0, 0, None)),
        ("0:16*arg", (0, 0, 0, 16, None)),
        ("0:16+16*arg", (0, 16, 0, 16, None)),
        ("16*arg:16+16*arg", (0, 16, 16, 0, None)),
        ("64-8*arg:64", (64, 0, -8, 8, None)),
        ("0:64/64", (0, 64, 0, 0, 64)),
    ],
)
def test_ranges(range_: str, expected: tuple[int | None, ...]) -> None:
    (a,) = table(f"1 | kernel | s0 | M0[{range_}] | | | arg=3 units=1,2", "accesses")
    assert (a["offset"], a["bytes"], a["offset_per_arg"], a["bytes_per_arg"], a["unit_bytes"]) == expected


def test_unknown_nothing_and_anonymous() -> None:
    text = "1 | kernel | s0 | ? | |\n2 | kernel | s0 | | |\n3 | copy | s0 | ?[0:8] | A |"
    assert column(text, "ops", "access_set") == [None, 0, 1]
    assert [(a["buffer"], a["bytes"]) for a in table(text, "accesses")] == [(None, 8), (0, 4096)]


def test_equal_access_sets_are_one() -> None:
    text = "1 | kernel | s0 | A | B |\n2 | kernel | s1 | A | B |\n3 | kernel | s1 | B | A |"
    assert column(text, "ops", "access_set") == [1, 1, 2]


# --- generations and sub-allocations ---


def test_one_generation_is_one_row() -> None:
    text = "1 | alloc | H | | | A\n2 | host | H | | A |\n3 | free | H | | | A"
    (a,) = table(text, "buffers")
    assert (a["parent"], a["generation"], a["alloc_op"], a["free_op"]) == (None, 0, 0, 2)
    (b,) = table("1 | host | H | | A |\n2 | free | H | | | A", "buffers")
    assert (b["alloc_op"], b["free_op"]) == (None, 1)


def test_generations_of_a_root() -> None:
    text = (
        "1 | alloc | H | | | A\n2 | host | H | | A |\n3 | free | H | | | A\n4 | alloc | H | | | A\n"
        "5 | host | H | A | |\n6 | host | H | A#1 | |\n7 | host | H | A#0 | |"
    )
    assert [
        (b["name"], b["parent"], b["generation"], b["alloc_op"], b["free_op"]) for b in table(text, "buffers")
    ] == [
        ("A", None, 0, None, None),
        ("A", 0, 1, 0, 2),
        ("A", 0, 2, 3, None),
    ]
    assert [(op, buffer) for op, buffer, *_ in accesses(text)] == [(1, 1), (4, 2), (5, 1), (6, 0)]


def test_a_generation_that_lived_before() -> None:
    text = "1 | host | H | | A |\n2 | free | H | | | A\n3 | alloc | H | | | A\n4 | host | H | A | |"
    rows = table(text, "buffers")
    assert [(b["generation"], b["alloc_op"], b["free_op"]) for b in rows] == [
        (0, None, None),
        (1, None, 1),
        (2, 2, None),
    ]
    assert [buffer for _, buffer, *_ in accesses(text)] == [1, 2]


def test_a_plain_name_before_the_alloc_means_what_is_allocated() -> None:
    text = "1 | host | H | | A |\n2 | alloc | H | | | A"
    (a,) = table(text, "buffers")
    assert a["alloc_op"] == 1
    assert [buffer for _, buffer, *_ in accesses(text)] == [0]


def test_named_suballocation() -> None:
    text = (
        "1 | alloc | H | | | A=M0[64:128]\n2 | host | H | | A[0:16] |\n3 | free | H | | | A\n"
        "4 | alloc | H | | | A\n5 | host | H | A, M0 | |"
    )
    rows = table(text, "buffers")
    assert [(b["name"], b["parent"], b["parent_offset"], b["bytes"], b["generation"]) for b in rows] == [
        ("M0", None, None, 128, 0),
        ("A", 0, 64, 64, 0),
        ("A", 0, 64, 64, 1),
    ]
    assert [(b["alloc_op"], b["free_op"]) for b in rows] == [(None, None), (0, 2), (3, None)]
    assert accesses(text) == [(1, 1, 0, 16, "write"), (4, 2, 0, 64, "read"), (4, 0, 0, 128, "read")]


def test_unnamed_suballocation() -> None:
    text = (
        "1 | alloc | H | | | M0[0:64]\n2 | host | H | | M0[16:32] |\n3 | alloc | H | | | M0[32:96]\n"
        "4 | host | H | | M0[40:48] |\n5 | host | H | | M0[16:40] |\n6 | host | H | | M0[96:128] |\n"
        "7 | free | H | | | M0[0:64]\n8 | alloc | H | | | M0[0:64]\n9 | host | H | | M0.0-64#1[0:8] |"
    )
    names = [f"{b['name']}#{b['generation']}" for b in table(text, "buffers")]
    assert names == ["M0#0", "M0.0-64#0", "M0.32-96#0", "M0.0-64#1"]
    assert [(op, names[buffer], offset) for op, buffer, offset, *_ in accesses(text)] == [
        (1, "M0.0-64#0", 16),
        (3, "M0.32-96#0", 8),
        (4, "M0.0-64#0", 16),
        (5, "M0#0", 96),
        (8, "M0.0-64#1", 0),
    ]
    assert [b["free_op"] for b in table(text, "buffers")] == [None, 6, None, None]


# --- extras, edges, header ---


def test_extras() -> None:
    text = (
        "process 0\ndevice host host\nhost H\nsync e event\n"
        '1 | record | H | | | e | id=5 name="a b" step=2 split=1 issue=10 start=-2 dur=7'
        " bytes=9 origin=declared\n"
        "2 | wait | H | | | e | of=1\n3 | wait | H | | | e | state=foreign\n4 | wait | H | | | e\n"
        '.9 | mark | H | | | | parent=1 label="x y"\n'
    )
    rows = table(text)
    assert [r["op"] for r in rows] == [5, 6, 7, 8, 9]
    first = {
        "name": "a b",
        "step": 2,
        "split": 1,
        "issue_ns": 10,
        "start_after_issue_ns": -2,
        "duration_ns": 7,
        "bytes": 9,
    }
    assert {k: rows[0][k] for k in first} == first
    assert rows[0]["origin"] == "declared"
    assert [(r["sync_of"], r["wait_state"]) for r in rows[1:4]] == [
        (5, None),
        (None, "foreign"),
        (None, "contract"),
    ]
    assert (rows[4]["label"], rows[4]["parent"]) == ("x y", 5)


def test_sync_targets() -> None:
    text = "1 | kernel | s0\n2 | sync | H | | | s0\n3 | sync | H | | | device:device\n4 | sync | H | | | *"
    rows = table(text)[1:]
    assert [(r["target_kind"], r["target"]) for r in rows] == [("queue", 0), ("device", 1), ("all", None)]


def test_wait_any_and_lists() -> None:
    text = (
        "1 | record | s | | | a\n2 | record | s | | | b\n3 | wait_any | s | | | b,a\n"
        "4 | kernel | s | K[0:8/8] | | | units=4,1\n5 | kernel | s | K[0:8/8] | | | units=4,1"
    )
    assert [(r["list"], r["unit"]) for r in table(text, "lists")] == [(0, 1), (0, 0), (1, 4), (1, 1)]
    assert column(text, "ops", "list") == [None, None, 0, 1, 1]


def test_edges() -> None:
    text = "1 | host | H\n2 | host | H\nedge 1 -> 2 graph origin=inferred\n+edge 2->1\n"
    assert table(text, "edges") == [{"src": 0, "dst": 1, "kind": "graph", "origin": "inferred"}]
    assert len(table(text, "edges", "fixed")) == 2


def test_header() -> None:
    text = (
        "process 0 complete=no lost=3\nprocess 1 wall_offset=5\n"
        'device cpu host\ndevice .1 gpu name="GPU 0" profile=cuda-legacy process=1\n'
        "host P cpu process=1\nqueue q .1 kind=default order=out clock=gpu clock_error=9\n"
        "coverage P waits=partial times=none\nsync s semaphore device=.1 process=-\n"
        "buffer W 64 device=.1 kind=weights shared=4\nbuffer X#2 16 device=.1 parent=W offset=48\n"
        "buffer Y device=cpu\n"
        'list 3 7,8\nset 2 | W[0:4] | X\nprofile mine {"free_synchronises": true}\nmeta lost 3\n'
        "1 | kernel | q@P | | | | set=2 list=3\n2 | alloc | P | | | X#2\n"
    )
    tape = parse(text).tape()
    assert tape.manifest.processes == (Process(0, complete=False, lost=3), Process(1, wall_offset_ns=5))
    assert tape.manifest.coverage == (Coverage(0, waits="partial", times="none"),)
    assert tape.manifest.profiles == {"mine": {"free_synchronises": True}}
    assert tape.manifest.lost == 3
    assert [d["name"] for d in tape.table("devices").to_pylist()] == ["cpu", "GPU 0"]
    queue = tape.table("queues").to_pylist()[1]
    assert (queue["kind"], queue["in_order"], queue["clock"], queue["clock_error_ns"]) == (
        "default",
        False,
        "gpu",
        9,
    )
    assert tape.table("syncs").to_pylist()[0]["process"] is None
    rows = tape.table("buffers").to_pylist()
    assert [(b["bytes"], b["kind"], b["generation"], b["shared_key"]) for b in rows] == [
        (64, "weights", 0, 4),
        (16, "device", 2, None),
        (None, "host", 0, None),
    ]
    assert rows[1]["alloc_op"] == 1
    op = tape.table("ops").to_pylist()[0]
    assert (op["access_set"], op["list"]) == (2, 3)


# --- verdicts, notes, files ---

BUGGY = "# id: X1\n# source: own\n1 | kernel | s0 | | A |\n+2 | sync | H | | | s0\n2x | kernel | s1 | A | |\n"


def test_verdicts() -> None:
    litmus = parse(BUGGY + "race: 1 x 2x RAW A[0:64]; 1 x 2x WAR\npossible: 1x2x RAW A\n")
    assert litmus.verdicts() == (
        Verdict("race", "1", "2x", "RAW", "A", 0, 64),
        Verdict("race", "1", "2x", "WAR"),
        Verdict("possible", "1", "2x", "RAW", "A"),
    )
    assert litmus.verdicts("fixed") == (Verdict("clean"),)
    assert litmus.notes == {"id": "X1", "source": "own"}
    assert [v.text() for v in litmus.verdicts()] == ["1 x 2x RAW A[0:64]", "1 x 2x WAR", "1 x 2x RAW A"]


def test_a_process_that_was_cut_implies_an_incomplete_tape() -> None:
    text = "process 0 complete=no lost=3\nprocess 1 lost=1\n1 | host | H\n"
    tape = parse(text).tape()
    assert (tape.manifest.complete, tape.manifest.lost) == (False, 4)
    assert validate(tape) == []
    assert parse("meta lost 9\n" + text).tape().manifest.lost == 9
    whole = parse("process 0\n1 | host | H\n").tape().manifest
    assert (whole.complete, whole.lost) == (True, 0)


def test_fixed_verdicts() -> None:
    litmus = parse(BUGGY + "deadlock: 2x, 1\nfixed: lifetime: 1x2 use-after-free A\nfixed: unknown:\n")
    assert litmus.verdicts() == (Verdict("deadlock", labels=("1", "2x")),)
    assert litmus.verdicts("fixed") == (
        Verdict("lifetime", "1", "2", "use-after-free", "A"),
        Verdict("unknown"),
    )
    assert parse(BUGGY).verdicts() == ()
    assert parse("1 | host | H\nclean").verdicts("fixed") == (Verdict("clean"),)


def ops(tape: Tape) -> int:
    n: int = tape.table("ops").num_rows
    return n


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "x.litmus"
    file.write_bytes(BUGGY.replace("\n", "\r\n").encode())
    for suffix, rows in (("", 2), (":buggy", 2), ("-", 2), (":fixed", 3), ("+", 3)):
        assert ops(load(f"{file}{suffix}")) == rows
        assert ops(load_tape(f"{file}{suffix}")) == rows
    assert load(file).name == "x.litmus"
    assert read(file).name == "x.litmus"
    with pytest.raises(MissingInput, match=r"nothere\.litmus: cannot be opened: No such file"):
        load(tmp_path / "nothere.litmus")
