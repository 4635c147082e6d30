"""Upstream bug #26040 on real builds: named before the fix, silent after it.

The scheduler copies ``model.input_embed`` to the device and, without waiting, lets the CPU compute that
writes ``conv_states`` reuse the memory that the copy still reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tapedelay.recorder.demo.commands import Recording, prompt_program, record_arguments, record_program

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
RECORDINGS = 10 if SOAK else 3
OPTIONS = ("--prompt-tokens", "150", "--ubatch", "32", "--kv-host")


def record(
    tape: Path, model: Path, environment: dict[str, str], *, profile: str = "vulkan-like", sync: bool = False
) -> Recording:
    program = prompt_program(model, *OPTIONS)
    return record_program(record_arguments(tape, program, profile=profile, sync=sync), environment)


def names_the_pair(finding: dict[str, Any]) -> bool:
    text = str(finding)
    return "input_embed" in text and "conv_states" in text


@pytest.fixture(scope="module")
def reference(racy: dict[str, str], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The same run with the device synchronous: what the answer should be."""
    return record(tmp_path_factory.mktemp("reference") / "a.tape", tiny_model, racy, sync=True)


@pytest.mark.parametrize("number", range(RECORDINGS))
def test_the_pair_is_named_before_the_fix_whatever_the_answer(
    number: int, racy: dict[str, str], tiny_model: Path, reference: Recording, tmp_path: Path
) -> None:
    recording = record(tmp_path / "a.tape", tiny_model, racy)
    code, findings = recording.check()
    print("answer", "right" if recording.tokens == reference.tokens else "wrong")
    assert code == 1
    named = [finding for finding in findings if names_the_pair(finding)]
    assert named, findings
    assert any(finding["verdict"] == "race" for finding in named), named


def test_the_pair_is_named_though_the_answer_is_right(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    # Luck, helped along: where host and worker share one CPU, a short copy mostly comes first.
    programs = {
        tokens: prompt_program(tiny_model, "--prompt-tokens", str(tokens), "--n-predict", "1", "--kv-host")
        for tokens in (3, 1, 20)
    }
    references = {}
    for tokens, program in programs.items():
        reference = record_program(record_arguments(tmp_path / f"{tokens}.tape", program, sync=True), racy)
        assert reference.check() == (0, [])
        references[tokens] = reference.tokens
    everywhere = os.sched_getaffinity(0)
    for number in range(24):
        tokens = (3, 1, 20)[number % 3]
        os.sched_setaffinity(0, everywhere if tokens == 20 else {min(everywhere)})
        try:
            arguments = record_arguments(tmp_path / f"{tokens}-{number}.tape", programs[tokens])
            recording = record_program(arguments, racy)
        finally:
            os.sched_setaffinity(0, everywhere)
        if recording.tokens == references[tokens]:
            code, findings = recording.check()
            assert code == 1
            assert any(map(names_the_pair, findings)), findings
            return
    pytest.fail("no answer of 24 came out right")


@pytest.mark.parametrize("build", ["fixed", "newest"])
@pytest.mark.parametrize("number", range(RECORDINGS))
def test_nothing_is_found_after_the_fix(
    build: str, number: int, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recording = record(tmp_path / "a.tape", tiny_model, request.getfixturevalue(build))
    assert recording.check() == (0, [])


@pytest.mark.parametrize("build", ["racy", "fixed", "newest"])
@pytest.mark.parametrize("profile", ["vulkan-like", "cuda-like", "full-async"])
def test_nothing_is_found_on_a_synchronous_device(
    build: str, profile: str, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = request.getfixturevalue(build)
    recording = record(tmp_path / "a.tape", tiny_model, environment, profile=profile, sync=True)
    assert recording.check() == (0, [])
