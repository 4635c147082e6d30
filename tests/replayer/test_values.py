"""Values on models made by hand: what is wrong under which delay, what it saw, and what is right."""

from __future__ import annotations

import pytest

from tapedelay.formats.delays import Delays
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.program import Program

from .playing import play

# Two queues, nothing between them: `late` turns the pair around, without it the order is the reference.
RAW = """
1 | kernel | q |        | A[0:8] |
2 | kernel | r | A[0:8] |        | | issue=2000
"""
WAR = """
1 | kernel | q | A[0:8] |        |
2 | kernel | r |        | A[2:6] | | issue=2000
"""
WAW = """
1 | kernel | q |   | A[0:8] |
2 | kernel | r |   | A[4:8] | | issue=2000
"""


def after(text: str) -> str:
    """Return the text with a first row that begins the tape at 0."""
    return text.replace("1 | kernel | q", "0 | host | H | | | | issue=0 dur=0\n1 | kernel | q", 1)


@pytest.mark.parametrize(
    ("text", "late", "wrong"),
    [
        (RAW, "", []),
        (RAW, "1 before_start 9000", ["2 stale at 2000: 0:8=begin not 0:8=1"]),
        (RAW, "1 before_start 1500", ["2 torn at 2000: 0:8=1(torn) not 0:8=1"]),
        (RAW, "1 before_start 2500", ["2 stale at 2000: 0:8=begin not 0:8=1"]),  # what it was first
        (RAW, "1 before_start 1000", []),  # it ends as the other starts
        (WAR, "", []),
        (WAR, "1 before_start 9000", ["1 stale at 9000: 2:6=2 not 2:6=begin"]),
        (WAR, "1 before_start 1500", ["1 torn at 2000: 2:6=2(torn) not 2:6=begin"]),
        (WAR, "1 before_start 2500", ["1 torn at 2500: 2:6=2(torn) not 2:6=begin"]),
        (WAW, "", []),
        (WAW, "1 before_start 9000", ["end stale at 10000: 4:8=1 not 4:8=2"]),
        (WAW, "1 before_start 1500", ["end torn at 3000: 4:8=2(torn) not 4:8=2"]),
        (WAW, "1 before_start 2500", ["end torn at 3500: 4:8=1(torn) not 4:8=2"]),
    ],
)
def test_pairs_in_both_orders_and_overlapping(text: str, late: str, wrong: list[str]) -> None:
    assert play(after(text), late).wrong() == wrong


def test_an_edge_makes_each_of_them_right() -> None:
    for text in (RAW, WAR, WAW):
        for ns in (1000, 1500, 2500, 9000):
            assert play(after(text) + "edge 1 -> 2", f"1 before_start {ns}").wrong() == []


def test_a_write_that_nobody_missed_is_not_wrong() -> None:
    text = after(WAW) + "3 | kernel | r | | A[0:8] | \nedge 1 -> 3\n"
    assert play(text, "1 before_start 9000").wrong() == []


def test_what_comes_out_of_a_wrong_read_is_derived_and_leads_to_the_host() -> None:
    text = """
    0 | host   | H |        |        |   | issue=0 dur=0
    1 | kernel | q |        | A[0:8] |
    2 | kernel | r | A[0:4] | B[0:8] |   | issue=2000
    3 | kernel | r | C[0:8] | D[0:8] |
    4 | copy   | r | B[0:8] | M[0:8] |
    5 | sync   | H |        |        | r
    6 | host   | H | M[0:1], D[0:8] | |
    """
    assert play(text).wrong() == []
    p = play(text, "1 before_start 9000")
    assert p.wrong() == [
        "2 stale at 2000: 0:4=begin not 0:4=1",
        "4 stale derived at 4000: 0:8=2(derived) not 0:8=2",
        "6 stale derived at 5000: 0:1=4(derived) not 0:1=4",
        "end stale derived at 10000: 0:8=2(derived) not 0:8=2",
        "end stale derived at 10000: 0:8=4(derived) not 0:8=4",
    ]
    assert p.chain() == "2 4 6"
    assert play(text.replace("M[0:1], ", ""), "1 before_start 9000").chain() == "2 end"
    assert p.outcome.first is not None
    assert (p.outcome.first.row, p.outcome.first.root, p.outcome.first.begin, p.outcome.first.end) == (
        2,
        0,
        0,
        4,
    )


def test_a_host_thread_that_reads_wrong_itself_is_the_chain() -> None:
    p = play("1 | kernel | q | | A[0:8] |\n2 | host | H | A[0:8] | |", "1 before_start 9000")
    assert p.chain() == "2"
    p = play(after(WAW), "1 before_start 9000")
    assert p.chain() == "end"


def test_only_the_bytes_that_differ_are_named() -> None:
    text = """
    0 | host   | H |         |          | | issue=0 dur=0
    1 | kernel | q |         | A[0:16]  |
    2 | kernel | q |         | A[4:6]   |
    3 | kernel | q |         | A[6:8], A[10:12] |
    4 | kernel | r | A[2:14] |          | | issue=9000
    """
    assert play(text).wrong() == []
    assert play(text, "2 before_start 9000").wrong() == [
        "4 stale at 9000: 4:8=1,10:12=1 not 4:6=2,6:8=3,10:12=3"
    ]


def test_update_depends_on_what_was_there() -> None:
    text = """
    1 | kernel | q |  | A[0:8]        |   | dur=10
    2 | kernel | q |  | A[0:8]:update |   | dur=10
    3 | kernel | r |  | A[0:8]:update |   | dur=10
    4 | kernel | r | A |               |   | dur=10
    """
    p = play(text + "edge 1 -> 3\nedge 2 -> 3", "")
    assert p.wrong() == []
    p = play(text + "edge 1 -> 3", "2 before_start 500")
    assert p.wrong() == [
        "3 stale at 10: 0:8=1 not 0:8=2",
        "4 stale derived at 20: 0:8=3(derived) not 0:8=3",
        "2 stale at 510: 0:8=3 not 0:8=1",
        "end stale at 520: 0:8=2 not 0:8=3",
    ]


def test_reduce_commutes_and_may_write_does_not() -> None:
    text = """
    1 | kernel | q |  | A[0:8]:{0} |   | dur=10
    2 | kernel | r |  | A[2:6]:{0} |   | dur=10
    3 | kernel | s | A |            |   | dur=10
    edge 1 -> 3
    edge 2 -> 3
    """
    for late in ("", "1 before_start 5", "1 before_start 500", "2 before_start 500"):
        assert play(text.format("reduce"), late).wrong() == []
    assert play(text.format("may_write"), "2 before_start 500").wrong() == []
    wrong = play(text.format("may_write"), "1 before_start 500").wrong()
    assert wrong[0] == "3 stale at 510: 0:8=1 not 0:2=1,2:6=2,6:8=1"


def test_reduce_is_not_read_by_its_own_op_but_misses_a_write() -> None:
    text = """
    1 | kernel | q |  | A[0:8]        |   | dur=10
    2 | kernel | r |  | A[0:8]:reduce |   | issue=2000 dur=10
    3 | kernel | s | A |               |   | issue=9000 dur=10
    """
    text = "0 | host | H | | | | issue=0 dur=0\n" + text
    assert play(text).wrong() == []
    assert play(text, "1 before_start 5000").wrong()[0] == "3 stale at 9000: 0:8=1 not 0:8=2"


def test_kin_never_tear() -> None:
    text = """
    1 | kernel | q | A[0:8] | B[0:8] |   |
    2 | kernel | q |        | A[0:4] |   | parent=1
    3 | kernel | r | A[0:4] | C[0:4] |   | parent=1
    edge 2 -> 3
    """
    assert play(text).wrong() == []
    assert play(text, "3 before_start 700").wrong() == []
    # Siblings that nothing orders do.
    loose = text.replace("edge 2 -> 3", "")
    assert play(loose).wrong()[0] == "3 torn at 0: 0:4=2(torn) not 0:4=2"


def test_members_of_a_collective_exchange_what_they_hold() -> None:
    text = """
    1 | kernel | q |        | A[0:8] |   | dur=10
    2 | coll   | q | A[0:8] | A[0:8] | c | dur=10
    3 | coll   | r | B[0:8] | B[0:8] | c | dur=10
    4 | kernel | r | B[0:8] |        |   | dur=10
    5 | kernel | s |        | A[0:8] |   | dur=10
    edge 5 -> 1
    """
    assert play(text).wrong() == []
    broken = text.replace("edge 5 -> 1", "edge 1 -> 5")
    # 5 lies between what is written for the collective and the collective: the other member's reader sees it
    assert "4 stale derived at 20: 0:8=3(derived) not 0:8=3" in play(broken, "5 after_end 0").wrong()


def test_growing_and_listed_ranges() -> None:
    text = """
    0 | host   | H |                  |                | | issue=0 dur=0
    1 | kernel | q |                  | KV[0+8*arg:8+8*arg] | | arg=0
    2 | kernel | q |                  | KV[0+8*arg:8+8*arg] | | arg=1
    3 | kernel | r | KV[0:8+8*arg]    |                | | arg=1 issue=5000
    4 | kernel | r | KV[0:8/8]        |                | | units=0
    5 | kernel | r | KV[0:8/8]        |                | | units=1,0
    """
    assert play(text).wrong() == []
    assert play(text, "2 before_start 99000").wrong() == [
        "3 stale at 5000: 8:16=begin not 8:16=2",
        "5 stale at 7000: 8:16=begin not 8:16=2",
    ]


def test_memory_behind_several_names_is_one() -> None:
    text = """
    device host host
    device gpu gpu
    host H host
    queue q gpu
    queue r gpu
    buffer A 16 device=gpu shared=1
    buffer B 16 device=host shared=1
    buffer C 8 device=gpu parent=A offset=4
    1 | kernel | q |  | B[4:8] |
    2 | kernel | r | C[0:4] | |
    """
    assert play(text, "1 before_start 5000").wrong() == ["2 stale at 0: 4:8=begin not 4:8=1"]
    assert play(text + "edge 1 -> 2", "1 before_start 5000").wrong() == []


FREED = """
1 | alloc  | H |        |        | A
2 | kernel | q |        | A[0:8] |   | dur=10
3 | sync   | H |        |        | q
4 | free   | H |        |        | A
5 | host   | H |        | B[0:8] |
"""


def test_use_of_freed_memory() -> None:
    assert play(FREED).wrong() == []
    broken = FREED.replace("3 | sync   | H |        |        | q\n", "")
    assert play(broken).wrong() == ["2 freed at 0:  not "]
    assert play(broken, "2 before_start 500").wrong() == ["2 freed at 500:  not "]
    assert play(broken, "4 before_start 5").wrong() == ["2 freed at 5:  not "]  # while it runs
    assert play(broken, "4 before_start 10").wrong() == []  # it is done by then


def test_use_before_alloc() -> None:
    text = """
    1 | kernel | q |  | A[0:8] |  | dur=10
    2 | alloc  | T |  |        | A
    """
    assert play(text).wrong() == ["1 freed at 0:  not "]
    assert play(text, "1 before_start 1").wrong() == []


def test_use_of_a_destroyed_event() -> None:
    text = """
    1 | kernel  | q |  | A[0:8] |   | dur=10
    2 | record  | q |  |        | e
    3 | wait    | r |  |        | e
    4 | destroy | H |  |        | e
    """
    assert play(text).wrong() == ["2 destroyed at 10:  not ", "3 destroyed at 10:  not "]
    synced = text.replace("4 | destroy", "5 | sync | H | | | r\n4 | destroy")
    assert play(synced).wrong() == []
    assert play(synced, "1 before_start 900").wrong() == []


def test_memory_that_is_gone_is_not_read_at_the_end() -> None:
    text = after(WAW)
    assert play(text, "1 before_start 9000").wrong() != []
    gone = text + "3 | sync | H | | | *\n4 | free | H | | | A\n"
    assert play(gone, "1 before_start 9000").wrong() == []


def test_limit_keeps_the_first_facts() -> None:
    lines = ["1 | kernel | q | | A[0:8] |", *(f"k{i} | kernel | r | A | |" for i in range(20))]
    program = Program.from_tape(parse("\n".join(lines)).tape())
    delays = Delays.of([(0, 1, 10**6)])
    all_ = VirtualBackend().load(program, Options()).run(delays)
    few = VirtualBackend().load(program, Options(wrong_limit=3)).run(delays)
    assert all_.wrong_count == few.wrong_count == len(all_.wrong) == 20
    assert few.wrong == all_.wrong[:3]
    assert few.chain == all_.chain


def test_at_most_sixteen_parts_are_told() -> None:
    lines = [f"w{i} | kernel | q | | A[{2 * i}:{2 * i + 1}] |" for i in range(40)]
    p = play("\n".join([*lines, "r | kernel | r | A[0:80] | |"]), "w0 before_start 99")
    first = p.outcome.first
    assert first is not None
    assert len(first.saw) == len(first.expected) == 16


def test_reads_are_counted() -> None:
    assert play(after(RAW)).outcome.reads == 2  # the one op's, and the host's at the end
    assert play(FREED).outcome.reads == 1  # A is gone


def test_long_prefix_of_many_versions() -> None:
    tokens = 3000
    lines = ["0 | host | H | | | | issue=0 dur=0"]
    for i in range(tokens):
        lines.append(f"a{i} | kernel | q | | KV[0+8*arg:8+8*arg] | | arg={i}")
        lines.append(f"r{i} | kernel | q | KV[0:8+8*arg] | O[0:8] | | arg={i}")
    lines.append("x | kernel | r | KV[0:24000] | | | issue=9000000")
    text = "\n".join(lines)
    assert play(text).outcome.wrong_count == 0
    p = play(text, "a1500 before_start 9000000")
    first = p.outcome.first
    assert first is not None
    assert (p.name(first.row), first.saw[0].begin, first.saw[0].end) == ("x", 12000, 24000)
