"""A real model on two test devices, each profile in turn.

What the engine's interface allows and no shipping backend seems to do, ``full-async``, shows a hole in the
contract of the newest build: the next ubatch overwrites ``input_embed`` while its copy is pending. Under the
other profiles the same run is clean.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.recorder.demo.commands import Recording, prompt_program, record_arguments, record_program
from tapedelay.recorder.demo.demo import STORY

UBATCHES = ("--ubatch", "32", "--n-predict", "8")


def record(
    tape: Path, model: Path, environment: dict[str, str], profile: str, *, sync: bool = False
) -> Recording:
    program = prompt_program(model, "--prompt", STORY, *UBATCHES)
    arguments = record_arguments(tape, program, devices=2, profile=profile, sync=sync)
    return record_program(arguments, environment)


@pytest.mark.parametrize("profile", ["vulkan-like", "cuda-like"])
def test_clean_under_what_real_backends_do(
    profile: str, newest: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    assert record(tmp_path / "a.tape", smollm2, newest, profile).check() == (0, [])


def test_full_async_shows_the_hole_in_the_contract(
    newest: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    code, findings = record(tmp_path / "a.tape", smollm2, newest, "full-async").check()
    assert code == 1
    assert any("input_embed" in str(finding) for finding in findings), findings


def test_full_async_is_clean_when_synchronous(newest: dict[str, str], smollm2: Path, tmp_path: Path) -> None:
    assert record(tmp_path / "a.tape", smollm2, newest, "full-async", sync=True).check() == (0, [])
