"""What a tape tells of its request schedulers, as commands, and what `check` makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.requests.read import read_inputs, read_schedulers
from tapedelay.formats.requests.recorded import RecordedInput
from tapedelay.formats.summary import summarise
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import require_valid
from tapedelay.formats.write import write_tape
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.schedulers import check_schedulers, manners_of
from tapedelay.replayer.sequence.report import report_on
from tapedelay.replayer.sequence.story import Manners, commands_of

from ..test_check import ggml_like
from .told_tapes import Told, answered, decided

Capture = pytest.CaptureFixture[str]
STRICT = Manners(in_order=False)


def told(tape: Tape, manners: Manners | None = None) -> list[str]:
    """Return the commands of the only scheduler."""
    require_valid(tape)
    (scheduler,) = read_schedulers(tape)
    ended = tape.manifest.complete
    return [s.command.text() for s in commands_of(scheduler, read_inputs(tape), manners=manners, ended=ended)]


def found(tape: Tape) -> list[str]:
    """Return the invariants that `check` finds broken, and where."""
    require_valid(tape)
    return [
        f"{p.violation.invariant} input {p.seen.input}"
        for s in check_tape(tape).schedulers
        for p in s.violations
    ]


def begun(engine: str = "vllm") -> Told:
    """Return one request after its prompt: it owns kv1 and kv2, a step is in flight."""
    t = Told().begin(engine)
    return t.submit(0, 20).step(0, *t.blocks("alloc", 0, 1, 2), decided("prefill", 0, 20, 0))


def test_a_clean_run() -> None:
    t = begun()
    t.output(0)
    t.step(1, decided("decode", 0, 1, 20), t.free("kv", 6, 2))
    t.output(1, answered(0, 1, "length"), decided("finish", 0), *t.blocks("free", 0, 2, 1))
    t.step(2)
    tape = t.tape()
    start = ["arrive R0", "alloc R0 kv1 kv2", "schedule R0"]
    ends = ["retire S1", "finish R0", "free R0 kv2 kv1", "emit R0", "idle"]
    assert told(tape) == [*start, "launch S0 R0", "retire S0", "emit R0", "launch S1 R0", *ends]
    units = " kv1 kv2"
    assert told(tape, STRICT) == [
        *start,
        f"launch S0 R0{units}",
        "retire S0",
        "emit R0",
        f"launch S1 R0{units}",
        *ends,
    ]
    report = check_tape(tape)
    assert (report.verdict, report.exit_code, report.conditions) == ("clean", 0, [])
    (judged,) = report.schedulers
    assert (judged.name, judged.requests, judged.steps, judged.commands) == ("vllm 0.32.0", 1, 3, 12)
    (shown,) = summarise(tape)["schedulers"]
    assert (shown["requests"], shown["steps"]) == (1, 3)


def test_units_that_an_abort_leaves_behind() -> None:
    t = begun()
    t.output(0).given("abort", *t.blocks("free", 0, 2), request=0).step(1)
    assert found(t.tape()) == ["I3 input 4"]
    t = begun()
    t.output(0).given("abort", *t.blocks("free", 0, 1, 2), request=0).step(1)
    assert found(t.tape()) == []


def test_idle_is_said_once_and_after_the_scheduler_had_its_chance() -> None:
    """Some give units back in the step after the last output, so only what is held after it is held."""
    t = begun()
    t.output(0, answered(0, 1, "stop"), decided("finish", 0))
    late = t.step(1, *t.blocks("free", 0, 1, 2)).step(2).step(3).tape()
    assert told(late).count("idle") == 1
    assert found(late) == []
    again = t.submit(1).step(4, *t.blocks("alloc", 1, 1), decided("prefill", 1, 3, 0))
    again.output(4, answered(1, 1, "stop"), decided("finish", 1))
    assert told(again.tape())[-2:] == ["emit R1", "idle"]
    assert told(again.tape(complete=False))[-1] == "emit R1"  # it may have gone on


def test_a_request_is_preempted_and_comes_again() -> None:
    t = begun().output(0)
    t.step(1, decided("preempt", 0), *t.blocks("free", 0, 2, 1))
    t.step(2, *t.blocks("alloc", 0, 3), decided("resume", 0), decided("prefill", 0, 21, 0)).output(2)
    middle = told(t.tape())[6:]
    assert middle[:3] == ["preempt R0", "free R0 kv2 kv1", "pass"]
    assert middle[3:] == ["alloc R0 kv3", "resume R0", "launch S2 R0", "retire S2", "emit R0"]


@pytest.mark.parametrize(
    ("shown", "expected"), [(None, ["I8 input 3"]), (1, ["I8 input 3"]), (0, [])], ids=str
)
def test_output_of_an_aborted_request(shown: int | None, expected: list[str]) -> None:
    """Its answer still comes; what is shown is the answer unless the tape says otherwise."""
    t = begun()
    t.given("abort", *t.blocks("free", 0, 1, 2), request=0)
    t.output(0, *([] if shown is None else [decided("emit", 0, shown)]))
    assert found(t.tape()) == expected


def test_a_unit_with_two_owners_and_one_freed_twice() -> None:
    t = begun().output(0).submit(1)
    t.step(1, *t.blocks("alloc", 1, 2), decided("prefill", 1, 3, 0)).output(1)
    t.given("abort", *t.blocks("free", 0, 1, 2), *t.blocks("free", 0, 1), requests=[0])
    assert found(t.tape(complete=False)) == ["I1 input 4", "I1 input 6"]


def test_units_in_flight_where_steps_run_in_order_and_where_they_do_not() -> None:
    t = begun()
    t.given("abort", *t.blocks("free", 0, 1, 2), request=0).output(0, decided("emit", 0, 0))
    tape = t.tape()
    assert found(tape) == []  # vLLM does so on purpose
    (scheduler,) = read_schedulers(tape)
    assert manners_of(scheduler).in_order
    assert "launch S0 R0 kv1 kv2" in told(tape, STRICT)


def test_a_transfer_is_in_flight_until_it_ends() -> None:
    t = begun().output(0)
    t.given("abort", *t.blocks("launch", 0, 1, 2), *t.blocks("free", 0, 2), request=0)
    t.step(1, *t.blocks("retire", 0, 1, 2), *t.blocks("free", 0, 1))
    assert found(t.tape()) == ["I2 input 3"]
    assert "launch T-kv2 R0 kv2" in told(t.tape())


def test_owners_that_nobody_named() -> None:
    t = begun().output(0)
    t.step(1, *t.blocks("alloc", None, 5), *t.blocks("free", None, 5, 1), *t.blocks("free", None, 8))
    assert told(t.tape(complete=False))[6:] == [
        "alloc engine kv5",
        "free engine kv5 kv8",
        "free R0 kv1",
        "pass",
    ]


def test_a_shared_prefix() -> None:
    t = begun().output(0).submit(1, 20)
    t.step(1, *t.blocks("share", 1, 1), *t.blocks("alloc", 1, 3), decided("prefill", 1, 4, 16)).output(1)
    t.given("abort", *t.blocks("free", 0, 1, 2), *t.blocks("free", 1, 1, 3), requests=[0, 1]).step(2)
    assert found(t.tape()) == []


def test_a_counter_below_zero() -> None:
    t = begun().output(0)
    for step, free in enumerate((6, -2, -1, 6, -1, 9), 1):
        t.step(step, t.free("kv", free, 8 - free))
    counted = [f for f in found(t.tape(complete=False)) if f.startswith("I7")]
    assert counted == ["I7 input 4", "I7 input 7", "I7 input 8"]  # 9 free of 8: -1 used


# --- progress ---


def still(t: Told, first: int = 1, count: int = 4) -> Told:
    """Add steps that schedule nothing."""
    for n in range(first, first + count):
        t.step(n)
    return t


def test_work_that_waits_without_progress() -> None:
    assert found(still(Told().begin().submit(0)).tape()) == ["I5 input 3"]
    assert found(still(Told().begin().submit(0), count=2).tape()) == []
    t = Told().begin().submit(0).step(0).step(1).step(2, decided("prefill", 0, 3, 0)).output(2)
    assert found(still(t, 3, 2).tape(complete=False)) == []


def test_waiting_for_an_output_is_no_stall() -> None:
    t = still(begun())
    assert found(t.tape(complete=False)) == []
    assert "pass" not in told(t.tape())


@pytest.mark.parametrize("kind", ["paused", "decode_only", "session", "blocked", "grammar", "transfer"])
def test_waiting_on_purpose_is_no_stall(kind: str) -> None:
    flags = {
        "session": ["resumable"],
        "blocked": ["blocked"],
        "grammar": ["unrecorded_structured"],
        "transfer": ["unrecorded_kv_transfer"],
    }.get(kind, [])
    t = Told().begin().submit(0, 3, flags)
    if kind == "paused":
        t.given("pause", word="keep")
    elif kind == "session":
        t.step(0, decided("prefill", 0, 3, 0)).output(0, answered(0, 1, "length"))
    columns: dict[str, Any] = {}
    if kind == "decode_only":
        columns["decode_only"] = True
    for n in range(1, 6):
        t.step(n, **columns)
    assert "pass" not in told(t.tape())
    ends = {"paused": "resume", "session": "next_chunk", "blocked": "set_schedulable"}.get(kind)
    if ends is not None:
        t.given(ends, request=0 if kind != "paused" else None, tokens=2 if kind == "session" else None)
        assert len(found(still(t, 6).tape())) == 1


@pytest.mark.parametrize("flag", ["unrecorded_structured", "unrecorded_kv_transfer"])
def test_a_grammar_is_waited_for_once(flag: str) -> None:
    """A request that ran has its grammar; what a transfer brings may be waited for again."""
    t = Told().begin().submit(0, 3, [flag])
    t.step(0, *t.blocks("alloc", 0, 1), decided("prefill", 0, 3, 0)).output(0, answered(0, 1))
    t.step(1, decided("preempt", 0), *t.blocks("free", 0, 1))
    assert [f[:2] for f in found(still(t, 2).tape())] == ["I5"] * (flag == "unrecorded_structured")


@pytest.mark.parametrize("ran", [False, True])
def test_behind_a_request_that_cannot_be_scheduled_yet(ran: bool) -> None:
    """New ones may wait there; one that ran, and was preempted, may not."""
    t = Told().begin().submit(0, 20)
    if ran:
        t.step(0, *t.blocks("alloc", 0, 1, 2), decided("prefill", 0, 20, 0)).output(0)
        t.step(1, decided("preempt", 0), *t.blocks("free", 0, 1, 2))
    t.submit(1, 3, ["blocked"])
    assert [f[:2] for f in found(still(t, 2).tape())] == ["I5"] * ran


def test_an_engine_may_need_more_patience() -> None:
    t = still(Told().begin().submit(0), count=6)
    assert told(t.tape(), Manners(patience=5)).count("pass") == 4
    assert told(t.tape(), Manners(patience=3)).count("pass") == 6


def test_no_module_is_imported_because_a_tape_names_it() -> None:
    (scheduler,) = read_schedulers(Told().begin("antigravity:fly").submit(0).tape())
    assert manners_of(scheduler) == Manners()
    (scheduler,) = read_schedulers(Told().begin("deepinfer", None, nonsense=True).submit(0).tape())
    assert manners_of(scheduler).patience >= 3


# --- the command ---


def leaking(builder: Told | None = None) -> Told:
    t = (builder or Told()).begin()
    t.submit(0, 20).step(0, *t.blocks("alloc", 0, 1, 2), decided("prefill", 0, 20, 0))
    return t.output(0).given("abort", request=0).step(1)


def test_check_says_what_is_held(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "leak.tape"
    write_tape(leaking().tape(), path)
    assert run(["check", str(path)]) == 1
    out = capsys.readouterr()
    assert out.out.splitlines() == [
        "leak.tape: 1 violation in 1 request and 2 steps of vllm 0.32.0",
        "",
        "VIOLATION  I3@8 held when idle  once",
        "  idle, but kv1, kv2 (owned by R0) are held",
        "  must hold: nothing is held when the scheduler is idle",
        "  at command 8, input 4, step 1",
        "  2  alloc R0 kv1 kv2",
        "  7  abort R0",
        "  8  idle",
    ]
    assert out.err == f"next: tapedelay rerun {path} --engine vllm\n"
    assert run(["check", str(path), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["counts"]["violation"], data["ops"]) == ("violation", 1, 0)
    (scheduler,) = data["schedulers"]
    (violation,) = scheduler["violations"]
    assert (violation["invariant"], violation["input"], violation["step"]) == ("I3", 4, 1)
    assert violation["names"] == ["kv1", "kv2"]


def test_accepted_violations(tmp_path: Path, capsys: Capture) -> None:
    path, known = tmp_path / "leak.tape", tmp_path / "known.json"
    write_tape(leaking().tape(), path)
    assert run(["check", str(path), "--write-baseline", str(known)]) == 0
    assert "1 kind of findings accepted" in capsys.readouterr().err
    assert run(["check", str(path), "--baseline", str(known)]) == 0
    out = capsys.readouterr().out
    assert "clean: 0 violations, 1 accepted in 1 request" in out
    assert "accepted by the baseline:\n  I3 held when idle (kv), once" in out
    other = tmp_path / "other.tape"
    write_tape(still(Told().begin().submit(0)).tape(), other)
    assert run(["check", str(other), "--baseline", str(known)]) == 1
    assert "the baseline has 1 entry that nothing matched" in capsys.readouterr().out


def test_ops_and_schedulers_in_one_tape(tmp_path: Path, capsys: Capture) -> None:
    """Each is judged, and either makes the tape found."""
    racy, clean = ggml_like(), ggml_like(synchronised=True)
    for ops, scheduler, code, verdict in (
        (racy, begun(), 1, "race"),
        (racy, leaking(), 1, "race"),
        (clean, leaking(), 1, "violation"),
        (clean, begun(), 0, "clean"),
    ):
        of_scheduler = scheduler.tape()
        tables = {n: ops.table(n) for n in ops.present}
        tables |= {n: of_scheduler.table(n) for n in of_scheduler.present if n not in tables}
        tape = Tape(ops.manifest, tables, name="both.tape")
        report = check_tape(tape)
        assert (report.exit_code, report.verdict) == (code, verdict)
    path = tmp_path / "both.tape"
    write_tape(tape, path)
    assert run(["check", str(path)]) == 0
    assert "clean: 0 races in " in (out := capsys.readouterr().out)
    assert "; 0 violations in 1 request and 1 step of vllm 0.32.0" in out


def test_a_scheduler_is_written_as_a_sequence(tmp_path: Path, capsys: Capture) -> None:
    path, out = tmp_path / "leak.tape", tmp_path / "leak.litmus"
    write_tape(leaking().tape(), path)
    assert run(["export", str(path), "--format", "litmus", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 8 commands\n"
    assert out.read_text().startswith("# engine: vllm 0.32.0\nseq\narrive R0\nalloc R0 kv1 kv2\n")
    assert out.read_text().endswith("abort R0\nidle\nviolates: I3@8\n")
    assert run(["check", str(out), "--expect"]) == 0
    several = tmp_path / "two.tape"
    write_tape(leaking().begin().submit(1).tape(), several)
    assert run(["export", str(several), "--format", "litmus"]) == 2
    assert "2 request schedulers (expected one)" in capsys.readouterr().err


def test_two_schedulers(capsys: Capture, tmp_path: Path) -> None:
    t = leaking()
    t.begin("toy", None).submit(1).step(0, *t.blocks("alloc", 1, 1), decided("prefill", 1, 3, 0))
    t.output(0, answered(1, 1, "stop"), decided("finish", 1), *t.blocks("free", 1, 1)).step(1)
    report = check_tape(t.tape())
    assert [s.found for s in report.schedulers] == [1, 0]
    path = tmp_path / "two.tape"
    write_tape(t.tape(), path)
    assert run(["check", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "1 violation in 2 requests and 4 steps of 2 request schedulers" in out
    assert "VIOLATION  I3@8 held when idle of vllm 0.32.0  once" in out
    assert err == f"next: tapedelay rerun {path} --scheduler 0\n"


def test_many_schedulers_are_judged_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds what it finds alone, and the inputs are read twice at most, however many there are."""
    t = Told()
    for n in range(40):
        t.begin().submit(2 * n)
        still(t, count=3 if n % 3 else 2)
        t.submit(2 * n + 1)
    tape = t.tape()
    require_valid(tape)
    passes = []

    def counted(of: Tape) -> Iterator[RecordedInput]:
        passes.append(of)
        return read_inputs(of)

    monkeypatch.setattr("tapedelay.replayer.check.schedulers.read_inputs", counted)
    reports = check_schedulers(tape)
    assert len(passes) == 2
    assert sum(len(r.kinds) for r in reports) == 26
    every = list(read_inputs(tape))
    for scheduler, report in zip(read_schedulers(tape), reports, strict=True):
        inputs = list(read_inputs(tape, scheduler.scheduler))
        assert inputs == [i for i in every if i.scheduler == scheduler.scheduler] != []
        seen = list(commands_of(scheduler, inputs, manners=manners_of(scheduler)))
        alone = report_on(report.name, lambda seen=seen: seen)  # type: ignore[misc]
        assert report == replace(alone, steps=report.steps)
        assert all(k.history for k in report.kinds)


@pytest.mark.parametrize(
    "config", ["", "[]", "{", '{"a": 1e999}', '{"a": [1]}', '{"a": "two words"}', "[" * 9999, '{"a b": 1}']
)
def test_a_configuration_that_is_none_is_refused(config: str) -> None:
    t = Told().begin("deepinfer").submit(0)
    t.b.rows("schedulers")[0]["config"] = config
    with pytest.raises(InvalidTape, match="config is not one JSON object"):
        require_valid(t.tape())


def test_a_configuration_of_which_an_adapter_makes_nothing_is_judged_all_the_same() -> None:
    values = ("null", "-1", "1e308", '"x"', "true", "1" + "0" * 300)
    for engine in ("vllm", "deepinfer", "transformers"):
        for value in values:
            t = Told().begin(engine).submit(0)
            names = ("num_blocks", "num_scheduler_steps", "max_concurrent_batches", "chunk_size", "patience")
            t.b.rows("schedulers")[0]["config"] = "{" + ", ".join(f'"{n}": {value}' for n in names) + "}"
            require_valid(t.tape())
            (scheduler,) = read_schedulers(t.tape())
            assert manners_of(scheduler).patience >= 3
