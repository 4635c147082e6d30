"""What is kept of the settings of DeepInfer's scheduler, and how its build ends where it cannot be made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.engines.deepinfer import hooks
from tapedelay.recorder.engines.deepinfer.config import ARGUMENTS, arguments, config
from tapedelay.recorder.engines.deepinfer.cpu import build


def bound(**changes: Any) -> dict[str, Any]:
    settings = SimpleNamespace(
        max_model_len=64,
        runtime_max_model_len=80,
        max_num_batched_tokens=8,
        max_num_seqs=4,
        stop_preempted_request=False,
        chunked_prefill=True,
        engine_type=0,
        prefill_attempt_interval=2,
        prefill_any_attempt_interval=3,
    )
    group = SimpleNamespace(size=lambda: 1)
    given: tuple[Any, ...] = (
        4,
        "blocks",
        None,
        77_777,
        group,
        settings,
        0,
        0,
        2**30,
        None,
        [],
        1,
        1000,
        False,
    )
    return arguments(given[:6], dict(zip(ARGUMENTS[6:], given[6:], strict=True))) | changes


def test_arguments_by_place_and_by_name_are_one() -> None:
    assert set(bound()) == set(ARGUMENTS)
    assert bound()["eos_token_id"] == 77_777


@pytest.mark.parametrize("given", [(), (1,) * 13, (1,) * 15])
def test_a_constructor_with_other_arguments_is_not_guessed_at(given: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="other arguments"):
        arguments(given, {})


def test_settings_are_numbers_and_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", "0")
    monkeypatch.setenv("DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "1")
    made = config(bound(), 17, 8)
    assert made["num_blocks"] == 17
    assert made["num_states"] == 8
    assert made["zero_overhead"] is True
    assert made["nextn"] == 0
    assert 77_777 not in made.values()
    assert all(type(v) in (int, bool) for v in made.values())


@pytest.mark.parametrize(("said", "nextn"), [(None, 5), ("3", 3), ("-1", 0), ("x", 0)])
def test_draft_tokens_are_read_as_the_scheduler_reads_them(
    monkeypatch: pytest.MonkeyPatch, said: str | None, nextn: int
) -> None:
    if said is None:
        monkeypatch.delenv("DEEPINFER_USE_NEXTN_DECODE", raising=False)
    else:
        monkeypatch.setenv("DEEPINFER_USE_NEXTN_DECODE", said)
    assert config(bound(), 17, 0)["nextn"] == nextn


def test_a_module_without_the_scheduler_is_refused() -> None:
    with pytest.raises(hooks.Unknown, match="free_seq"):
        hooks.start(SimpleNamespace(engine=SimpleNamespace(Scheduler=object, BlockManager=object)))


def test_a_build_without_torch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InfrastructureError, match="no torch"):
        build.compiled(tmp_path, tmp_path)


def test_a_download_that_fails_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    assert build.main([str(tmp_path / "made")]) == 5
    assert f"downloading deepinfer=={build.VERSION}" in capsys.readouterr().err
    assert not (tmp_path / "made" / "source").exists()
