"""What wrong reads count as: limits, baselines, and which finding they are credited to; both directions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tapedelay.formats.delays import BEFORE_START, Delays
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options, Pin
from tapedelay.replayer.backends.virtual import LoadedVirtual, VirtualBackend
from tapedelay.replayer.check import Baseline, Report, check_tape
from tapedelay.replayer.check.findings import Finding
from tapedelay.replayer.outcome import Outcome, WrongRead, own_first
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import preparing, replay
from tapedelay.replayer.replay.render import render_replay

from .random_tapes import BYTES, random_tape
from .test_replay_model import as_delays, random_delays, timed
from .test_search import ROOT

ALL = "every copy on q +3us"


def copies(buffers: list[str]) -> Tape:
    """Return a tape in which the host writes to what each copy reads without waiting for it."""
    rows = []
    for i, m in enumerate(buffers):
        rows += [f"a{i} | host | H | | {m}[0:64]", f"b{i} | copy | q | {m}[0:64] | D[0:64]"]
        rows += [f"c{i} | host | H | | {m}[0:64]", f"d{i} | sync | H | | | q", f"e{i} | host | H | D[0:64] |"]
    return parse("\n".join(rows)).tape()


def accepting(tape: Tape, *, but: str = "") -> Baseline:
    return Baseline(frozenset(f.signature for f in check_tape(tape).findings if f.buffer != but))


def test_what_is_not_accepted_counts_behind_any_number_of_what_is() -> None:
    tape = copies(["M"] * 150 + ["N"])
    result = replay(tape, delays=ALL, baseline=accepting(tape, but="N"))
    assert (result.verdict, result.exit_code, result.found) == ("confirmed", 1, 1)
    assert (result.facts.accepted, result.facts.shown) == (150, 1)
    assert result.first is not None
    assert result.first.buffer == "N"
    assert len(result.told) == 100
    everything = replay(tape, delays=ALL, baseline=accepting(tape))
    assert (everything.verdict, everything.exit_code, everything.found) == ("clean", 0, 0)
    assert everything.facts.accepted == 151


def test_what_is_left_out_is_never_called_clean() -> None:
    tape = copies(["M"] * 20)
    few = replay(tape, delays=ALL, baseline=accepting(tape), options=Options(wrong_limit=5))
    assert (few.outcome.unlisted, few.verdict, few.exit_code) == (15, "cannot judge", 4)
    assert "15 more wrong reads are not listed" in "\n".join(render_replay(few))
    assert few.as_dict()["unlisted"] == 15
    enough = replay(tape, delays=ALL, baseline=accepting(tape), options=Options(wrong_limit=20))
    assert (enough.outcome.unlisted, enough.verdict) == (0, "clean")  # only derived ones are left out
    assert enough.outcome.wrong_count == 41


def test_what_comes_out_of_others_is_left_out_first() -> None:
    rows = ["1 | kernel | q | | A[0:8]", "2 | kernel | r | A | B"]
    rows += [f"{n} | kernel | r | B | B[0:8]" for n in range(3, 40)]
    rows += ["40 | kernel | q | | C[0:8]", "41 | kernel | r | C | E"]
    program = Program.from_tape(parse("\n".join(rows)).tape())
    run = Delays.of([(0, BEFORE_START, 10**6), (39, BEFORE_START, 10**6)])
    outcome = VirtualBackend().load(program, Options(wrong_limit=2)).run(run)
    assert outcome.wrong_count > 30
    assert outcome.own_count == 2
    assert [(w.row, w.derived) for w in outcome.wrong] == [(1, False), (40, False)]
    assert outcome.unlisted == 0


def test_any_limit_keeps_the_same_facts_on_random_tapes() -> None:
    derived = 0
    for seed in range(200):
        r = random.Random(seed)
        tape = timed(random_tape(r.randbytes(BYTES)), r)
        try:
            program = Program.from_tape(tape)
        except InvalidTape:
            continue
        delays = as_delays(random_delays(program.rows, r))
        everything = VirtualBackend().load(program, Options()).run(delays)
        for limit in (1, 3):
            few = VirtualBackend().load(program, Options(wrong_limit=limit)).run(delays)
            assert few.wrong == own_first(everything.wrong, limit)
            assert (few.wrong_count, few.own_count) == (len(everything.wrong), everything.own_count)
            assert few.chain == everything.chain
        derived += sum(w.derived for w in everything.wrong)
    assert derived > 5


def test_own_first_keeps_order_and_the_first() -> None:
    def wrong(row: int, *, derived: bool = False) -> WrongRead:
        return WrongRead(row, -1, "stale", 0, 0, 1, row, derived=derived)

    every = [wrong(0), wrong(1, derived=True), wrong(2, derived=True), wrong(3), wrong(4, derived=True)]
    assert [w.row for w in own_first(every, 5)] == [0, 1, 2, 3, 4]
    assert [w.row for w in own_first(every, 3)] == [0, 1, 3]
    assert [w.row for w in own_first(every, 2)] == [0, 3]
    assert [w.row for w in own_first(every, 1)] == [0]


def test_one_delay_shows_all_pairs_of_the_bad_build() -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    result = replay(tape, delays="every copy of model.input_embed on TAPE0 +1ms")
    assert len(result.confirmed) == 18
    assert result.facts.other == 0


Keep = Callable[[Finding], bool]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[Keep], None]:
    """Return a function that makes `check` miss some of what it finds."""

    def less(keep: Keep) -> None:
        def missing(tape: Tape, baseline: Baseline | None = None, *, schedulers: bool = True) -> Report:
            report = check_tape(tape, baseline, schedulers=schedulers)
            groups = [g for g in report.groups if keep(g.example)]
            return replace(report, findings=[f for f in report.findings if keep(f)], groups=groups)

        monkeypatch.setattr(preparing, "check_tape", missing)

    return less


def test_a_pair_on_other_memory_is_not_behind_a_wrong_read(without: Callable[[Keep], None]) -> None:
    tape = copies(["M", "N"])
    assert replay(tape, delays=ALL).facts.shown == 2
    without(lambda f: f.buffer == "N")
    result = replay(tape, delays=ALL)
    assert (result.facts.shown, result.facts.other) == (1, 1)
    assert [f.buffer for f in result.confirmed] == ["N"]
    assert "check has nothing for 1 wrong read" in "\n".join(render_replay(result))
    without(lambda f: False)
    result = replay(tape, delays=ALL)
    assert (result.verdict, result.exit_code, result.confirmed) == ("wrong", 1, ())


def test_a_pair_on_other_bytes_is_not_behind_a_wrong_read(without: Callable[[Keep], None]) -> None:
    text = "1 | kernel | q | | M[0:8]\n2 | kernel | q | | M[8:16]\n3 | kernel | r | M[0:8] | Y\n"
    tape = parse(text + "4 | kernel | r | M[8:16] | Z").tape()
    assert len(replay(tape, delays="every kernel on q +9us").confirmed) == 2
    without(lambda f: f.begin == 8)
    result = replay(tape, delays="every kernel on q +9us")
    assert (len(result.confirmed), result.facts.other) == (1, 1)


def test_a_lifetime_fact_shows_no_race_nor_a_race_a_lifetime_fault(without: Callable[[Keep], None]) -> None:
    text = "1 | alloc | H | | | M\n2 | kernel | s | | M |\n3 | kernel | t | M | Y |\n4 | free | H | | | M\n"
    tape = parse(text).tape()
    every = replay(tape, delays="every kernel on s +9us")
    assert {w.kind for w, _ in every.facts.each} > {"freed"}
    assert every.facts.other == 0
    for kind in ("race", "lifetime"):
        without(lambda f, kind=kind: f.kind == kind)  # type: ignore[misc]
        result = replay(tape, delays="every kernel on s +9us")
        assert result.facts.other
        assert {f.kind for f in result.confirmed} == {kind}


def test_a_pair_stands_for_earlier_ones_and_for_no_later_ones() -> None:
    text = "1 | kernel | q | M | A |\n2 | kernel | q | M | B |\n3 | host | H | | M |\n"
    result = replay(parse(text).tape(), delays="every kernel on q +9us")
    (finding,) = result.confirmed
    assert finding.labels == ("2", "3")
    assert [w.row for w, _ in result.facts.each] == [0, 1]  # the pair 1x3 is not listed
    assert result.facts.other == 0


def test_old_content_that_a_writer_keeps_leads_to_its_pair(without: Callable[[Keep], None]) -> None:
    text = (
        "1 | kernel | q | | M[0:8]\n2 | kernel | r | | M[0:8]:may_write,N:may_write\n3 | sync | H | | | r\n"
    )
    tape = parse(text + "4 | host | H | N |").tape()
    result = replay(tape, delays="first kernel on q +9us")
    assert 3 in [w.row for w, _ in result.facts.each]
    assert result.facts.other == 0
    without(lambda f: False)
    assert replay(tape, delays="first kernel on q +9us").verdict == "wrong"


def test_something_certain_is_shown_rather_than_something_unknown() -> None:
    # The first run shows what is unknown, the second what is certain, the third unknown again.
    plans = [Delays.of([(0, BEFORE_START, 9_000)]), Delays.of([(4, BEFORE_START, 9_000)]), Delays.of()]

    class Scripted(LoadedVirtual):
        def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
            return super().run(plans.pop(0))

    class Falling(VirtualBackend):
        def load(self, program: Program, options: Options) -> LoadedVirtual:
            return Scripted(program, options)

    text = "1 | kernel | s | | A[0:8]\n2 | wait | r | | | e | state=unresolved\n3 | kernel | r | A | B\n"
    text += "4 | sync | H | | | *\n5 | copy | s | M[0:8] | D\n"
    text += "6 | host | H | | X\n7 | host | H | | X\n8 | host | H | | M[0:8]\n"
    tape = parse(text).tape()
    assert sorted({f.verdict for f in check_tape(tape).findings}) == ["race", "unknown"]
    result = replay(tape, backend=Falling(), repeat=3)
    assert (result.verdict, result.runs, result.found, result.first_found) == ("confirmed", 3, 3, 1)
