"""The window of a tape: a range of its ops and what they need."""

from __future__ import annotations

from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.window import window

TABLES = ("devices", "queues", "syncs", "buffers", "accesses", "ops", "edges", "lists")

TEXT = """
1 | alloc | H | | | A=M0[0:64]
2 | kernel | s0 | | A |
3 | record | s0 | | | e
4 | semsig | s0 | | | s
5 | compute | s1 | | |
6 | wait | s1 | | | e
7 | kernel | s1 | A | B |
8 | semwait | s2 | | | s
9 | kernel | s2 | B[0:8/8] | C | | units=4,5
10 | wait_any | s2 | | | e,f
11 | kernel | s3 | C | D | | parent=5
12 | coll | s1 | | | c
13 | coll | s2 | | | c
14 | free | H | | | A
"""


def cut(begin: int, end: int) -> Tape:
    tape = window(parse(TEXT).tape(), begin, end)
    assert validate(tape) == []
    return tape


def labels(tape: Tape) -> list[str]:
    rows: list[str] = tape.table("ops").column("label").to_pylist()
    return rows


def names(tape: Tape, table: str) -> list[str]:
    rows: list[str] = tape.table(table).column("name").to_pylist()
    return rows


def test_window_keeps_ids_and_drops_what_nothing_names() -> None:
    tape = cut(1, 3)
    assert tape.table("ops").column("op").to_pylist() == [1, 2]
    assert names(tape, "buffers") == ["M0", "A"]
    assert names(tape, "syncs") == ["e"]
    (root, sub) = tape.table("buffers").to_pylist()
    assert (root["buffer"], sub["parent"], sub["alloc_op"], sub["free_op"]) == (0, 0, None, None)
    assert tape.table("accesses").column("set").to_pylist() == [1]


def test_whole_window_is_the_tape() -> None:
    tape = parse(TEXT).tape()
    for name in TABLES:
        assert window(tape, 0, 99).table(name).to_pylist() == tape.table(name).to_pylist(), name


def test_window_keeps_parents_and_collectives() -> None:
    assert labels(cut(10, 11)) == ["5", "11"]
    assert labels(cut(12, 13)) == ["12", "13"]
    assert labels(cut(99, 100)) == []


def test_a_wait_for_an_earlier_record_is_no_edge() -> None:
    text = "1 | record | s0 | | | e\n2 | wait | s1 | | | e | of=1\n3 | kernel | s1 | A | |"
    tape = window(parse(text).tape(), 1, 9)
    (wait, _) = tape.table("ops").to_pylist()
    assert (wait["sync_of"], wait["wait_state"]) == (None, "none")


def test_semaphores_across_the_border() -> None:
    tape = cut(4, 9)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == [
        "compute",
        "wait",
        "kernel",
        "mark",
        "kernel",
    ]
    text = TEXT + "15 | semsig | s0 | | | s\n16 | semwait | s3 | | | s\n17 | kernel | s3 | D | |\n"
    tape = window(parse(text).tape(), 13, 99)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == ["free", "mark", "mark", "kernel"]
    assert [(e["src"], e["dst"]) for e in tape.table("edges").to_pylist()] == [(14, 15)]
    assert names(tape, "syncs") == []


def test_a_wait_that_never_ends_stays_one() -> None:
    text = (
        "1 | semsig | s0 | | | s\n2 | semwait | s1 | | | s\n3 | semwait | s1 | | | s\n4 | kernel | s1 | A | |"
    )
    tape = window(parse(text).tape(), 1, 9)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == ["mark", "semwait", "kernel"]
