"""``tapedelay record --from-spool``: what a kept spool gives, and what is refused with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tapedelay.formats.errors import MissingInput, UsageError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.command import record

from .small_commands import computing, copy_spool, last_command, python


def test_a_kept_spool_is_private_and_collects_to_the_same_tape(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    assert cli("record", "-o", "run.tape", "--keep-spool", *python(copy_spool(spool))).returncode == 0
    kept = next(tmp_path.glob(".run.tape.*.spool"))
    assert kept.stat().st_mode & 0o777 == 0o700
    assert "not a tape yet" in (refused := cli("check", str(kept))).stderr
    assert f"tapedelay record -o run.tape --from-spool {kept}" in refused.stderr
    assert cli("record", "-o", "again.tape", "--from-spool", str(kept)).returncode == 0
    for name in ("ops", "accesses", "buffers"):
        assert load_tape(tmp_path / "again.tape").table(name) == load_tape(tmp_path / "run.tape").table(name)
    assert cli("record", "-o", "x.tape", "--from-spool", "nowhere").returncode == 3
    for tape in ("run.tape", "again.tape"):
        done = cli("record", "-o", "x.tape", "--from-spool", tape)
        assert done.returncode == 3
        assert "this is a tape already" in done.stderr
        assert f"next: tapedelay check {tape}" in done.stderr


def test_the_command_that_collects_a_kept_spool_is_named(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    words = ["--devices", "1", "--keep-spool", *python(copy_spool(computing(e, e.queues[0])))]
    done = cli("record", "-o", "a run.tape", *words)
    assert done.returncode == 0
    (again,) = [last_command(done)]
    assert again[:6] == ["record", "--force", "--devices", "1", "-o", "a run.tape"]
    assert cli(*again).returncode == 0


def test_a_recording_that_cannot_be_written_is_kept(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    spoil = "os.mkdir('run.tape'); open('run.tape/mine', 'w').close()"  # in the way, but not at the start
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool) + spoil))
    assert done.returncode == 5
    assert "the recording is not collected" in done.stderr
    assert (tmp_path / "run.tape" / "mine").exists()
    again = last_command(done)
    assert again[:-1] == ["record", "--force", "-o", "run.tape", "--from-spool"]
    (tmp_path / "run.tape").rename(tmp_path / "other")
    assert cli(*again).returncode == 0
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_a_kept_spool_is_judged_like_a_run(cli: Any, engine: Any) -> None:
    e = engine()
    spool = str(computing(e, e.cpu_queue))
    collect = ("record", "--force", "-o", "run.tape", "--from-spool", spool)
    assert cli(*collect).returncode == 0  # nothing was asked for
    asked = cli(*collect, "--devices", "1")
    assert asked.returncode == 4
    assert "no compute was recorded on TAPE0" in asked.stderr
    e.w.head["flags"] = 2
    e.w.write()
    stopped = cli(*collect)
    assert stopped.returncode == 5
    assert "stopped early" in stopped.stderr


def error_of(tmp_path: Path, *words: str) -> BaseException | None:
    spool = ("-o", str(tmp_path / "run.tape"), "--from-spool", str(tmp_path / "nowhere"))
    return CliRunner().invoke(record, [*words, *spool]).exception


@pytest.mark.parametrize(
    "words",
    [
        ("--keep-spool",), ("--last", "5"), ("--no-telemetry",), ("--profile", "vulkan-like"), ("--sync",),
        ("--tap",), ("--telemetry-ms", "100"),
    ],
)  # fmt: skip
def test_what_has_no_effect_on_a_run_that_is_over_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    error = error_of(tmp_path, *words)
    assert isinstance(error, UsageError)
    assert f"{words[0]} and --from-spool" in error.text()


@pytest.mark.parametrize(
    "words", [(), ("--no-tap",), ("--devices", "1"), ("--allow-unmatched",), ("--force",)]
)
def test_what_judges_a_recording_goes_with_a_kept_spool(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert isinstance(error_of(tmp_path, *words), MissingInput), "the folder that is not there"
