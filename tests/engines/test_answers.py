"""Recording and test devices do not change what the engine answers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tapedelay.recorder.demo.commands import prompt_program, record_arguments, record_program

PROMPT = ("--prompt", "Three facts about the sea and the moon, in short sentences:", "--n-predict", "24")
TINY = ("--prompt-tokens", "150", "--ubatch", "32")


def plain(program: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run the program as if this toolkit did not exist."""
    done = subprocess.run(
        program,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


@pytest.mark.parametrize("build", ["racy", "fixed", "newest"])
@pytest.mark.parametrize("kv", [(), ("--kv-host",)], ids=["kv-device", "kv-host"])
def test_tokens_equal_the_plain_cpu(
    build: str, kv: tuple[str, ...], tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = request.getfixturevalue(build)
    program = prompt_program(tiny_model, *TINY, *kv)
    expected = plain(program, environment)
    assert expected["devices"] == ["CPU"]
    for devices in (1, 2):
        arguments = record_arguments(tmp_path / f"{devices}.tape", program, devices=devices, sync=True)
        recording = record_program(arguments, environment)
        assert recording.tokens == expected["tokens"]
        assert recording.answer["devices"] == ["CPU", *(f"TAPE{i}" for i in range(devices))]


def test_tokens_of_a_real_model_equal_the_plain_cpu(
    newest: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    program = prompt_program(smollm2, *PROMPT)
    expected = plain(program, newest)
    for devices in (1, 2):
        arguments = record_arguments(tmp_path / f"{devices}.tape", program, devices=devices, sync=True)
        assert record_program(arguments, newest).tokens == expected["tokens"]


@pytest.mark.parametrize("devices", [1, 2])
def test_two_recordings_of_one_synchronous_run_are_equal_but_for_times(
    devices: int, newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = prompt_program(tiny_model, *TINY, "--kv-host")
    dumps = []
    for number in range(2):
        arguments = record_arguments(tmp_path / f"{number}.tape", program, devices=devices, sync=True)
        dumps.append(record_program(arguments, newest).info("--dump", "--no-times"))
    assert dumps[0].count("\n") > 500
    first, second = (dump.splitlines() for dump in dumps)
    assert [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]][:5] == []
    assert len(first) == len(second)
