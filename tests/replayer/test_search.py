"""`search`: for every finding the one delay that shows it, in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tapedelay.formats.delays import BEFORE_START, match_plan, parse_expression, print_line, random_delays
from tapedelay.formats.litmus import parse, read
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.check import Baseline, check_tape
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import replay, search

from .random_tapes import tapes

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(f for d in ("ops", "own") for f in (ROOT / "tests/corpus" / d).glob("*.litmus"))
AIM = "first copy of model.input_embed on TAPE0 +3ms before_start"

UNSHOWN = {"double-free", "graph-siblings"}
"""No read tells: nothing else touches the bytes; or the launch writes over what its kernels have written."""


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_every_finding_of_the_corpus_is_shown_by_one_delay(file: Path) -> None:
    litmus = read(file)
    tape = litmus.tape("buggy")
    result = search(tape, every=True)
    certain = [
        a for a in result.attempts if a.finding.verdict in ("race", "possible", "deadlock", "lifetime")
    ]
    unshown = [(a.finding.line(), a.reason) for a in certain if a.state != "confirmed"]
    assert bool(unshown) == (file.stem in UNSHOWN), unshown
    assert result.exit_code == (1 if certain else check_tape(tape).exit_code)
    for attempt in result.attempts:
        if attempt.plan is None or not attempt.plan.lines:
            continue
        # what is printed gives the same again, and the anchor means one op
        plan = parse_expression(attempt.expression)
        assert len(match_plan(plan, tape).delays) == 1
        again = replay(tape, delays=plan)
        assert attempt.finding in again.confirmed
        if litmus.has_variants and litmus.verdicts("fixed")[0].kind == "clean":
            fixed = litmus.tape("fixed")
            row = match_plan(plan, fixed)
            if len(row.delays):
                assert replay(fixed, delays=plan).outcome.clean


def test_random_delays_would_find_a_race() -> None:
    program = Program.from_tape(read(ROOT / "tests/corpus/ops/B01.litmus").tape("buggy"))
    loaded = VirtualBackend().load(program, Options())
    plans = [random_delays(program.op_ids, seed, 5_000) for seed in range(120)]
    assert 20 < (loaded.run_many(plans).wrong_count > 0).sum() < 120


def test_the_recording_of_the_bad_build_is_wrong_under_the_delay_that_search_finds() -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    result = search(tape)
    (attempt,) = result.attempts
    assert (attempt.state, attempt.count, result.verdict, result.exit_code) == (
        "confirmed",
        18,
        "confirmed",
        1,
    )
    assert attempt.expression.startswith("first copy of model.input_embed on TAPE0 +")
    assert attempt.plan is not None
    good = load_tape(ROOT / "traces/ggml-26040-good.tape.zip")
    assert replay(tape, delays=attempt.plan).verdict == "confirmed"
    assert replay(tape, delays=AIM).verdict == "confirmed"
    assert replay(good, delays=attempt.plan).verdict == "clean"
    assert replay(good, delays=AIM).verdict == "clean"
    assert search(good).attempts == []
    assert search(good).exit_code == 0


def test_every_pair_of_the_bad_build_is_shown() -> None:
    result = search(load_tape(ROOT / "traces/ggml-26040-bad.tape.zip"), every=True)
    assert [a.state for a in result.attempts] == ["confirmed"] * 18
    nth = [print_line(a.plan.lines[0]).split()[0] for a in result.attempts if a.plan is not None]
    assert nth[:4] == ["first", "2nd", "3rd", "4th"]


def test_the_recording_of_the_good_build_is_clean_under_a_thousand_random_plans() -> None:
    program = Program.from_tape(load_tape(ROOT / "traces/ggml-26040-good.tape.zip"))
    loaded = VirtualBackend().load(program, Options())
    plans = [
        random_delays(program.op_ids, seed, (20_000, 200_000, 3_000_000)[seed % 3], BEFORE_START)
        for seed in range(1_000)
    ]
    results = loaded.run_many(plans)
    assert not results.wrong_count.any()
    assert len(set(results.total_ns.tolist())) > 900


def test_accepted_findings_are_not_searched() -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    accepted = Baseline(frozenset(f.signature for f in check_tape(tape).findings))
    result = search(tape, baseline=accepted)
    assert [a.state for a in result.attempts] == ["accepted"]
    assert (result.runs, result.exit_code, result.verdict) == (0, 0, "clean")


def test_what_is_overwritten_unread_is_said_so() -> None:
    text = "1 | kernel | a | | M |\n2 | kernel | b | | M |\n3 | sync | H | | | a\n4 | sync | H | | | b\n"
    text += "5 | host | H | | M |\n"
    (attempt,) = search(parse(text).tape()).attempts
    assert attempt.state == "not shown"
    assert "overwritten" in attempt.reason
    assert attempt.plan is None
    seen = text.replace("5 | host | H | | M |", "5 | host | H | M | |")
    (attempt,) = search(parse(seen).tape()).attempts
    assert attempt.state == "confirmed"


def test_an_unnamed_op_is_found_from_its_neighbour() -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    from tapedelay.formats.delays import Anchors, Pattern, print_anchor
    from tapedelay.replayer.check.lasting import lasting_anchor
    from tapedelay.replayer.replay.names import Names

    anchors, names = Anchors(tape), Names(tape)
    queue = anchors.queue
    unseen = 0
    for row, origin in enumerate(tape.table("ops").column("origin").to_pylist()):
        anchor = lasting_anchor(anchors, row, names.of(row), queue)
        if isinstance(anchor, int):  # no engine issues it, so nothing counts it
            assert (anchor, origin) == (anchors.op_ids[row], "declared")
            unseen += 1
        else:
            assert isinstance(anchor, Pattern)
            assert anchors.rows(anchor).tolist() == [row]
    assert unseen == 2  # the hand-over between two host threads
    assert print_anchor(lasting_anchor(anchors, 75, names.of(75), queue)) == (
        "first copy of model.input_embed on TAPE0"
    )
    assert (
        print_anchor(lasting_anchor(anchors, 76, names.of(76), queue)) == "first compute of norm-0 on TAPE0"
    )
    assert print_anchor(lasting_anchor(anchors, 74, names.of(74), queue)) == (
        "first compute of model.input_embed on host0 +1"
    )


def test_a_whole_is_moved_by_its_parts() -> None:
    text = (
        "1 | compute | a | | M |\n2 | kernel | b | | | | parent=1\n3 | kernel | c | | | | parent=1\n"
        "4 | kernel | b | M | Y |\n"
    )
    (attempt,) = search(parse(text).tape()).attempts
    assert (attempt.state, attempt.how) == ("confirmed", "overlap")
    assert attempt.expression.startswith("first kernel of 3 on c +")


@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(tapes(), st.integers(0, 9))
def test_a_wrong_read_is_always_one_that_check_has(tape: Tape, seed: int) -> None:
    assume(not any(True for _ in validate(tape)))
    report = check_tape(tape)
    result = replay(tape, delays=f"seed={seed} max=5us" if tape.table("ops").num_rows else None)
    assert result.verdict != "wrong"
    assert not result.facts.other
    assert report.findings or result.outcome.clean
    for finding in result.confirmed:
        assert finding in report.findings
    if report.exit_code == 0:
        assert result.exit_code == 0
    shown = [a for a in search(tape, every=True).attempts if a.state == "confirmed"]
    for attempt in shown:
        assert attempt.replay is not None
        assert not attempt.replay.outcome.clean
        assert attempt.finding in attempt.replay.confirmed
        assert not attempt.replay.facts.other


def test_equal_delays_are_run_once() -> None:
    rows = ["1 | copy | q | M,N | D", "2 | host | H | | M,N"]
    result = search(parse("\n".join(rows)).tape(), every=True)
    assert [a.state for a in result.attempts] == ["confirmed"] * 2
    assert len({a.expression for a in result.attempts}) == 1
    assert result.runs == 2  # as recorded, and with the one delay


def test_a_margin_makes_a_plan_that_holds_where_times_vary() -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    least, wide = (search(tape, margin_ns=m).attempts[0] for m in (None, 5_000_000))
    assert least.plan is not None
    assert wide.plan is not None
    (a,), (b,) = least.plan.lines, wide.plan.lines
    assert a.anchor == b.anchor
    assert a.ns + 4_900_000 < b.ns < a.ns + 5_200_000
    assert wide.state == "confirmed"


def test_where_a_margin_hides_it_the_least_delay_is_tried() -> None:
    text = """
    1 | kernel | a | X |   |
    2 | kernel | b |   | X |
    3 | kernel | b |   | X |
    """
    for margin in (None, 3_600_000_000_000):  # longer than a delay may be
        (first, *_) = search(parse(text).tape(), margin_ns=margin).attempts
        assert first.state == "confirmed"
