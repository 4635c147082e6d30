"""Where the time goes: per queue, the critical path, and a run as a tape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.write import write_tape
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.replay import replay
from tapedelay.replayer.replay.result_tape import result_tape

TRACES = Path(__file__).resolve().parents[2] / "traces"

TWO = """
1 | kernel | a | | X |
2 | kernel | a | | Y |
3 | record | a | | | e
4 | wait | b | | | e
5 | kernel | b | X | Z |
6 | kernel | c | | W |
"""


def two() -> Tape:
    return parse(TWO).tape()


def test_time_per_queue() -> None:
    time = replay(two()).time
    assert time.total_ns == 3_000
    assert {q.name: (q.ops, q.busy_ns, q.idle_ns, q.first_ns, q.last_ns) for q in time.queues} == {
        "a": (3, 2_000, 1_000, 0, 2_000),
        "b": (2, 1_000, 2_000, 2_000, 3_000),
        "c": (1, 1_000, 2_000, 0, 1_000),
    }


def test_the_critical_path() -> None:
    result = replay(two())
    path = result.time.path
    assert path.rows == (0, 1, 2, 3, 4)
    assert path.gap_ns == 0
    assert sum(path.busy_ns.values()) == 3_000
    longer = replay(two(), delays="first op on c +7us").time
    assert longer.path.rows == (5,)
    assert longer.path.gap_ns == 7_000
    assert longer.total_ns == 8_000


def test_a_path_through_parts_and_alternatives() -> None:
    tape = parse(
        "1 | kernel | a | | A |\n2 | record | a | | | e\n3 | kernel | b | | B |\n4 | kernel | b | | B |\n"
        "5 | record | b | | | f\n6 | wait_any | c | | | e,f\n7 | compute | c | | |\n"
        "8 | kernel | d | | D | | parent=7\n9 | kernel | d | | D | | parent=7\n"
    ).tape()
    result = replay(tape)
    labels = [result.names.of(r).label for r in result.time.path.rows]
    assert labels == ["1", "2", "6", "8", "9"]
    assert result.time.total_ns == 3_000


def test_nothing_ran() -> None:
    time = replay(parse("1 | semwait | H | | | s\n").tape()).time
    assert (time.total_ns, time.queues, time.path.rows) == (0, (), ())


def test_busy_time_does_not_count_twice() -> None:
    tape = parse("queue q order=out\nhost H\n1 | kernel | q | | A |\n2 | kernel | q | | B |\n").tape()
    (queue,) = replay(tape, delays="#1 +500ns").time.queues
    assert (queue.busy_ns, queue.idle_ns) == (1_500, 0)


@pytest.mark.parametrize("name", ["bad", "good"])
def test_a_run_is_a_tape_again(name: str, tmp_path: Path) -> None:
    tape = load_tape(TRACES / f"ggml-26040-{name}.tape.zip")
    result = replay(tape)
    again = result_tape(result.source, result.outcome, note="replayed")
    assert [str(v) for v in validate(again)] == []
    path = write_tape(again, tmp_path / "again.tape.zip")
    read = load_tape(path)
    assert read.manifest.notes[-1] == "replayed"
    assert check_tape(read).verdict_lines() == check_tape(tape).verdict_lines()
    for table in ("buffers", "accesses", "edges", "queues", "syncs"):
        assert read.table(table).to_pylist() == tape.table(table).to_pylist()
    times = replay(read).outcome
    for a, b in (
        (times.issue_ns, result.outcome.issue_ns),
        (times.start_ns, result.outcome.start_ns),
        (times.end_ns, result.outcome.end_ns),
    ):
        assert np.array_equal(a, b)


def test_a_delayed_run_holds_its_delays() -> None:
    tape = two()
    result = replay(tape, delays=["first kernel on b +7us", "first kernel on a +2us after_end"])
    ops = result_tape(tape, result.outcome, note="").table("ops").to_pylist()
    assert [(o["issue_ns"], o["start_after_issue_ns"], o["duration_ns"]) for o in ops] == [
        (0, 0, 3_000), (0, 3_000, 1_000), (0, 4_000, 0), (0, 4_000, 0), (0, 11_000, 1_000), (0, 0, 1_000),
    ]  # fmt: skip


def test_what_never_started_has_no_times() -> None:
    tape = parse("1 | semwait | H | | | s\n2 | kernel | q | | A |\n3 | kernel | r@H2 | | A |\n").tape()
    result = replay(tape)
    ops = result_tape(tape, result.outcome, note="").table("ops").to_pylist()
    assert [o["start_after_issue_ns"] for o in ops] == [None, None, 0]
    assert ops[2]["duration_ns"] == 1_000
