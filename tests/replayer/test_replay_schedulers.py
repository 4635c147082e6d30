"""`replay` and `export` of tapes that tell of request schedulers: alone, and beside device ops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.errors import CannotJudge, UsageError
from tapedelay.formats.load import load_tape
from tapedelay.formats.shown import quoted
from tapedelay.formats.tape import Tape
from tapedelay.formats.write import write_tape
from tapedelay.replayer.replay.api import replay
from tapedelay.replayer.replay.search import search

from .sequence.told_tapes import Told, decided

B01 = Path(__file__).parents[1] / "corpus" / "ops" / "B01.litmus"


def told(schedulers: int = 1) -> Told:
    """A request of which a block is lost."""
    made = Told()
    for number in range(schedulers):
        made.begin().submit(number)
        made.step(0, *made.blocks("alloc", number, 1), decided("prefill", number, 3, 0))
        made.given("abort", request=number)
    return made


def both(schedulers: int = 1) -> Tape:
    """The same beside the ops of a race."""
    ops, requests = load_tape(f"{B01}:buggy"), told(schedulers).tape()
    mine = ("schedulers", "pools", "requests", "inputs", "decisions", "blocks")
    names = ("devices", "queues", "buffers", "syncs", "access_sets", "accesses", "lists", "ops", "edges")
    tables = {n: ops.table(n) for n in names if ops.rows(n)} | {n: requests.table(n) for n in mine}
    return Tape(ops.manifest, tables, name="both")


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    write_tape(told().tape(), tmp_path / "it's.tape")
    return tmp_path / "it's.tape"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    write_tape(both(), tmp_path / "mixed.tape")
    return tmp_path / "mixed.tape"


@pytest.mark.parametrize("more", [[], ["--search"]], ids=["replay", "search"])
def test_there_is_nothing_to_replay_in_a_request_scheduler(
    tape: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", str(tape), *more]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing to replay" in err
    assert err.splitlines()[-1] == f"  next: tapedelay rerun {quoted(tape)} --engine vllm"
    assert run(["replay", str(tape), *more, "--json"]) == 4
    said = json.loads(capsys.readouterr().out)
    assert said["error"] == "CannotJudge"
    assert said["next"].startswith("tapedelay rerun ")


@pytest.mark.parametrize("call", [replay, search])
def test_the_calls_say_so_too(call: Callable[[Tape], object]) -> None:
    with pytest.raises(CannotJudge, match="request schedulers alone"):
        call(told().tape())


@pytest.mark.parametrize("more", [[], ["--search"]], ids=["replay", "search"])
def test_what_is_beside_ops_is_named_and_does_not_count(
    mixed: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    alone = run(["replay", f"{B01}:buggy", *more, "--json"])
    plain = json.loads(capsys.readouterr().out)
    assert run(["replay", str(mixed), *more, "--json"]) == alone
    said = json.loads(capsys.readouterr().out)
    assert (plain["schedulers"], said["schedulers"]) == ({}, {"vllm": 1})
    assert {k: said[k] for k in ("verdict", "conditions")} == {k: plain[k] for k in ("verdict", "conditions")}
    run(["replay", str(mixed), *more])
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert last == "not replayed: 1 request scheduler (vllm): `tapedelay rerun` drives those"


def test_a_litmus_file_holds_the_ops_or_a_scheduler(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(mixed), "--format", "litmus"]) == 0
    out, err = capsys.readouterr()
    assert not out.startswith("seq")
    assert err.strip() == "only the ops: 1 request scheduler left out, see --scheduler 0"
    assert run(["export", str(mixed), "--format", "litmus", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedulers"] == [0]
    case = tmp_path / "case.litmus"
    assert run(["export", str(mixed), "--format", "litmus", "--scheduler", "0", "-o", str(case)]) == 0
    assert "seq" in case.read_text().splitlines()
    capsys.readouterr()
    assert run(["check", str(case), "--expect"]) == 0, capsys.readouterr()


def test_one_of_several_schedulers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.tape"
    write_tape(told(2).tape(), path)
    assert run(["export", str(path), "--format", "litmus"]) == UsageError.exit_code
    assert "--scheduler 0" in capsys.readouterr().err
    for number, code in ((0, 0), (1, 0), (2, UsageError.exit_code)):
        assert run(["export", str(path), "--format", "litmus", "--scheduler", str(number)]) == code
        assert ("abort R" in capsys.readouterr().out) == (code == 0)


@pytest.mark.parametrize("more", [["--format", "html"], ["--format", "litmus", "--ops", "0:2"]])
def test_a_scheduler_is_written_as_a_whole_sequence_alone(
    mixed: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(mixed), *more, "--scheduler", "0"]) == UsageError.exit_code
    assert "--scheduler with --" in capsys.readouterr().err
