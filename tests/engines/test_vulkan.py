"""ggml's Vulkan backend on lavapipe: a real asynchronous backend, no test devices, the same command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import PROGRAMS, Recording, record_arguments, record_program

RECORDINGS = 10 if os.environ.get("TAPEDELAY_SOAK") == "1" else 5


def program(build: engines.NpmBuild, model: Path, *options: str) -> list[str]:
    try:
        libraries = engines.npm_libraries(build)
    except InfrastructureError as error:
        pytest.skip(f"{build.package} {build.version}: {error.found}")
    options = ("--prompt-tokens", "20", "--n-predict", "4", "--kv-host", *options)
    script = PROGRAMS / "llama_library.py"
    return [sys.executable, str(script), "--libraries", str(libraries), "--model", str(model), *options]


def record(tape: Path, command: list[str], environment: dict[str, str]) -> Recording:
    recording = record_program(record_arguments(tape, command, devices=0, profile=None), environment)
    assert recording.answer["devices"] == ["Vulkan0", "CPU"]
    return recording


def test_the_pair_is_named_before_the_fix(vulkan: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    command = program(engines.VULKAN_RACY, tiny_model)
    pairs = []
    for number in range(RECORDINGS):
        code, findings = record(tmp_path / f"{number}.tape", command, vulkan).check()
        assert code == 1
        named = [f for f in findings if "input_embed" in str(f) and "conv_states" in str(f)]
        assert named, findings
        pairs.append(sorted({finding["signature"] for finding in named}))
    assert all(pair == pairs[0] for pair in pairs), pairs


def test_nothing_is_found_after_the_fix(vulkan: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    command = program(engines.VULKAN_FIXED, tiny_model)
    on_cpu = subprocess.run(
        [*command, "--gpu-layers", "0"],
        env={**os.environ, **vulkan},
        capture_output=True,
        timeout=300,
        check=True,
    )
    expected = json.loads(on_cpu.stdout)["tokens"]
    for number in range(RECORDINGS):
        recording = record(tmp_path / f"{number}.tape", command, vulkan)
        assert recording.check() == (0, [])
        assert recording.tokens == expected
