"""Delays of a plan on a host of our own making: what applies to which op, and that all of it is told.

What the plugin holds up is compared with what the same plan means on the tape of the very run: two
implementations, one that sees ops as they are issued and one that sees the whole.
"""

from __future__ import annotations

import os
import random
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.delays import PLACES, Anchors, Plan, match_plan, parse_expression, print_line
from tapedelay.formats.profiles import BUILTIN
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder import plugin
from tapedelay.recorder.delays import leave_plan
from tapedelay.recorder.delays.applied import applied_plan, settle
from tapedelay.recorder.delays.compiled import ANCHOR, ENTRY, HEADER, compiled
from tapedelay.recorder.delays.report import LineCount
from tapedelay.recorder.delays.spool import PLAN_FILE, read_line_counts
from tapedelay.recorder.engines.ggml.collect import collect_directory

HERE = Path(__file__).parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
CANNOT = ("alloc", "destroy", "mark")
"""Ops that are counted and cannot be held up."""


@pytest.fixture(scope="module")
def program(host_program: Callable[..., Path]) -> Path:
    return host_program("delay_cases.cpp")


class Run:
    """One run of a case under a plan."""

    def __init__(
        self, program: Path, case: str, plan: Plan, spool: Path, *, code: int = 0, **env: str
    ) -> None:
        self.plan, self.spool = plan, spool
        spool.mkdir()
        base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
        base |= {
            "TAPEDELAY_DEVICES": "2", "TAPEDELAY_SPOOL": str(spool), "TAPEDELAY_PROFILE": "full-async",
            "TAPEDELAY_PROFILE_DATA": BUILTIN["full-async"].device_data(),
            **leave_plan(plan, spool),
        }  # fmt: skip
        command = [str(program), str(plugin.ggml_plugin()), case]
        done = subprocess.run(command, env=base | env, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        self.said = done.stderr

    def tape(self) -> Tape:
        tape = collect_directory(self.spool)
        assert not validate(tape)
        return tape

    def counts(self) -> list[LineCount]:
        found = read_line_counts(self.spool)
        assert found is not None
        return found[2]


def held_up(tape: Tape) -> dict[tuple[int, str], int]:
    """Return what was asked for at each place of each op."""
    out: Counter[tuple[int, str]] = Counter()
    for r in tape.table("delays").to_pylist():
        out[r["op"], r["place"]] += r["asked_ns"]
    return {k: v for k, v in out.items() if v}


def meant(plan: Plan, tape: Tape) -> dict[tuple[int, str], int]:
    """Return what a plan means on a tape, of ops that an engine issues and that can be held up."""
    anchors = Anchors(tape)
    delays = match_plan(plan, anchors).delays
    origin = tape.table("ops").column("origin").to_pylist()
    kinds = tape.table("ops").column("kind").to_pylist()
    names = tape.table("ops").column("name").to_pylist()
    syncs = tape.table("ops").column("sync").to_pylist()
    sync_names = tape.table("syncs").column("name").to_pylist()
    out = {}
    for row, place, ns in zip(delays.row.tolist(), delays.place.tolist(), delays.ns.tolist(), strict=True):
        split = kinds[row] in ("record", "wait") and "split copy" in sync_names[syncs[row]]
        if origin[row] == "observed" and kinds[row] not in CANNOT and not split:
            out[int(anchors.op_ids[row]), PLACES[place]] = ns
    assert names
    return out


# --- the same plan, while the program runs and afterwards ---------------------------------------------------

LINES = [
    "every copy on TAPE0 +1us",
    "every copy on TAPE0 +3us before_issue",
    "2nd compute of norm-0 +11us after_end",
    "first copy of input_embed on TAPE0 +7us",
    "every wait on TAPE1 +1us before_start",
    "every sync +1us after_end",
    "30th op on host0 +2us before_issue",
    "2nd compute on TAPE0 +1 +5us",
    "every compute of norm-0 +2 +1us after_end",
    "every record +1us",
    "every free +1us",
    "every memset of x +1us after_end",
    'every copy of "y ä\\*" +1us',
    "every compute of cut?? +1us",
    'every compute of "#3*" +1us',
    "every compute of *7?norm* +1us before_issue",
    "every copy on TAPE0.2 +1us",
    "every op on CPU +1us after_end",
    "5th copy on host? +1us",
    "every compute touching x +1us before_issue",
    "first compute touching conv on CPU +1us",
]


def test_a_plan_means_the_same_in_the_engine_and_on_its_tape(program: Path, tmp_path: Path) -> None:
    run = Run(program, "all", parse_expression("\n".join(LINES)), tmp_path / "spool")
    tape = run.tape()
    assert held_up(tape) == meant(run.plan, tape)
    counts = run.counts()
    applied = Counter(tape.table("delays").column("line").to_pylist())
    assert [c.count for c in counts] == [applied[c.line] for c in counts]
    assert [c.text for c in counts if not c.count] == []
    assert [(d.line, d.text, d.count) for d in tape.manifest.delays] == [
        (c.line, c.text, c.count) for c in counts
    ]
    asked, true = (tape.table("delays").column(c).to_numpy() for c in ("asked_ns", "true_ns"))
    assert (true >= asked).all()
    assert settle(run.spool, tape, None) == (tuple(counts), [])


def random_lines(rng: random.Random, count: int) -> list[str]:
    kinds = ["op", "copy", "compute", "sync", "wait", "record", "memset", "free", "alloc", "destroy", "mark"]
    names = ["x", "norm-0", "*", "w", "input_embed", "?", "#*", "conv", "TAPE1#*", "plain", "queue?freed"]
    queues = ["TAPE0", "TAPE1", "TAPE0.2", "host0", "CPU", "TAPE*", "*", "?APE1", "host1"]
    whichs = ["every", "first", "2nd", "3rd", "4th", "7th", "12th", "30th"]
    lines = []
    for _ in range(count):
        words = [rng.choice(whichs), rng.choice(kinds)]
        if rng.random() < 0.4:
            words += ["of", f'"{rng.choice(names)}"']
        if rng.random() < 0.5:
            words += ["on", rng.choice(queues)]
        if rng.random() < 0.25:
            words.append(f"+{rng.choice((1, 2, 5))}")
        words += [f"+{rng.randrange(1, 50)}ns", rng.choice(PLACES)]
        lines.append(" ".join(words))
    return lines


@pytest.mark.parametrize("seed", range(3))
def test_any_plan_means_the_same_in_the_engine_and_on_its_tape(
    program: Path, tmp_path: Path, seed: int
) -> None:
    plan = parse_expression("\n".join(random_lines(random.Random(seed), 120)))
    run = Run(program, "all", plan, tmp_path / "spool", FAKE_API="23"[seed % 2])
    tape = run.tape()
    assert held_up(tape) == meant(plan, tape)


def test_random_delays_count_issued_ops_and_come_back_from_their_written_out_plan(
    program: Path, tmp_path: Path
) -> None:
    plan = parse_expression("random seed=7 max=20us")
    first = Run(program, "all", plan, tmp_path / "first").tape()
    again = Run(program, "all", plan, tmp_path / "again").tape()
    assert held_up(first) == held_up(again)
    exact, left_out = applied_plan(first)
    assert not left_out
    assert len(exact.lines) > 50
    assert meant(exact, first) == held_up(first)
    replayed = Run(program, "all", exact, tmp_path / "exact")
    assert held_up(replayed.tape()) == held_up(first)
    assert all(c.count == 1 for c in replayed.counts())
    other = parse_expression("random seed=8 max=20us")
    assert held_up(Run(program, "all", other, tmp_path / "other").tape()) != held_up(first)


def test_a_declined_copy_counts_for_nothing_and_does_not_sleep_twice(program: Path, tmp_path: Path) -> None:
    plan = parse_expression("every copy on host0 +2us before_issue\nevery copy +1us before_start")
    tape = Run(program, "all", plan, tmp_path / "spool").tape()
    ops = tape.table("ops").to_pylist()
    queues = tape.table("queues").column("name").to_pylist()
    copies = {o["op"]: queues[o["queue"]] for o in ops if o["kind"] == "copy" and o["origin"] == "observed"}
    got = held_up(tape)
    assert {op for op, place in got if place == "before_start"} == set(copies)
    assert {op for op, place in got if place == "before_issue"} == {
        op for op, queue in copies.items() if queue == "host0"
    }
    assert set(got.values()) == {1000, 2000}


def test_however_many_lines_meet_at_an_op_each_keeps_its_place(program: Path, tmp_path: Path) -> None:
    op = "first compute on TAPE0"
    lines = [f"{op} +1us"] * 20 + [f"{op} +5us after_end", f"{op} +7us before_issue"] * 10
    run = Run(program, "all", parse_expression("\n".join(lines)), tmp_path / "spool")
    tape = run.tape()
    assert held_up(tape) == meant(run.plan, tape)
    assert sorted(held_up(tape).values()) == [20_000, 50_000, 70_000]
    assert [c.count for c in run.counts()] == [1] * len(lines)


def test_what_cannot_be_held_up_is_told(program: Path, tmp_path: Path) -> None:
    plan = parse_expression(
        "every alloc +1us\nevery kernel +1us\nevery copy touching x +1us\nfirst copy on GPU7 +1us"
    )
    run = Run(program, "all", plan, tmp_path / "spool")
    tape = run.tape()
    allocs = tape.table("ops").column("kind").to_pylist().count("alloc")
    assert [(c.count, c.missed) for c in run.counts()] == [(0, allocs), (0, 0), (0, 0), (0, 0)]
    assert not tape.table("delays").num_rows
    _, (fault,) = settle(run.spool, tape, None)
    assert fault.exit_code == 2
    assert f"named {allocs} ops" in fault.found
    assert "an engine issues no kernel" in fault.found
    assert "only a compute's" in fault.found
    assert "`first copy on GPU7 +1us before_start`: never matched" in fault.found


def test_threads_each_count_on_their_own_queues(program: Path, tmp_path: Path) -> None:
    plan = parse_expression("150th copy on TAPE0 +1us\n150th copy on TAPE1 +1us\nevery copy +1ns after_end")
    run = Run(program, "threads", plan, tmp_path / "spool")
    tape = run.tape()
    assert [c.count for c in run.counts()] == [1, 1, 400]
    assert held_up(tape) == meant(plan, tape)


def test_a_forked_child_counts_from_its_own_start_under_its_own_names(program: Path, tmp_path: Path) -> None:
    lines = ["first compute on TAPE0 +1us", "2nd compute on p1.TAPE0 +2us", "every sync on p1.host0 +3us"]
    run = Run(program, "forked", parse_expression("\n".join(lines)), tmp_path / "spool")
    tape = run.tape()
    assert [p.process for p in tape.manifest.processes] == [0, 1]
    assert [c.count for c in run.counts()][:2] == [1, 1]
    assert held_up(tape) == meant(run.plan, tape)


def test_counts_are_right_after_a_kill(program: Path, tmp_path: Path) -> None:
    plan = parse_expression("4th copy on TAPE0 +10s\nevery copy on TAPE0 +1us")
    run = Run(program, "killed", plan, tmp_path / "spool", code=-9)
    assert [c.count for c in run.counts()] == [1, 4]
    tape = collect_directory(run.spool)
    assert not tape.manifest.complete
    rows = tape.table("delays").to_pylist()
    assert [(r["line"], r["true_ns"] is None) for r in rows] == [
        (2, False),
        (2, False),
        (2, False),
        (1, True),
        (2, False),
    ]


# --- what the plugin does with a file that is none ----------------------------------------------------------


def broken(data: bytes, rng: random.Random) -> bytes:
    """Return a compiled plan with something else in it, its checksum right half of the time."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
    if rng.random() < 0.2:
        out = out[: rng.randrange(len(out))]
    if rng.random() < 0.6 and len(out) > HEADER.itemsize:
        out[12:16] = zlib.crc32(out[16:]).to_bytes(4, "little")
    return bytes(out)


def test_a_damaged_plan_is_refused_once_and_the_program_goes_on(program: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    plan = parse_expression("\n".join(LINES))
    refused = 0
    for i in range(24):
        spool = tmp_path / f"spool{i}"
        run = Run.__new__(Run)
        spool.mkdir()
        env = leave_plan(plan, spool)
        path = spool / PLAN_FILE
        path.write_bytes(broken(path.read_bytes(), rng))
        base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
        base |= {"TAPEDELAY_DEVICES": "2", "TAPEDELAY_SPOOL": str(spool), **env}
        base |= {
            "TAPEDELAY_PROFILE": "full-async",
            "TAPEDELAY_PROFILE_DATA": BUILTIN["full-async"].device_data(),
        }
        command = [str(program), str(plugin.ggml_plugin()), "all"]
        done = subprocess.run(command, env=base, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said = done.stderr.count("no delays")
        assert said <= 1
        tape = collect_directory(spool)
        if said:
            refused += 1
            assert not tape.table("delays").num_rows
            assert any(n.startswith("no delays") for n in tape.manifest.notes)
            run.spool = spool
            _, faults = settle(spool, tape, None)
            assert [f.exit_code for f in faults] == [5]
    assert refused > 12


def test_every_process_that_cannot_read_the_plan_is_told(program: Path, tmp_path: Path) -> None:
    plan = parse_expression("every copy +1us")
    for name in (PLAN_FILE, f"{PLAN_FILE}.counts"):
        spool = tmp_path / name
        run = Run(program, "threads", plan, spool, TAPEDELAY_DELAYS=str(tmp_path / "missing"))
        assert run.said.count("no delays") == 1
        _, (fault,) = settle(spool, run.tape(), None)
        assert fault.exit_code == 5


def test_a_pipe_in_the_place_of_the_plan_holds_nobody_up(program: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    plan = parse_expression("every copy +1us")
    run = Run(program, "all", plan, tmp_path / "spool", TAPEDELAY_DELAYS=str(tmp_path / "pipe"))
    assert run.said.count("no delays") == 1


# --- layout -------------------------------------------------------------------------------------------------


def test_compiled_plans_group_lines_by_what_they_look_for() -> None:
    plan = parse_expression("3rd copy on A +3ns\nfirst copy on A +1ns\nevery op +9ns\nevery copy on A +2ns")
    data = compiled(plan)
    header = np.frombuffer(data, HEADER, 1)[0]
    assert header["bytes"] == len(data)
    anchors = np.frombuffer(data, ANCHOR, int(header["anchors"]), HEADER.itemsize)
    entries = np.frombuffer(data, ENTRY, 4, HEADER.itemsize + anchors.nbytes)
    assert anchors[["first", "count"]].tolist() == [(0, 3), (3, 1)]
    assert entries[["nth", "ns", "line"]].tolist() == [(0, 2, 3), (1, 1, 1), (3, 3, 0), (0, 9, 2)]


def test_an_exact_plan_sums_what_met_at_one_place() -> None:
    b = TapeBuilder()
    host = b.device(name="host", kind="host")
    h = b.queue(device=host, name="h", kind="host_thread")
    q = b.queue(device=b.device(name="G"), name="G0")
    for kind in ("copy", "compute", "copy"):
        b.op(kind=kind, queue=q, issuer=h, access_set=0)
    for op, place, line, ns in (
        (0, "before_start", 1, 5),
        (2, "before_start", 1, 5),
        (2, "before_start", 2, 7),
        (2, "after_end", 3, 0),
    ):
        b.add("delays", op=op, place=place, line=line, asked_ns=ns, true_ns=ns, filler=False)
    exact, left_out = applied_plan(b.build())
    assert [print_line(n) for n in exact.lines] == [
        "first copy on G0 +5ns before_start",
        "2nd copy on G0 +12ns before_start",
    ]
    assert not left_out
