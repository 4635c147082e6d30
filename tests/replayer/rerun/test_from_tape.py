"""What a tape does not hold is said before anything is rerun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.errors import CannotJudge
from tapedelay.formats.tape import Tape
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all
from tapedelay.replayer.rerun.from_tape import recording_of


def tape(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str, prompt_tokens: int = 3) -> Tape:
    """Return a tape of two requests, the second one with these flags."""
    monkeypatch.setenv("TAPEDELAY_SPOOL", str(folder))
    recorder = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 4, 0, 16)])
    recorder.submit("a", prompt_tokens=3)
    recorder.submit("b", prompt_tokens=prompt_tokens, flags=flags)
    stop()
    made = collect_all(folder)
    assert isinstance(made, Tape)
    return made


def test_requests_that_hang_on_what_is_not_recorded_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotJudge) as refused:
        recording_of(tape(tmp_path, monkeypatch, "resumable", "unrecorded_lora", "unrecorded_structured"))
    assert "lora (1 request), structured (1 request)" in refused.value.found


def test_other_flags_are_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recording_of(tape(tmp_path, monkeypatch, "resumable"))
    assert [i.submission.flags for i in found.scenario.inputs if i.submission] == [(), ("resumable",)]


def test_a_request_of_more_tokens_than_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotJudge, match="request 1 has 1,000,000,000,000 tokens"):
        recording_of(tape(tmp_path, monkeypatch, prompt_tokens=10**12))
