"""A tape as a program: durations, gaps, names, windows by ops and by steps."""

from __future__ import annotations

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.delays import Delays
from tapedelay.formats.errors import UsageError
from tapedelay.formats.litmus import parse
from tapedelay.formats.schema import OP_KINDS
from tapedelay.formats.tape import Tape
from tapedelay.formats.window import window
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.program import Program, window_of_steps

WORK = {"host", "kernel", "compute", "copy", "memset", "rdma", "coll"}


@pytest.mark.parametrize("kind", OP_KINDS)
def test_only_work_takes_time(kind: str) -> None:
    b = TapeBuilder()
    host = b.device(name="host", kind="host")
    h = b.queue(device=host, name="H", kind="host_thread")
    s = b.sync(name="s", kind="event")
    more = {"sync": s} if kind in ("record", "wait", "semsig", "semwait", "coll", "destroy") else {}
    if kind == "wait_any":
        more = {"list": b.unit_list([s])}
    if kind == "sync":
        more = {"target_kind": "all"}  # type: ignore[dict-item]
    for duration in (None, 70):
        b.op(kind=kind, queue=h, issuer=h, access_set=0, duration_ns=duration, **more)
    assert Program.from_tape(b.build()).duration_ns.tolist() == ([1000, 70] if kind in WORK else [0, 0])


def test_columns_and_names() -> None:
    text = "first | host | H | | A[0:8] |\n.7 | kernel | q@? | A | |"
    p = Program.from_tape(parse(text).tape())
    assert p.rows == 2
    assert p.op_ids.tolist() == [0, 7]
    assert p.queue.tolist() == [0, 1]
    assert p.issuer.tolist() == [0, -1]
    assert [p.labels(0), p.labels(1)] == ["first", "#7"]
    assert p.notes == ()


def test_gaps_count_from_the_latest_moment_of_the_thread() -> None:
    text = """
    1 | kernel | q   |  | A[0:8] | | issue=50
    2 | host   | H   |  | B[0:8] | | issue=60 dur=100
    3 | kernel | q   |  | A[0:8] | | issue=130
    4 | kernel | q   |  | A[0:8] | | issue=165
    5 | kernel | q   |  | A[0:8] |
    6 | host   | T   |  | C[0:8] | | issue=55 dur=1
    """
    assert Program.from_tape(parse(text).tape()).gap_ns.tolist() == [0, 10, 0, 5, 0, 5]


def stepped() -> Tape:
    text = """
    1 | host   | H |        | A[0:8] |
    2 | kernel | q | A      | B[0:8] | | step=0
    3 | host   | H |        | A[0:8] |
    4 | kernel | q | A      | B[0:8] | | step=1
    5 | kernel | q | B      | C[0:8] | | step=1
    6 | kernel | q | C      | D[0:8] | | step=3
    """
    return parse(text).tape()


def test_window_of_steps() -> None:
    tape = stepped()
    assert window_of_steps(tape, 1, 2).table("ops")["op"].to_pylist() == [3, 4]
    assert window_of_steps(tape, 0, 2).table("ops")["op"].to_pylist() == [1, 2, 3, 4]
    assert window_of_steps(tape, 1, 9).table("ops")["op"].to_pylist() == [3, 4, 5]
    with pytest.raises(UsageError, match=r"no op of steps 2:3 \(expected steps of 0:4\)") as error:
        window_of_steps(tape, 2, 3)
    assert error.value.next_step == "say --steps 0:4, or a part of it"
    with pytest.raises(UsageError, match="whose ops have no step") as error:
        window_of_steps(parse("1 | host | H | | A[0:8] |").tape(), 0, 1)
    assert "`tapedelay record --tap`" in error.value.next_step


def test_a_window_says_what_it_does_not_replay() -> None:
    program = Program.from_tape(window(stepped(), 2, 4))
    assert program.notes == ("a window 2:4 of 6 ops: what the ops outside of it do is not replayed",)
    outcome = VirtualBackend().load(program, Options()).run(Delays.of())
    assert outcome.notes == program.notes


def test_a_wait_that_was_not_seen_is_told() -> None:
    text = "1 | wait | q | | | e | state=unresolved\n2 | kernel | q | | A[0:8] |"
    assert Program.from_tape(parse(text).tape()).notes == (
        "1 wait without a known record: here they wait for nothing",
    )
