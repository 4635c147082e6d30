"""The virtual backend on models made by hand: exact times, what never starts, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tapedelay.formats.delays import BEFORE_START, Delays
from tapedelay.formats.errors import Unsupported, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.protocol import Backend, Loaded, Options, Pin
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.program import Program

from .playing import Played, play

COPY = """
1 | host   | H |           | M0[0:8] |   |
2 | copy   | q | M0[0:8]   | D0[0:8] |   |
3 | kernel | q | D0[0:8]   | D1[0:8] |   |
4 | sync   | H |           |         | q |
5 | host   | H |           | M0[2:4] |   |
"""


def test_a_thread_goes_on_and_a_queue_is_fifo() -> None:
    assert (
        play(COPY).times()
        == "1 0 0 1000; 2 1000 1000 2000; 3 1000 2000 3000; 4 1000 3000 3000; 5 3000 3000 4000"
    )


def test_each_place_of_a_delay() -> None:
    assert play(COPY, "2 before_issue 7").times().split("; ")[1:3] == ["2 1007 1007 2007", "3 1007 2007 3007"]
    assert play(COPY, "2 before_start 7").times().split("; ")[1:3] == ["2 1000 1007 2007", "3 1000 2007 3007"]
    assert play(COPY, "2 after_end 7").times().split("; ")[1:3] == ["2 1000 1000 2007", "3 1000 2007 3007"]


def test_recorded_times_and_gaps() -> None:
    text = """
    1 | host   | H |  | A[0:8] | | issue=100 dur=50
    2 | kernel | q |  | B[0:8] | | issue=170 start=3 dur=9
    3 | kernel | q |  | B[0:8] | | issue=175 dur=0
    4 | sync   | H |  |        | q | issue=180 dur=400
    5 | host   | H |  | A[0:8] | | issue=590 dur=1
    """
    # gaps: 0, 20 after the end of 1, 5, 5, 10 after the end of 4; the wait takes what it takes
    assert play(text).program.gap_ns.tolist() == [0, 20, 5, 5, 10]
    assert play(text).times() == "1 0 0 50; 2 70 70 79; 3 75 79 79; 4 80 80 80; 5 90 90 91"


def test_an_op_nobody_issued_comes_at_its_recorded_time() -> None:
    text = """
    host H
    queue q
    queue r
    1 | host   | H   |  | A[0:8] | | issue=100 dur=10
    2 | kernel | q@? |  | B[0:8] | | issue=150 dur=10
    3 | kernel | r@? |  | B[8:9] | | dur=10
    """
    assert play(text).times() == "1 0 0 10; 2 50 50 60; 3 0 0 10"


def test_event_wait_holds_its_queue_and_not_the_thread() -> None:
    text = """
    1 | kernel | q |  | A[0:8] |
    2 | record | q |  |        | e
    3 | wait   | r |  |        | e
    4 | kernel | r | A |       |
    5 | host   | H |  | B[0:8] |
    """
    assert play(text).times() == "1 0 0 1000; 2 0 1000 1000; 3 0 1000 1000; 4 0 1000 2000; 5 0 0 1000"


def test_wait_for_any_takes_the_earliest() -> None:
    text = """
    1 | kernel   | q |  | A[0:8] |
    2 | record   | q |  |        | e
    3 | kernel   | r |  | B[0:8] |
    4 | record   | r |  |        | f
    5 | wait_any | H |  |        | e,f
    6 | host     | H |  | C[0:8] |
    """
    assert play(text, "1 before_start 500").times().endswith("5 0 1000 1000; 6 1000 1000 2000")
    assert (
        play(text, "1 before_start 500, 3 before_start 900")
        .times()
        .endswith("5 0 1500 1500; 6 1500 1500 2500")
    )


def test_semaphores_whatever_the_issue_order() -> None:
    text = """
    1 | semwait | q |  |        | s | value=2
    2 | kernel  | q |  | A[0:8] |
    3 | kernel  | r |  | B[0:8] |
    4 | semsig  | r |  |        | s | value=1
    5 | kernel  | r |  | B[0:8] |
    6 | semsig  | r |  |        | s | value=3
    7 | semwait | q |  |        | t |
    8 | kernel  | r |  | B[0:8] |
    9 | semsig  | r |  |        | t |
    """
    assert play(text).times().split("; ")[:2] == ["1 0 2000 2000", "2 0 2000 3000"]
    assert play(text).times().split("; ")[6] == "7 0 3000 3000"
    assert play(text, "8 after_end 100").times().split("; ")[6] == "7 0 3100 3100"


def test_queue_that_is_not_in_order() -> None:
    text = """
    device host host
    device gpu gpu
    host H host
    queue q gpu order=out
    1 | kernel | q |  | A[0:8] |
    2 | kernel | q |  | B[0:8] |
    3 | kernel | q |  | C[0:8] |
    edge 1 -> 3
    """
    assert play(text, "1 before_start 5").times() == "1 0 5 1005; 2 0 0 1000; 3 0 1005 2005"


def test_collective_starts_with_its_last_member() -> None:
    text = """
    1 | kernel | q | | A[0:8] |   | dur=300
    2 | coll   | q | | A[0:8] | c | dur=10
    3 | coll   | r | | B[0:8] | c | dur=40
    4 | kernel | r | | B[0:8] |   | dur=5
    """
    assert play(text).times() == "1 0 0 300; 2 0 300 340; 3 0 300 340; 4 0 340 345"
    assert play(text, "3 before_start 500").times() == "1 0 0 300; 2 0 800 840; 3 0 800 840; 4 0 840 845"


def test_parent_lasts_as_long_as_its_parts() -> None:
    text = """
    1 | kernel | q | | A[0:8] |   | dur=7
    2 | kernel | q | | B[0:8] |   | dur=900
    3 | kernel | q | | B[0:2] |   | parent=2 dur=10
    4 | kernel | q | | B[2:4] |   | parent=2 dur=20
    5 | kernel | q | | C[0:8] |   | dur=1
    """
    assert play(text).times() == "1 0 0 7; 2 0 7 37; 3 0 7 17; 4 0 17 37; 5 0 37 38"
    # A delay of the whole moves its parts; one after its end moves what follows.
    assert (
        play(text, "2 before_start 3, 2 after_end 50").times()
        == "1 0 0 7; 2 0 10 90; 3 0 10 20; 4 0 20 40; 5 0 90 91"
    )


def test_thread_runs_the_parts_of_what_it_runs() -> None:
    text = """
    1 | compute | H | | A[0:8] | | issue=0 dur=100
    2 | kernel  | q | | A[0:2] | | parent=1 issue=10 dur=30
    3 | host    | H | | A[2:4] | | parent=1 issue=20 dur=60
    4 | host    | H | | B[0:8] | | issue=105 dur=1
    """
    # 4 comes 5 after the end of 1, which ends with 3
    assert play(text).times() == "1 0 0 80; 2 10 10 40; 3 20 20 80; 4 85 85 86"


@pytest.mark.parametrize(
    ("profile", "ends"),
    [("strict", "3 0 1000 2000; 4 0 0 1000"), ("blocking-copies", "3 0 1000 2000; 4 0 2000 3000")],
)
def test_blocking_copy(profile: str, ends: str) -> None:
    text = f"""
    device host host
    device gpu gpu profile={profile}
    host H host
    queue q gpu
    buffer D 8 device=gpu kind=device
    buffer M 8 device=host kind=host
    2 | kernel | q | | D |
    3 | copy   | q | D | M |
    4 | host   | H | M | |
    """
    assert play(text).times().endswith(ends)


@pytest.mark.parametrize(("profile", "starts"), [("strict", 0), ("cuda-legacy", 1000)])
def test_free_that_synchronises(profile: str, starts: int) -> None:
    text = f"""
    device host host
    device gpu gpu profile={profile}
    host H host
    queue q gpu
    buffer D 8 device=gpu kind=device
    buffer E 8 device=gpu kind=device
    1 | kernel | q | | D |
    2 | free   | H | | | E
    3 | host   | H | | |
    """
    assert play(text).times().endswith(f"2 0 {starts} {starts}; 3 {starts} {starts} {starts + 1000}")


def test_what_never_starts_is_a_result() -> None:
    text = """
    1 | kernel  | q |  | A[0:8] |
    2 | semwait | q |  |        | s |
    3 | kernel  | q |  | A[0:8] |
    4 | host    | H |  | B[0:8] |
    5 | sync    | H |  |        | q
    6 | host    | H |  | B[0:8] |
    """
    p = play(text)
    assert p.times() == "1 0 0 1000; 2 0 -1 -1; 3 0 -1 -1; 4 0 0 1000; 5 1000 -1 -1; 6 -1 -1 -1"
    assert p.outcome.never == (1,)
    assert p.outcome.stuck == (1, 2, 4, 5)
    assert p.outcome.deadlock
    assert not p.outcome.clean
    with pytest.raises(Unsupported, match="never start"):
        p.program.interleaving(Delays.of())


def test_cycle_is_named() -> None:
    text = """
    1 | semwait | q |  |        | s |
    2 | semsig  | q |  |        | t |
    3 | semwait | r |  |        | t |
    4 | semsig  | r |  |        | s |
    5 | kernel  | r |  | A[0:8] |
    """
    p = play(text, "1 before_start 5000")
    assert p.outcome.cycles == ((0, 1, 2, 3),)
    assert p.outcome.stuck == (0, 1, 2, 3, 4)


def test_interleaving_is_the_order_of_all_events() -> None:
    p = play(COPY)
    order = p.program.interleaving(Delays.of()).schedule.tolist()
    # 2 ends, and 3 and 5 ... at one instant what has started earlier ends first
    assert order == [0, ~0, 1, ~1, 2, ~2, 3, ~3, 4, ~4]
    late = play(COPY.replace("4 | sync   | H |           |         | q |\n", ""))
    # at 1000: 1 ends, then 2 and 5 start; at 2000: 2 ends, 5 ends, then 3 starts
    assert late.program.interleaving(Delays.of()).schedule.tolist() == [0, ~0, 1, 3, ~1, ~3, 2, ~2]


def test_many_runs_count_what_single_runs_show() -> None:
    broken = COPY.replace("4 | sync   | H |           |         | q |\n", "")
    p = play(broken)
    plans = [Delays.of([(1, BEFORE_START, ns)]) for ns in (0, 500, 5000)] + [
        Delays.of([(3, BEFORE_START, 9000)])
    ]
    many = p.loaded.run_many(plans)
    single = [p.loaded.run(d) for d in plans]
    assert many.wrong_count.tolist() == [o.wrong_count for o in single]
    assert many.total_ns.tolist() == [o.total_ns for o in single]
    assert many.wrong_count[-1] == 0
    assert many.wrong_count[0] > 0
    assert p.loaded.run_many([]).wrong_count.shape == (0,)


def test_a_run_leaves_nothing_behind() -> None:
    p = play(COPY)
    before = p.times()
    p.loaded.run(Delays.of([(1, BEFORE_START, 12345), (2, BEFORE_START, 1)]))
    p.outcome = p.loaded.run(Delays.of())
    assert p.times() == before


def test_timing_alone_judges_nothing() -> None:
    p = Played(COPY.replace("4 | sync   | H |           |         | q |\n", ""), values=False)
    assert not p.outcome.judged
    assert p.outcome.wrong_count == 0
    assert p.outcome.reads == 0
    assert p.times().startswith("1 0 0 1000; 2 1000 1000 2000")


def test_what_it_refuses() -> None:
    p = play(COPY)
    with pytest.raises(UsageError, match="row 5"):
        p.loaded.run(Delays.of([(5, 0, 1)]))
    with pytest.raises(UsageError, match="negative time"):
        p.loaded.run(Delays.of([(1, 0, -1)]))
    twice = Delays(np.array([1, 1], np.int32), np.array([0, 0], np.int8), np.array([1, 1]))
    with pytest.raises(UsageError, match="two of one place"):
        p.loaded.run_many([twice])
    with pytest.raises(Unsupported, match="pinned"):
        p.loaded.run(Delays.of(), pin=Pin(np.array([0, ~0], np.int32)))
    with pytest.raises(Unsupported, match="70 years"):
        p.loaded.run(Delays.of([(1, 0, 2**62), (1, 1, 2**62)]))
    with pytest.raises(Unsupported, match="70 years"):
        p.loaded.run_many([Delays.of([(1, 0, 2**62), (1, 1, 2**62)])])
    p.loaded.close()
    p.loaded.close()
    with pytest.raises(Unsupported, match="closed"):
        p.loaded.run(Delays.of())


def test_it_is_a_backend() -> None:
    backend = VirtualBackend()
    assert isinstance(backend, Backend)
    assert backend.available() == ""
    can = backend.capabilities()
    assert (can.name, can.deterministic, can.real_time, can.pin, can.timing_only) == (
        "virtual",
        True,
        False,
        False,
        True,
    )
    assert isinstance(play(COPY).loaded, Loaded)


def test_empty_tape() -> None:
    p = play("host H\nqueue q\n")
    assert p.outcome.total_ns == 0
    assert p.outcome.clean


def big(rows: int) -> Program:
    """Return many ops on two queues that touch one another's memory."""
    lines = [
        f"{i} | kernel | {'qr'[i % 2]} | A[{i % 8}:{i % 8 + 8}] | A[{i % 5}:{i % 5 + 3}] |"
        for i in range(rows)
    ]
    return Program.from_tape(parse("\n".join(lines)).tape())


LONG = """
from tapedelay.formats.delays import Delays
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tests.replayer.test_virtual import big
loaded = VirtualBackend().load(big(5000), Options())
print("ready", flush=True)
try:
    loaded.run_many([Delays.of()] * 50_000)
except KeyboardInterrupt:
    print(loaded.run(Delays.of()).wrong_count == loaded.run_many([Delays.of()]).wrong_count[0] > 0)
"""


def python(*args: str, **env: str) -> subprocess.Popen[str]:
    """Return a new Python process that can import these tests."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return subprocess.Popen(
        [sys.executable, *args],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_a_run() -> None:
    process = python("-c", LONG)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "True\n")


RUN = """
import hashlib, sys
from tapedelay.formats.delays import Delays
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tests.replayer.test_replay_model import as_delays, random_delays, seeded_tape
from tapedelay.replayer.program import Program
from tapedelay.formats.errors import InvalidTape
found = hashlib.sha256()
for seed in range(int(sys.argv[1])):
    tape, r = seeded_tape(seed)
    try:
        program = Program.from_tape(tape)
    except InvalidTape:
        continue
    o = VirtualBackend().load(program, Options()).run(as_delays(random_delays(program.rows, r)))
    found.update(repr((o.issue_ns.tolist(), o.end_ns.tolist(), o.wrong, o.chain, o.stuck, o.cycles)).encode())
print(found.hexdigest())
"""


def digests(processes: int, tapes: int) -> set[str]:
    """Return what processes with different hash seeds find."""
    found = set()
    for n in range(processes):
        process = python("-c", RUN, str(tapes), PYTHONHASHSEED=str(n))
        out, _ = process.communicate()
        assert process.returncode == 0
        found.add(out.strip())
    return found


def test_equal_results_in_every_process() -> None:
    found = digests(2, 30)
    assert len(found) == 1
    assert all(len(d) == 64 for d in found)


@pytest.mark.soak
def test_equal_results_in_a_hundred_processes_under_load() -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        found = digests(100, 30)
    finally:
        for p in busy:
            p.kill()
            p.wait()
    assert len(found) == 1


def test_events_respect_every_edge() -> None:
    program = big(300)
    order = program.interleaving(Delays.of([(i, i % 3, 7 * i % 50) for i in range(300)])).schedule.tolist()
    at = {code: n for n, code in enumerate(order)}
    source, target, _ = program.core.edges()
    assert all(at[~s] < at[t] for s, t in zip(source.tolist(), target.tolist(), strict=True))
    times = (
        VirtualBackend().load(program, Options()).run(Delays.of([(i, i % 3, 7 * i % 50) for i in range(300)]))
    )
    starts = [int(times.start_ns[c]) for c in order if c >= 0]
    assert all(a <= b for a, b in pairwise(starts))
