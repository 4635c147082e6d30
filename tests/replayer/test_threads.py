"""The threads backend by itself: real waits, pins, what it refuses, and that it always comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.delays import Delays
from tapedelay.formats.delays.resolved import AFTER_END, BEFORE_ISSUE, BEFORE_START
from tapedelay.formats.errors import Unsupported, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Manifest, Tape
from tapedelay.replayer.backends.protocol import Options, Pin
from tapedelay.replayer.backends.threads import MAX_THREADS, LoadedThreads, ThreadsBackend
from tapedelay.replayer.outcome import AT_END, Outcome, Seen
from tapedelay.replayer.program import Program

from .aiming import NONE

MS = 1_000_000
MARGIN = 20 * MS
"""Enough for the other op to be over on a busy machine."""


def _tape(text: str) -> Tape:
    return parse(textwrap.dedent(text)).tape()


def _load(text: str, **options: object) -> LoadedThreads:
    return ThreadsBackend().load(Program.from_tape(_tape(text)), Options(**options))  # type: ignore[arg-type]


def _pin(*schedule: int) -> Pin:
    return Pin(np.array(schedule, np.int32))


def _facts(outcome: Outcome) -> list[tuple[int, str]]:
    return [(w.row, w.kind) for w in outcome.wrong]


READ_TOO_EARLY = """
    1 | kernel | q0 |    | M0
    2 | kernel | q1 | M0 | Y
    3 | sync   | H  |    |    | *
    4 | host   | H  | Y  |
"""


# --- free: aimed delays, both directions ---


def test_a_delay_turns_two_ops_around_and_the_other_one_does_not() -> None:
    loaded = _load(READ_TOO_EARLY)
    early = loaded.run(Delays.of([(0, BEFORE_START, MARGIN)]))
    assert _facts(early) == [(1, "stale"), (3, "stale"), (AT_END, "stale")]
    assert early.wrong[0].saw == (Seen(0, 4096, -1),)
    assert early.wrong[0].expected == (Seen(0, 4096, 0),)
    assert [w.derived for w in early.wrong] == [False, True, True]
    assert early.chain == (1, 3)
    assert loaded.run(Delays.of([(1, BEFORE_START, MARGIN)])).clean
    assert loaded.run(Delays.of([(1, BEFORE_ISSUE, MARGIN)])).clean
    loaded.close()


def test_an_edge_holds_against_every_delay() -> None:
    fixed = READ_TOO_EARLY.replace(
        "    2 |", "    r | record | q0 | | | e\n    w | wait | q1 | | | e\n    2 |"
    )
    loaded = _load(fixed)
    for row in range(6):
        for place in (BEFORE_ISSUE, BEFORE_START, AFTER_END):
            assert loaded.run(Delays.of([(row, place, 3 * MS)])).clean
    loaded.close()


def test_a_write_during_a_read_tears_it() -> None:
    loaded = _load(
        """
        1 | kernel | q0 | M0[0:64]  | Y  |    | dur=30000000
        2 | kernel | q1 |           | M0[32:96]
        """
    )
    outcome = loaded.run(Delays.of([(1, BEFORE_START, 10 * MS)]))
    assert outcome.first is not None
    assert (outcome.first.row, outcome.first.kind) == (0, "torn")
    assert outcome.first.saw == (Seen(32, 64, 1, "torn"),)
    assert outcome.first.at_ns == outcome.start_ns[1]
    assert loaded.run(Delays.of([(1, BEFORE_START, 60 * MS)])).clean
    loaded.close()


def test_delays_are_slept() -> None:
    loaded = _load("1 | kernel | q0\n2 | kernel | q0\n3 | kernel | q0")
    outcome = loaded.run(
        Delays.of([(0, BEFORE_ISSUE, 3 * MS), (1, BEFORE_START, 4 * MS), (2, AFTER_END, 5 * MS)])
    )
    assert outcome.issue_ns[0] >= 3 * MS
    assert outcome.start_ns[1] - outcome.end_ns[0] >= 4 * MS
    assert outcome.end_ns[2] - outcome.start_ns[2] >= 5 * MS
    loaded.close()


def test_gaps_and_durations_are_scaled_and_delays_are_not() -> None:
    text = """
        1 | kernel | q0 | | | | issue=0 start=0 dur=8000000
        2 | host   | H  | | | | issue=40000000 start=0 dur=0
    """
    slow, fast = _load(text), _load(text, time_scale=0.5)
    delays = Delays.of([(0, BEFORE_START, 6 * MS)])
    for loaded, scale in ((slow, 1.0), (fast, 0.5)):
        outcome = loaded.run(delays)
        assert outcome.start_ns[0] >= 6 * MS
        assert outcome.end_ns[0] - outcome.start_ns[0] >= scale * 8 * MS
        assert outcome.issue_ns[1] >= scale * 40 * MS
        loaded.close()
    assert _load(text, time_scale=0.0).run(NONE).total_ns < 40 * MS


# --- rules of the edge contract, on real threads ---


def test_a_blocking_copy_holds_up_its_thread() -> None:
    loaded = _load(
        """
        device host host
        device g gpu profile=cuda-pageable
        host H host
        queue q g
        buffer M 64 device=host kind=host
        buffer D 64 device=g
        1 | copy | q | D | M
        2 | host | H | M |
        """
    )
    outcome = loaded.run(Delays.of([(0, BEFORE_START, 5 * MS)]))
    assert outcome.clean
    assert outcome.start_ns[1] >= outcome.end_ns[0] > 5 * MS
    loaded.close()


def test_a_semaphore_is_signalled_after_the_wait_was_issued() -> None:
    loaded = _load(
        """
        1 | semwait | q1 |    |    | s | value=2
        2 | kernel  | q1 | M0 |
        3 | kernel  | q0 |    | M0
        4 | semsig  | q0 |    |    | s | value=2
        """
    )
    outcome = loaded.run(Delays.of([(2, BEFORE_START, 5 * MS)]))
    assert outcome.clean
    assert outcome.issue_ns[0] < 5 * MS < outcome.start_ns[1]
    loaded.close()


def test_ops_of_a_queue_that_is_not_in_order_overlap() -> None:
    rows = "\n".join(f"{i} | kernel | q | | M{i} | | dur=20000000" for i in range(20))
    loaded = _load(f"host H\nqueue q order=out\n{rows}\nedge 0 -> 7")
    outcome = loaded.run(NONE)
    assert outcome.clean
    free = [i for i in range(20) if i != 7]
    assert outcome.start_ns[free].max() < outcome.end_ns[free].min()
    assert outcome.start_ns[7] >= outcome.end_ns[0]
    assert outcome.total_ns < 20 * 20 * MS
    loaded.close()


def test_a_collective_starts_when_all_members_can() -> None:
    loaded = _load("1 | coll | q0 | A | | c\n2 | coll | q1 | B | A | c\n3 | kernel | q0 | A |")
    outcome = loaded.run(Delays.of([(1, BEFORE_START, 5 * MS)]))
    assert outcome.clean
    assert outcome.start_ns[0] == outcome.start_ns[1] >= 5 * MS
    loaded.close()


def test_reduces_commute_and_a_write_does_not_pass_them() -> None:
    text = """
        1 | kernel | q0 |    | M0:reduce
        2 | kernel | q1 |    | M0:{mode}
        3 | sync   | H  |    |            | *
        4 | host   | H  | M0 |
    """
    late = Delays.of([(0, BEFORE_START, MARGIN)])
    loaded = _load(text.format(mode="reduce"))
    assert loaded.run(late).clean
    loaded.close()
    loaded = _load(text.format(mode="update"))
    assert _facts(loaded.run(late))[0] == (1, "stale")
    loaded.close()


def test_memory_and_events_that_are_gone() -> None:
    loaded = _load(
        "1 | kernel | q0 | M0 | Y\n2 | free | H | | | M0\n3 | record | q0 | | | e\n4 | destroy | H | | | e"
    )
    gone = loaded.run(Delays.of([(0, BEFORE_START, MARGIN)]))
    assert sorted(_facts(gone)) == [(0, "freed"), (2, "destroyed")]
    assert gone.wrong[0].at_ns <= gone.end_ns[0]
    assert loaded.run(Delays.of([(1, BEFORE_START, MARGIN), (3, BEFORE_START, MARGIN)])).clean
    loaded.close()


# --- pinned ---


def _hits(times: int) -> None:
    loaded = _load(READ_TOO_EARLY.replace("M0", "M0[0:24]").replace("Y", "Y[0:40]"))
    wrong, right = _pin(1, ~1, 0, ~0, 2, ~2, 3, ~3), _pin(0, ~0, 1, ~1, 2, ~2, 3, ~3)
    torn = _pin(0, 1, ~1, ~0, 2, ~2, 3, ~3)
    against = Delays.of([(1, BEFORE_START, 50_000)])
    for i in range(times):
        assert _facts(loaded.run(against if i % 10 == 0 else NONE, pin=wrong))[:2] == [
            (1, "stale"),
            (3, "stale"),
        ]
        assert _facts(loaded.run(NONE, pin=torn))[:2] == [(1, "torn"), (3, "stale")]
        assert loaded.run(NONE, pin=right).clean
    loaded.close()


def test_a_pinned_order_hits_every_time() -> None:
    _hits(50)


@pytest.mark.soak
def test_a_pinned_order_hits_a_thousand_times_of_a_thousand() -> None:
    _hits(1000)


@pytest.mark.parametrize(
    "pin",
    [
        (1, ~1, 0, ~0),
        (0, 1, ~0, ~1),
        (0, ~0, 1),
        (0, ~0, 1, 1),
        (0, ~0, 1, ~9),
        (0, ~0, 9, ~1),
        (0, ~0, -(2**31), ~1),
        (2**31 - 1, 0, ~0, 1),
    ],
)
def test_a_pin_that_is_no_order_of_the_program_is_refused(pin: tuple[int, ...]) -> None:
    loaded = _load("1 | kernel | q0 | | M0\n2 | kernel | q0 | M0 |")
    with pytest.raises(UsageError, match="a pinned run"):
        loaded.run(NONE, pin=_pin(*pin))
    assert loaded.run(NONE, pin=_pin(0, ~0, 1, ~1)).clean
    loaded.close()


# --- it always comes back ---


def test_a_deadlock_is_told_and_what_can_run_runs() -> None:
    loaded = _load("1 | kernel | q0 | | M0\n2 | semwait | q1 | | | s\n3 | kernel | q1 | M0 |")
    outcome = loaded.run(NONE)
    assert (outcome.stuck, outcome.never, outcome.clean) == ((1, 2), (1,), False)
    assert outcome.end_ns[0] > 0
    assert outcome.end_ns.tolist()[1:] == outcome.start_ns.tolist()[1:] == [-1, -1]
    assert not outcome.wrong
    loaded.close()


def test_recorded_times_that_nobody_waits_for_are_refused() -> None:
    loaded = _load(
        """
        1 | host   | H  | | | | issue=0
        2 | kernel | q0 | | | | issue=3600000000000 start=0 dur=5
        """,
        timeout_s=0.2,
    )
    late = r"no op ended for 0\.2 s; 2 would have gone on 360\d(\.\d+)? s"
    with pytest.raises(Unsupported, match=late) as caught:
        loaded.run(NONE)
    assert all(o in caught.value.next_step for o in ("--time-scale", "--timeout"))
    loaded.close()


def test_a_delay_that_was_asked_for_is_waited_for() -> None:
    loaded = _load("1 | kernel | q0", timeout_s=0.1)
    assert loaded.run(Delays.of([(0, BEFORE_START, 400 * MS)])).clean
    loaded.close()


def test_ctrl_c_ends_a_run_and_the_threads_are_there_for_the_next() -> None:
    loaded = _load("1 | kernel | q0 | | M0 | | dur=3600000000000", timeout_s=1e6)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loaded.run(NONE)
    timer.join()
    loaded.close()
    quick = _load("1 | kernel | q0 | | M0")
    assert quick.run(NONE).clean
    quick.close()


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="/proc is not here: threads cannot be counted"
)
def test_threads_live_from_load_to_close() -> None:
    before = _threads()
    loaded = _load("1 | kernel | q0\n2 | kernel | q1\n3 | host | H")
    assert _threads() == before + 3
    loaded.run(NONE)
    assert _threads() == before + 3
    loaded.close()
    loaded.close()
    assert _threads() == before
    with pytest.raises(Unsupported, match="closed"):
        loaded.run(NONE)
    dropped = _load("1 | kernel | q0")
    del dropped
    assert _threads() == before


def test_runs_of_several_python_threads_take_turns() -> None:
    loaded = _load(READ_TOO_EARLY)
    found: list[bool] = []

    def run() -> None:
        for _ in range(5):
            found.append(loaded.run(Delays.of([(1, BEFORE_START, 10 * MS)])).clean)

    users = [threading.Thread(target=run) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    loaded.close()
    assert found == [True] * 20


def test_the_interpreter_ends_with_a_program_still_loaded() -> None:
    code = (
        "from tapedelay.formats.litmus import parse\n"
        "from tapedelay.replayer.program import Program\n"
        "from tapedelay.replayer.backends.protocol import Options\n"
        "from tapedelay.replayer.backends.threads import ThreadsBackend\n"
        "kept = ThreadsBackend().load(Program.from_tape(parse('1 | kernel | q0').tape()), Options())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- what it refuses, and options ---


def test_more_queues_than_threads_are_refused() -> None:
    b = TapeBuilder()
    host = b.device(name="host", kind="host")
    thread = b.queue(device=host, name="H", kind="host_thread")
    gpu = b.device(name="g", kind="gpu")
    for i in range(MAX_THREADS):
        b.op(kind="kernel", queue=b.queue(device=gpu, name=f"q{i}"), issuer=thread, access_set=0)
    program = Program.from_tape(b.build(Manifest()))
    with pytest.raises(Unsupported, match=f"{MAX_THREADS + 1} queues with ops"):
        ThreadsBackend().load(program, Options())


def test_memory_as_recorded_has_a_limit_and_scaled_down_has_not() -> None:
    text = "1 | kernel | q0 | | M0[0:1000000000000]\n2 | kernel | q0 | M0[5:6] |"
    with pytest.raises(Unsupported, match=r"1,000,000,000,\d\d\d bytes"):
        _load(text)
    loaded = _load(text, compact=True)
    assert loaded.run(NONE).clean
    loaded.close()


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_time_scale_is_a_number(scale: float) -> None:
    with pytest.raises(UsageError, match="time scale"):
        _load("1 | kernel | q0", time_scale=scale)


def test_delays_of_another_tape_are_refused() -> None:
    loaded = _load("1 | kernel | q0")
    with pytest.raises(UsageError):
        loaded.run(Delays.of([(5, BEFORE_START, 1)]))
    loaded.close()


def test_without_values_only_times_are_taken() -> None:
    loaded = _load(READ_TOO_EARLY, values=False)
    outcome = loaded.run(Delays.of([(0, BEFORE_START, 5 * MS)]))
    assert (outcome.judged, outcome.reads, outcome.wrong) == (False, 0, [])
    assert outcome.start_ns[0] >= 5 * MS
    loaded.close()


def test_the_limit_keeps_the_first() -> None:
    rows = "\n".join(f"{i} | kernel | q1 | M0 | " for i in range(1, 30))
    loaded = _load(f"0 | kernel | q0 | | M0\n{rows}", wrong_limit=3)
    outcome = loaded.run(Delays.of([(0, BEFORE_START, 5 * MARGIN)]))
    assert outcome.wrong_count == 29
    assert [w.row for w in outcome.wrong] == [1, 2, 3]
    loaded.close()


def test_bytes_as_recorded() -> None:
    """Ranges that begin and end inside of words, in memory as recorded."""
    text = """
        1 | copy   | q0 | A[3:50]    | M[5:52]
        2 | kernel | q0 |            | M[9:11]
        3 | kernel | q1 | M[0:64]    | Y[1:7]
        4 | sync   | H  |            |            | *
        5 | host   | H  | Y[1:7], M[1:3] |
    """
    loaded = _load(text)
    assert loaded.run(NONE, pin=_pin(0, ~0, 1, ~1, 2, ~2, 3, ~3, 4, ~4)).clean
    early = loaded.run(NONE, pin=_pin(0, ~0, 2, ~2, 1, ~1, 3, ~3, 4, ~4))
    assert early.first is not None
    assert (early.first.row, early.first.saw) == (2, (Seen(9, 11, 0),))
    assert early.first.expected == (Seen(9, 11, 1),)
    assert early.chain == (2, 4)
    loaded.close()
