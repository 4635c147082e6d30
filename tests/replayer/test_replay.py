"""`replay`: verdicts in both directions, delays, windows, repetitions, baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tapedelay.formats.delays import Delays, Plan, parse_expression, parse_plan
from tapedelay.formats.errors import MissingInput, PlanError, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Capabilities, Loaded, Options, Pin
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.check import Baseline, check_tape
from tapedelay.replayer.outcome import AT_END, Outcome
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import replay, search
from tapedelay.replayer.replay.render import render_replay, render_search

CORPUS = Path(__file__).parent.parent / "corpus"

BUG = """
1 | host   | H   |    | M0[0:4096] |
2 | copy   | vk0 | M0[0:4096] | D0 |
3 | host   | H   |    | X |
{sync}5 | host   | H   |    | M0[1024:2048] |
"""
SYNC = "4 | sync | H | | | vk0\n"
AIM = "first copy on vk0 +5us"


def bug(*, fixed: bool = False) -> Tape:
    return parse(BUG.format(sync=SYNC if fixed else "")).tape()


def test_a_wrong_read_in_words() -> None:
    result = replay(bug(), delays=AIM)
    assert (result.verdict, result.exit_code) == ("confirmed", 1)
    assert [(m.text, m.count) for m in result.matched] == [("first copy on vk0 +5us before_start", 1)]
    first = result.first
    assert first is not None
    assert first.op is not None
    assert (first.op.label, first.wrong.kind, first.buffer) == ("2", "stale", "M0")
    assert first.text == "the copy of `M0` on vk0 (2) read `M0` bytes 0 to 4,096"
    assert first.saw == ("bytes 1,024 to 2,048: what the host code on H that writes `M0` (5) wrote",)
    assert first.expected == ("bytes 1,024 to 2,048: what the host code on H that writes `M0` (1) wrote",)
    (finding,) = result.confirmed
    assert finding.labels == ("2", "5")
    assert finding is first.findings[0]
    assert result.outcome.chain[0] == 1
    assert result.outcome.chain[-1] == AT_END


def test_without_the_delay_and_with_the_edge_nothing_is_wrong() -> None:
    for tape, delays in ((bug(), None), (bug(fixed=True), AIM), (bug(fixed=True), None)):
        result = replay(tape, delays=delays)
        assert (result.verdict, result.exit_code) == ("clean", 0)
        assert result.first is None
        assert result.confirmed == ()
        assert result.outcome.reads > 0
    assert (
        replay(bug(), delays="first copy +1ns").verdict == "confirmed"
    )  # torn: one is at it while the other is


def test_delays_from_text_files_plans_and_several(tmp_path: Path) -> None:
    path = tmp_path / "aim.delays"
    path.write_text(f"tapedelay-plan 1\n\n{AIM}\n#2 +0ns\n#9 +1ns\n")
    plan = parse_expression(AIM)
    for one in (AIM, str(path), plan):
        assert replay(bug(), delays=one).verdict == "confirmed"
    both: list[list[Plan | str]] = [[AIM], [plan, "#0 +1ns after_end"], [AIM, str(path)]]
    for several in both:
        assert replay(bug(), delays=several).verdict == "confirmed"
    result = replay(bug(), delays=str(path))
    assert [(m.line, m.count) for m in result.matched] == [(3, 1), (4, 1), (5, 0)]
    with pytest.raises(UsageError, match="no op matches: first memset"):
        replay(bug(), delays="first memset +1ns")
    path.write_text("tapedelay-plan 1\n#7 +1ns\nfirst copy on H +1ns\n")
    with pytest.raises(UsageError, match=r"aim\.delays:2: no op matches: .*and no other line does"):
        replay(bug(), delays=str(path))
    assert replay(bug(), delays=Plan()).verdict == "clean"
    with pytest.raises(PlanError):
        replay(bug(), delays="frist copy +1ns")
    with pytest.raises(MissingInput):
        replay(bug(), delays="nothing.delays")
    with pytest.raises(MissingInput):
        replay(tmp_path / "nothing.tape")
    with pytest.raises(UsageError, match="no backend 'nowhere'"):
        replay(bug(), backend="nowhere")


def test_a_baseline_accepts_what_check_calls_alike() -> None:
    report = check_tape(bug())
    accepted = Baseline(frozenset(f.signature for f in report.findings))
    result = replay(bug(), delays=AIM, baseline=accepted)
    assert (result.verdict, result.exit_code) == ("clean", 0)
    assert result.found == 0
    assert result.first is not None
    assert result.first.accepted
    other = Baseline(frozenset(f.signature.replace("WAR", "RAW") for f in report.findings))
    assert replay(bug(), delays=AIM, baseline=other).exit_code == 1


def test_what_rests_on_something_unseen_stays_unknown() -> None:
    tape = parse((CORPUS / "own/unresolved-wait.litmus").read_text()).tape("buggy")
    result = replay(tape, delays="first kernel on s0 +9us")
    assert result.outcome.wrong_count
    assert (result.verdict, result.exit_code) == ("unknown", 4)


def test_a_possible_race_is_confirmed_by_a_value() -> None:
    tape = parse((CORPUS / "own/inferred-range.litmus").read_text()).tape("buggy")
    (finding,) = check_tape(tape).findings
    assert finding.verdict == "possible"
    result = replay(tape, delays=f"first {finding.ops[0].kind} of {finding.ops[0].label} +9us")
    assert result.verdict == "confirmed"
    assert finding in result.confirmed


def test_what_cannot_be_judged_is_not_clean() -> None:
    tape = parse((CORPUS / "own/unknown-accesses.litmus").read_text()).tape("buggy")
    result = replay(tape)
    assert (result.verdict, result.exit_code) == ("cannot judge", 4)


def test_a_deadlock_is_a_result() -> None:
    for name in ("collective-inversion", "semaphore-never"):
        tape = parse((CORPUS / f"own/{name}.litmus").read_text()).tape("buggy")
        result = replay(tape)
        assert (result.verdict, result.exit_code) == ("deadlock", 1)
        assert any(f.kind == "deadlock" for f in result.confirmed)
        assert result.as_dict()["deadlock"]["stuck"]
        report = check_tape(tape)
        accepted = Baseline(frozenset(f.signature for f in report.findings))
        assert replay(tape, baseline=accepted).verdict == "cannot judge"  # as check: some ops never start


def test_lifetime_faults_are_facts() -> None:
    tape = parse(
        "1 | alloc | H | | | M\n2 | kernel | s | | M |\n3 | sync | H | | | s\n4 | free | H | | | M\n"
    ).tape()
    assert replay(tape).verdict == "clean"
    tape = parse("1 | alloc | H | | | M\n2 | kernel | s | | M |\n4 | free | H | | | M\n").tape()
    result = replay(tape, delays="first kernel +9us")
    assert result.verdict == "confirmed"
    assert result.told[0].wrong.kind == "freed"
    assert result.confirmed[0].fault == "free-in-flight"


def test_windows() -> None:
    tape = bug()
    result = replay(tape, ops=(1, None), delays=AIM)
    assert len(result.op_ids) == 3
    assert result.verdict == "confirmed"
    assert replay(tape, ops=(None, 2)).verdict == "clean"
    with pytest.raises(UsageError, match="inside of the window"):
        replay(tape, ops=(2, 3), delays=AIM)
    with pytest.raises(UsageError, match="no op in 7:9"):
        replay(tape, ops=(7, 9))
    with pytest.raises(UsageError, match="have no step"):
        replay(tape, steps=(0, 1))
    with pytest.raises(UsageError, match="one of them"):
        replay(tape, steps=(0, 1), ops=(0, 1))
    text = "1 | host | H | | M | | step=3\n2 | copy | q | M | D | | step=3\n3 | host | H | | M | | step=4\n"
    steps = parse(text).tape()
    assert replay(steps, steps=(3, 4)).op_ids.tolist() == [0, 1]
    assert replay(steps, steps=(None, None)).op_ids.tolist() == [0, 1, 2]
    assert replay(steps, steps=(4, None)).op_ids.tolist() == [2]
    with pytest.raises(UsageError, match="no op of steps 7:"):
        replay(steps, steps=(7, None))


def test_anchors_count_over_the_whole_tape() -> None:
    rows = "".join(f"{n} | copy | q | M | D{n} |\n" for n in range(1, 5))
    result = replay(parse(rows).tape(), ops=(2, 4), delays="3rd copy +7ns")
    assert result.op_ids.tolist() == [2, 3]
    assert result.delays.row.tolist() == [0]


def test_a_plan_in_a_window_counts_what_is_inside() -> None:
    rows = "".join(f"{n} | copy | q | M | D{n} |\n" for n in range(1, 5))
    plan = parse_plan("tapedelay-plan 1\nevery copy +7ns\n#0 +1ns\n")
    result = replay(parse(rows).tape(), ops=(2, 4), delays=plan)
    assert [m.count for m in result.matched] == [2, 0]


class Counting:
    """The virtual backend, counting runs; it may be interrupted."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.runs: list[Delays] = []
        self.pins: list[Pin | None] = []
        self.stop_at = stop_at
        self.closed = 0
        self._inner = VirtualBackend()
        self._loaded: Loaded | None = None

    def capabilities(self) -> Capabilities:
        return replace(self._inner.capabilities(), name="counting", pin=True)

    def available(self) -> str:
        return ""

    def load(self, program: Program, options: Options) -> Counting:
        self._loaded = self._inner.load(program, options)
        return self

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        if len(self.runs) == self.stop_at:
            raise KeyboardInterrupt
        self.runs.append(delays)
        self.pins.append(pin)
        assert self._loaded is not None
        return self._loaded.run(delays)

    def close(self) -> None:
        self.closed += 1


def test_repetitions_count_seeds_up() -> None:
    backend = Counting()
    result = replay(bug(), backend=backend, delays="seed=7 max=3us", repeat=20)
    assert (result.runs, len(backend.runs), backend.closed) == (20, 20, 1)
    assert 0 < result.found < 20
    assert result.first_found is not None
    assert result.plan.lines[0].seed == 7 + result.first_found
    alone = replay(bug(), delays=f"seed={7 + result.first_found} max=3us")
    assert alone.verdict == "confirmed"
    assert np.array_equal(alone.outcome.end_ns, result.outcome.end_ns)
    assert len({tuple(d.ns.tolist()) for d in backend.runs}) > 10
    for count in (0, -1, 10**9):
        with pytest.raises(UsageError, match="repeat"):
            replay(bug(), repeat=count)


def test_an_interrupted_repetition_keeps_what_it_has() -> None:
    backend = Counting(stop_at=3)
    result = replay(bug(), backend=backend, delays=AIM, repeat=10)
    assert (result.runs, result.found, result.first_found, result.interrupted) == (3, 3, 0, True)
    assert backend.closed == 1
    with pytest.raises(KeyboardInterrupt):
        replay(bug(), backend=Counting(stop_at=0), repeat=10)


def test_an_interrupted_repetition_that_found_nothing_is_not_clean() -> None:
    result = replay(bug(), backend=Counting(stop_at=3), repeat=10)
    assert (result.runs, result.repeat, result.found) == (3, 10, 0)
    assert (result.verdict, result.exit_code) == ("cannot judge", 4)
    assert "interrupted after 3 of 10 runs: none shows anything" in "\n".join(render_replay(result))
    assert replay(bug(), backend=Counting(), repeat=10).verdict == "clean"


def test_what_check_cannot_order_is_not_clean_either() -> None:
    text = (CORPUS / "own/unresolved-wait.litmus").read_text()
    tape = parse(text).tape("buggy")
    report = check_tape(tape)
    assert report.verdict == "unknown"
    result = replay(tape, delays="#3 +5us")
    assert result.outcome.clean
    assert (result.verdict, result.exit_code) == ("unknown", 4)
    assert "check has pairs that something unseen may order" in "\n".join(render_replay(result))
    accepted = Baseline(frozenset(f.signature for f in report.findings))
    assert replay(tape, delays="#3 +5us", baseline=accepted).verdict == "clean"


def test_clean_is_said_of_the_window() -> None:
    rows = "1 | copy | q | M | D\n2 | host | H | | M\n3 | host | H | X | "
    tape = parse(rows).tape()
    whole, part = replay(tape, delays="first copy +5us"), replay(tape, ops=(1, 3))
    assert (whole.verdict, whole.window, whole.as_dict()["window"]) == ("confirmed", "", None)
    assert (part.verdict, part.exit_code) == ("clean", 0)
    assert render_replay(part)[0].startswith("litmus: clean within the window 1:3 of 3 ops: 0 wrong reads")
    assert part.as_dict()["window"] == "window 1:3 of 3 ops"
    assert render_search(search(tape, ops=(1, 3)))[0].startswith("litmus: clean within the window 1:3 of")
    assert render_replay(replay(bug(fixed=True)))[0].startswith("litmus: clean: ")


def test_a_pin_needs_a_backend_that_can_and_an_order_of_all_events() -> None:
    with pytest.raises(UsageError, match="a pin on the backend virtual"):
        replay(bug(), pin=True)
    tape = parse((CORPUS / "own/semaphore-never.litmus").read_text()).tape("buggy")
    backend = Counting()
    result = replay(tape, backend=backend, pin=True)
    assert (result.verdict, result.exit_code, result.pinned, backend.pins) == ("deadlock", 1, False, [None])
    assert any("not pinned" in n for n in result.outcome.notes)


def test_a_pin_takes_the_place_of_the_delays() -> None:
    backend = Counting()
    replay(bug(), backend=backend, delays=AIM, pin=True)
    (pin,) = backend.pins
    assert pin is not None
    assert not len(backend.runs[0])
    first, second = pin.schedule.tolist().index(1), pin.schedule.tolist().index(~3)
    assert second < first  # op 3 has ended when op 1, the copy, starts


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    note: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    replay(bug(), repeat=3, progress=note)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_json_is_plain() -> None:
    import json

    data = json.loads(json.dumps(replay(bug(), delays=AIM).as_dict()))
    assert data["schema"] == "tapedelay-replay-1"
    assert data["verdict"] == "confirmed"
    assert data["wrong"][0]["saw"] == [{"begin": 1024, "end": 2048, "op": 3, "state": "version"}]
    assert data["chain"][-1] is None
    assert data["delays"] == [{"line": 1, "text": "first copy on vk0 +5us before_start", "count": 1}]
    assert data["confirmed"][0]["ops"][0]["label"] == "2"
    assert {q["name"] for q in data["timeline"]["queues"]} == {"H", "vk0"}
