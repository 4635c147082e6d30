"""The watcher of the doctor: where looking fails, and processes that are gone before a look."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.recorder.asked import Asked
from tapedelay.recorder.doctor import watch
from tapedelay.recorder.doctor.engine import Examined, examine
from tapedelay.recorder.doctor.finding import LIMIT
from tapedelay.recorder.evidence import Evidence, Seen, Watched, evidence_of, write_watched
from tapedelay.recorder.outcome import Recording
from tapedelay.recorder.patience import Patience
from tapedelay.recorder.reasons import why_nothing


def look(folder: Path, *command: str, seconds: float) -> Examined:
    return examine(command, Asked(1), limit_s=seconds, folder=folder, signals=Patience())


class Fails:
    """Stands in for a method that fails from its n-th call on."""

    def __init__(self, error: Exception, good: int, real: Callable[..., list[int]]) -> None:
        self.error, self.good, self.real = error, good, real
        self.calls = 0

    def __call__(self, *args: object) -> list[int]:
        self.calls += 1
        if self.calls > self.good:
            raise self.error
        return self.real(*args)


def patched(monkeypatch: pytest.MonkeyPatch, error: Exception, good: int) -> None:
    real = watch._Family.members
    fails = Fails(error, good, real)
    monkeypatch.setattr(watch._Family, "members", lambda self: fails(self))


@pytest.mark.parametrize("good", [0, 1, 3], ids=["never", "before the command", "for a while"])
@pytest.mark.parametrize("error", [PermissionError(13, "no"), MemoryError()], ids=["proc", "memory"])
def test_a_command_is_ended_where_nobody_can_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, good: int
) -> None:
    patched(monkeypatch, error, good)
    begun_s = time.monotonic()
    done = look(tmp_path, "sleep", "60", seconds=0.3)
    assert time.monotonic() - begun_s < 50, "it was ended"
    (limit,) = [f for f in done.findings if f.code == "watch"]
    assert limit.state == LIMIT
    assert f"({type(error).__name__}" in limit.found
    assert "stopped" in [f.code for f in done.findings]


def test_a_known_child_is_ended_the_hard_way_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_MERCY_S", 0.2)
    patched(monkeypatch, OSError("no"), 40)
    begun_s = time.monotonic()
    done = look(tmp_path, "sh", "-c", "trap '' TERM; sleep 60", seconds=1.0)
    assert time.monotonic() - begun_s < 50, "it was ended"
    assert "watch" in [f.code for f in done.findings]


def test_a_look_that_fails_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: watch.Watch, pid: int) -> None:
        raise MemoryError

    monkeypatch.setattr(watch.Watch, "_look", fails)
    done = look(tmp_path, "sleep", "60", seconds=0.2)
    assert [f.code for f in done.findings].count("watch") == 1


def test_what_cannot_be_judged_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path) -> str:
        raise MemoryError

    monkeypatch.setattr(watch, "holds_ggml", fails)
    done = look(tmp_path, "true", seconds=60)
    assert "watch" in [f.code for f in done.findings]


def test_only_children_that_were_not_waited_for_are_ours() -> None:
    child = os.posix_spawnp("true", ["true"], os.environ)
    assert watch._is_child(child)
    os.waitpid(child, 0)
    assert not watch._is_child(child)
    assert not watch._is_child(os.getppid())


@pytest.mark.parametrize("left", ["{}-1.rec", "refused-{}.txt"])
def test_what_the_plugin_left_proves_that_it_was_loaded(tmp_path: Path, left: str) -> None:
    sleep = os.path.realpath(shutil.which("sleep") or "")
    for found in (True, False):
        looks = watch.Watch(["sleep"], 60)
        with looks.along(Recording(tmp_path / "run.tape", Asked()), tmp_path):
            child = os.posix_spawnp("sleep", ["sleep", "60"], os.environ)
            (tmp_path / left.format(child if found else "x")).write_text("")
            try:
                while (child, sleep) not in looks._processes:
                    time.sleep(0.01)
            finally:
                os.kill(child, 9)
                os.waitpid(child, 0)
        (seen,) = [p for p in looks.watched.processes if p.executable == sleep]
        assert seen.plugin == found
        (tmp_path / left.format(child if found else "x")).unlink()


def test_a_program_that_was_hardly_seen_is_not_accused(tmp_path: Path) -> None:
    for seen_s, says in ((0.0, "ended before it could be seen"), (1.0, "never asked it to load a backend")):
        reason = why_nothing(Evidence(watched=Watched((Seen(exporting=("host",), seen_s=seen_s),))))
        assert reason is not None
        assert reason.code == "not-loaded"
        assert says in reason.found


def test_how_long_a_program_was_seen_is_kept(tmp_path: Path) -> None:
    watched = Watched((Seen(("host",), "/bin/host", seen_s=0.5),), 1.0)
    write_watched(tmp_path, watched)
    assert evidence_of(tmp_path).watched == watched
