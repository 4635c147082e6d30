"""``record --delays``: what it refuses, reports and writes. Engines: engines/ggml."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tapedelay.formats.cli import run
from tapedelay.formats.delays import match_plan, parse_expression, print_line, read_plan
from tapedelay.formats.errors import TapedelayError, UsageError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.command import record
from tapedelay.recorder.delays import asked_delays, engine_plan, leave_plan
from tapedelay.recorder.delays.compiled import COUNTS
from tapedelay.recorder.delays.report import LineCount, delay_faults

ENTRY = "from tapedelay.formats.cli import main; main()"
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run ``tapedelay`` in ``tmp_path`` with a plugin that exists but that nobody loads."""
    plugin = tmp_path / "plugin.so"
    plugin.write_text("")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            cwd=tmp_path,
            env={**os.environ, "TAPEDELAY_PLUGIN": str(plugin)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TapedelayError]:
    """Return what ``record -o run.tape`` refuses, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> TapedelayError:
        error = CliRunner().invoke(record, ["-o", "run.tape", *words]).exception
        assert isinstance(error, TapedelayError)
        return error

    return call


def engine_of(
    spool: Path, *counts: tuple[int, int], processes: int = 1, refused: int = 0, code: int = 0
) -> list[str]:
    """Return a command that leaves what an engine would: a spool, and the counts of the plan's lines."""
    program = (
        "import glob, os, shutil, struct\n"
        f"for f in glob.glob({str(spool)!r} + '/*'): shutil.copy(f, os.environ['TAPEDELAY_SPOOL'])\n"
        "path = os.environ['TAPEDELAY_DELAYS'] + '.counts'\n"
        "with open(path, 'r+b') as f:\n"
        f"    f.seek(16); f.write(struct.pack('<II', {processes}, {refused})); f.seek({COUNTS.itemsize})\n"
        f"    for pair in {counts!r}: f.write(struct.pack('<QQ', *pair))\n"
        f"raise SystemExit({code})\n"
    )
    return ["--", sys.executable, "-c", program]


def delayed(e: Any) -> Path:
    """Return a spool in which two copies and a computation were held up."""
    w = e.w
    for line, place, asked, end in ((0, 1, 1000, 5), (0, 1, 1000, 0)):
        slot = w.record("copy", queue=e.queues[0], d=e.host, e=e.memory, c=64, name="x")
        w.record(
            "delay",
            a=slot,
            b=asked,
            c=1003 if end else 0,
            d=line,
            e=place,
            end=w.now + end if end else 0,
        )
    slot = w.record("compute", queue=e.queues[0], d=w.set([(e.memory, 0, 8, "write", "y")]))
    w.record("delay", a=slot, b=7, c=9, d=1, e=2, end=w.now + 20)
    w.record("delay", a=slot, b=70, c=81, d=1, e=1 + 16, end=w.now + 20)
    folder: Path = w.write().parent
    return folder


PLAN = ("--delays", "every copy on TAPE0 +1us", "--delays", "first compute +7ns after_end")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("#12 +1us", "an op id means an op of one tape"),
        ("last copy +1us", "is not known before the end"),
        ("every copi +1us", "a kind of op"),
        ("every copy", "+TIME"),
    ],
)
def test_what_nobody_can_know_is_refused_before_anything_runs(
    refused: Callable[..., TapedelayError], tmp_path: Path, line: str, says: str
) -> None:
    error = refused("--delays", line, "--", "touch", "ran")
    assert error.exit_code == (3 if "copi" in line or line == "every copy" else 2)
    assert says in error.text()
    assert "pattern" in error.next_step or error.exit_code == 3
    assert not (tmp_path / "ran").exists()


def test_a_plan_that_is_missing_or_goes_with_a_kept_spool_is_refused(
    refused: Callable[..., TapedelayError], tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("")
    for words, code, says in (
        (("--delays", "missing.delays", "--", "true"), 3, "missing.delays: cannot be opened"),
        (("--delays", "every copy +1us", "--from-spool", "x"), 2, "--delays and --from-spool"),
        (("--sync", "--from-spool", "x"), 2, "--sync and --from-spool"),
        ((*PLAN, "--write-plan", "there", "--", "true"), 2, "there"),
        ((*PLAN, "--write-plan", "no/file", "--", "true"), 2, "its folder is not there"),
        ((*PLAN, "--write-plan", "./run.tape", "--", "true"), 2, "the tape and the plan are one file"),
        (("--write-plan", "file", "--", "true"), 2, "--write-plan without delays"),
    ):
        error = refused(*words)
        assert error.exit_code == code
        assert says in error.text()


def test_counts_table_and_exact_plan(cli: Cli, engine: Any, tmp_path: Path) -> None:
    spool = delayed(engine())
    done = cli(
        "record", "-o", "run.tape", *PLAN, "--write-plan", "exact.delays", *engine_of(spool, (2, 0), (2, 0))
    )
    assert done.returncode == 0, done.stderr
    assert "applied 2 times: every copy on TAPE0 +1us before_start" in done.stderr
    tape = load_tape(tmp_path / "run.tape")
    assert [tuple(r.values()) for r in tape.table("delays").to_pylist()] == [
        (0, "before_start", 1, 1000, 1003, False),
        (1, "before_start", 1, 1000, None, False),
        (2, "before_start", 2, 70, 81, True),
        (2, "after_end", 2, 7, 9, False),
    ]
    assert [(d.line, d.count) for d in tape.manifest.delays] == [(1, 2), (2, 2)]
    assert [print_line(n) for n in read_plan(tmp_path / "exact.delays").lines] == [
        "first copy on TAPE0 +1us before_start",
        "2nd copy on TAPE0 +1us before_start",
        "first compute on TAPE0 +70ns before_start",
        "first compute on TAPE0 +7ns after_end",
    ]


def test_a_line_that_delayed_nothing_is_an_error_unless_allowed(
    cli: Cli, engine: Any, tmp_path: Path
) -> None:
    spool = delayed(engine())
    record = ("record", "-o", "run.tape", "--force", *PLAN)
    done = cli(*record, "--json", *engine_of(spool, (2, 0), (0, 0)))
    assert done.returncode == 2
    said = json.loads(done.stdout)
    assert [(d["line"], d["count"], d["missed"]) for d in said["delays"]] == [(1, 2, 0), (2, 0, 0)]
    (fault,) = said["faults"]
    assert "`first compute +7ns after_end`: never matched" in fault["found"]
    assert "--allow-unmatched" in fault["next"]
    assert load_tape(tmp_path / "run.tape").rows("ops") == 3
    assert cli(*record, "--allow-unmatched", *engine_of(spool, (2, 0), (0, 0))).returncode == 0
    assert (
        cli(*record, *engine_of(spool, (2, 0), (0, 0), code=7)).returncode == 7
    )  # the command's own comes first
    assert cli(*record, *engine_of(spool, (0, 3), (1, 0))).returncode == 2


def test_a_plan_that_was_not_read_is_no_clean_recording(cli: Cli, engine: Any) -> None:
    spool = delayed(engine())
    record = ("record", "-o", "run.tape", "--force", "--allow-unmatched", *PLAN)
    done = cli(*record, *engine_of(spool, (2, 0), (1, 0), processes=0))
    assert done.returncode == 5
    assert "no process read the plan" in done.stderr
    done = cli(*record, *engine_of(spool, (2, 0), (1, 0), refused=1))
    assert done.returncode == 5
    assert "1 of 2 processes could not read the plan" in done.stderr


def test_a_kept_spool_knows_its_plan(
    cli: Cli, refused: Callable[..., TapedelayError], engine: Any, tmp_path: Path
) -> None:
    spool = delayed(engine())
    done = cli("record", "-o", "run.tape", "--keep-spool", *PLAN, *engine_of(spool, (2, 0), (0, 0)))
    assert done.returncode == 2
    (kept,) = tmp_path.glob(".run.tape*.spool")
    again = ("record", "-o", "again.tape", "--force", "--from-spool", kept.name)
    assert cli(*again).returncode == 2
    done = cli(*again, "--allow-unmatched", "--write-plan", "exact.delays")
    assert done.returncode == 0, done.stderr
    assert len(read_plan(tmp_path / "exact.delays").lines) == 4
    for name, data in (
        ("delays.json", b"[[1"),
        ("delays.bin.counts", b"x"),
        ("delays.json", b'[["a", 1, 2]]'),
    ):
        before = (kept / name).read_bytes()
        (kept / name).write_bytes(data)
        assert refused("--force", "--from-spool", kept.name).exit_code == 3
        (kept / name).write_bytes(before)


@pytest.mark.parametrize(("column", "value"), [("e", 3), ("e", 33), ("d", 1_000_000), ("b", 1 << 61)])
def test_a_record_that_says_what_no_delay_is_is_damage(
    refused: Callable[..., TapedelayError], engine: Any, column: str, value: int
) -> None:
    e = engine()
    slot = e.w.record("copy", queue=e.queues[0], d=e.host, e=e.memory, c=64)
    e.w.record("delay", a=slot, **{"b": 5, "d": 0, "e": 1, column: value})
    spool = e.w.write().parent
    leave_plan(parse_expression("every copy +1us"), spool)
    assert refused("--from-spool", str(spool)).exit_code == 3


def test_lines_of_all_arguments_are_one_plan(tmp_path: Path) -> None:
    (tmp_path / "a.delays").write_text("tapedelay-plan 1\nevery copy +1us\n\nlast op +1us\n")
    with pytest.raises(UsageError, match=r"a\.delays:4"):
        engine_plan([str(tmp_path / "a.delays")])
    plan = engine_plan(["first op +1ns", parse_expression("2nd op +2ns\n3rd op +3ns")])
    assert [n.ns for n in plan.lines] == [1, 2, 3]


def test_many_idle_lines_are_summed_up() -> None:
    counts = [LineCount(i, f"{i}th op +1us", 0) for i in range(1, 101)]
    (fault,) = delay_faults(counts, 1, 0, allow_unmatched=False, allow="--allow-unmatched")
    assert fault.found.startswith("100 of 100 lines")
    assert "and 92 more lines" in fault.found


def test_lines_that_no_engine_can_follow_are_left_out_where_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.delays"
    path.write_text("tapedelay-plan 1\n#1 +1us\nfirst copy +1us\nlast op +1us\n#2 +1us\n")
    with pytest.raises(UsageError) as refused:
        asked_delays([str(path)], allow_unmatched=False, write_plan=None)
    assert "`#1 +1us before_start` (and 2 lines more)" in refused.value.found
    assert f"replay TAPE --delays {path} --write-plan NEW" in refused.value.next_step
    assert "--allow-unmatched leaves such lines out" in refused.value.next_step
    asked = asked_delays([str(path)], allow_unmatched=True, write_plan=None)
    assert asked.plan is not None
    assert [print_line(n) for n in asked.plan.lines] == ["first copy +1us before_start"]
    assert asked.left_out == 3
    assert "3 lines of the plan left out" in capsys.readouterr().err
    with pytest.raises(UsageError, match="an op id") as refused:  # nothing would be left
        asked_delays(["#1 +1us\n#2 +1us"], allow_unmatched=True, write_plan=None)
    assert "leaves" not in refused.value.next_step


def test_a_plan_without_a_delay_is_refused(refused: Callable[..., TapedelayError], tmp_path: Path) -> None:
    (tmp_path / "empty.delays").write_text("tapedelay-plan 1\n# on run.tape:\n")
    error = refused("--delays", "empty.delays", "--delays", "every copy +1us", "--", "touch", "ran")
    assert (error.exit_code, error.where) == (2, "empty.delays")
    assert "without any delay" in error.found
    assert not (tmp_path / "ran").exists()


def test_what_a_replay_wrote_out_is_taken(refused: Callable[..., TapedelayError], tmp_path: Path) -> None:
    """The way from a random hit of a replay into an engine, as the refusal of op ids names it."""
    bad = str(Path(__file__).resolve().parents[2] / "traces/ggml-26040-bad.tape.zip")
    first, second = str(tmp_path / "ids.delays"), str(tmp_path / "counts.delays")
    tape = load_tape(bad)
    Path(first).write_text("tapedelay-plan 1\n#75 +3ms before_start\n#77 +1ms after_end\n")
    error = refused("--delays", first, "--", "true")
    words = shlex.split(error.next_step.split("`")[1])
    command = [{"TAPE": bad, "NEW": second}.get(w, w) for w in words]
    assert command[0] == "tapedelay"
    assert run(command[1:]) == 1
    assert match_plan(engine_plan([second]), tape).delays.row.tolist() == [75, 77]
