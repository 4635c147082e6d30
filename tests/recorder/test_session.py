"""`record` as a context manager, without an engine; with one: tests/engines/test_in_process.py."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import CannotJudge, InfrastructureError, UsageError
from tapedelay.formats.load import load_tape
from tapedelay.recorder import record
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.session import collect_spool


def surroundings() -> Any:
    return {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}, list(sys.meta_path)


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plugin that exists but that nobody loads; what the process had must be as before in the end."""
    (tmp_path / "plugin.so").write_text("")
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "plugin.so"))
    before = surroundings()
    yield
    assert surroundings() == before
    assert not list(tmp_path.glob("*.spool"))


def write(e: Any, queue: int) -> None:
    """Leave a spool where this process's engine would have left it."""
    e.w.record("compute", queue=queue, d=e.w.set([(e.memory, 0, 8, "write", "x")]))
    e.w.write()
    for path in (e.w.rec, e.w.definitions):
        path.rename(Path(os.environ["TAPEDELAY_SPOOL"]) / path.name)


def test_what_the_engine_left_becomes_a_tape(tmp_path: Path, engine: Any) -> None:
    e = engine()
    with record(tmp_path / "run.tape", devices=1, profile="cuda-like", sync=True) as r:
        assert os.environ["TAPEDELAY_PROFILE"] == "cuda-like"
        assert os.environ["TAPEDELAY_SYNC"] == "1"
        write(e, e.queues[0])
    assert (r.ops, r.computes, r.complete, r.exit_code) == (1, {"TAPE0": 1}, True, 0)
    assert load_tape(r.output).table("ops").num_rows == 1


def test_no_engine_is_said_loudly(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="no process loaded the plugin"), record(tmp_path / "run.tape"):
        pass


def test_work_on_the_cpu_only_too_and_the_tape_is_there(tmp_path: Path, engine: Any) -> None:
    e = engine()
    with pytest.raises(CannotJudge, match="no compute"), record(tmp_path / "run.tape", devices=1):
        write(e, e.cpu_queue)
    assert (tmp_path / "run.tape").is_dir()


def test_the_programs_own_error_is_the_one_that_counts(tmp_path: Path, engine: Any) -> None:
    e = engine()

    def program() -> None:
        with record(tmp_path / "run.tape", devices=1):
            write(e, e.cpu_queue)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert (tmp_path / "run.tape").is_dir()


def test_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="folder"), record(tmp_path / "missing" / "run.tape"):
        pass
    with pytest.raises(UsageError, match="no tape is there already"), record(tmp_path / "plugin.so"):
        pass
    with (
        pytest.raises(UsageError, match=r"^profile=: profile 'strict'"),
        record(tmp_path / "run.tape", profile="strict"),
    ):
        pass
    with (
        pytest.raises(UsageError, match=r"^devices=: 16 test devices"),
        record(tmp_path / "run.tape", devices=16),
    ):
        pass
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "gone.so"))
    with pytest.raises(InfrastructureError, match="plugin is not there"), record(tmp_path / "run.tape"):
        pass
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "plugin.so"))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc")
    with pytest.raises(InfrastructureError, match="no spool can be written"), record("/proc/run.tape"):
        pass


def test_messages_speak_python(tmp_path: Path, engine: Any) -> None:
    e = engine()
    with record(tmp_path / "run.tape", devices=1):
        write(e, e.queues[0])
    with pytest.raises(UsageError, match="add force=True"), record(tmp_path / "run.tape"):
        pass
    e = engine()
    with (
        pytest.raises(CannotJudge, match=r"(?s)as devices=0 asks for.*leave devices=0 out"),
        record(tmp_path / "run.tape", devices=0, force=True),
    ):
        write(e, e.cpu_queue)


def test_a_recording_inside_a_recording_is_refused(tmp_path: Path) -> None:
    def outer() -> None:
        with record(tmp_path / "run.tape"), record(tmp_path / "inner.tape"):
            pass

    with pytest.raises(UsageError, match="already being recorded by `tapedelay record`"):
        outer()
    assert not (tmp_path / "inner.tape").exists()


def test_a_relative_name_stands_for_the_folder_at_the_start(
    tmp_path: Path, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = engine()
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path)
    with record("run.tape", devices=1):
        write(e, e.queues[0])
        os.chdir("deeper")
    assert (tmp_path / "run.tape").is_dir()


def test_a_recording_that_cannot_be_written_is_kept(tmp_path: Path, engine: Any) -> None:
    recordings = []

    def spoiled(name: str, error: Exception | None = None) -> None:
        e = engine()
        with record(tmp_path / name, devices=1) as r:
            recordings.append(r)
            write(e, e.queues[0])
            (tmp_path / name).write_text("mine")
            if error is not None:
                raise error

    command = r"tapedelay record --force --devices 1 -o \S+ --from-spool \S+"
    with pytest.raises(InfrastructureError, match=command):
        spoiled("run.tape")
    (tmp_path / "run.tape").unlink()
    kept = recordings[0].spool
    assert kept is not None
    assert collect_spool(kept, tmp_path / "run.tape", Asked(1)).exit_code == 0
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        spoiled("b.tape", error)
    assert re.search(command, error.__notes__[0])
    for spool in tmp_path.glob(".*.spool"):
        shutil.rmtree(spool)
