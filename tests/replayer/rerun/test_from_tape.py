"""What a tape does not hold is said before anything is rerun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.errors import CannotJudge, InputError
from tapedelay.formats.tape import Tape
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all
from tapedelay.replayer.rerun.from_tape import recording_of


def tape(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str, prompt_tokens: int = 3, units: int = 4
) -> Tape:
    """Return a tape of two requests, the second one with these flags."""
    monkeypatch.setenv("TAPEDELAY_SPOOL", str(folder))
    recorder = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", units, 0, 16)])
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
    with pytest.raises(InputError, match="request 1 has 1,000,000,000,000 tokens") as refused:
        recording_of(tape(tmp_path, monkeypatch, prompt_tokens=10**12))
    assert refused.value.exit_code == 3


def test_many_requests_at_once_of_more_than_fits_are_refused_and_one_after_the_other_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, together in (("together", True), ("in turn", False)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("TAPEDELAY_SPOOL", str(folder))
        recorder = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 4, 0, 16)])
        for n in range(17):
            recorder.submit(str(n), prompt_tokens=1 << 22)
            if not together:
                recorder.begin("abort", keys=[str(n)])
                recorder.end()
        stop()
        made = collect_all(folder)
        if together:
            with pytest.raises(InputError, match="17 requests at once with 71,303,168 tokens"):
                recording_of(made)
        else:
            assert len(recording_of(made).scenario.submissions()) == 17


def test_a_pool_that_no_engine_could_make_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"pool 'kv' has 1,000,000,000 units \(expected at most 4,194,304"):
        recording_of(tape(tmp_path, monkeypatch, units=10**9))
