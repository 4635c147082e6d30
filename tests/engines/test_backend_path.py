"""Programs that honour GGML_BACKEND_PATH are recorded as they are: a native one, and one that uses ctypes.

Both run a prebuilt llama.cpp that comes as shared libraries, on one test device, without any GPU driver. One
of the packages has a Vulkan backend that finds no device, the other is the build for machines without a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import PROGRAMS, record_arguments, record_program, tapedelay

Command = Callable[[engines.NpmBuild, str], list[str]]
NO_DRIVERS = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}


@pytest.fixture(scope="module")
def executable(compiled: Callable[..., Path]) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip(f"the prebuilt libraries are for x86-64, this is {platform.machine()}")
    source = Path(__file__).parent / "programs" / "llama_host.cpp"
    return compiled("llama_host", "-std=c++17", "-O1", source, "-ldl")


def libraries(build: engines.NpmBuild) -> Path:
    try:
        return engines.npm_libraries(build)
    except InfrastructureError as error:
        pytest.skip(f"{build.package} {build.version}: {error.found}")


@pytest.fixture
def native(executable: Path, tiny_model: Path) -> Command:
    def command(build: engines.NpmBuild, device: str) -> list[str]:
        folder = libraries(build)
        (ggml,), (llama,) = (list(folder.glob(f"{name}.*so")) for name in ("libggml", "libllama"))
        return [str(executable), str(ggml), str(llama), str(folder), str(tiny_model), device]

    return command


@pytest.fixture
def script(tiny_model: Path) -> Command:
    def command(build: engines.NpmBuild, device: str) -> list[str]:
        options = ["--libraries", str(libraries(build)), "--model", str(tiny_model), "--kv-host"]
        options += [
            "--gpu-layers",
            "0" if device == "CPU" else "99",
            "--prompt-tokens",
            "40",
            "--ubatch",
            "16",
        ]
        return [sys.executable, str(PROGRAMS / "llama_library.py"), *options]

    return command


@pytest.fixture(params=["native", "script"])
def command(request: pytest.FixtureRequest) -> Command:
    found: Command = request.getfixturevalue(request.param)
    return found


def test_the_pair_is_named_before_the_fix(command: Command, tmp_path: Path) -> None:
    arguments = record_arguments(tmp_path / "run.tape", command(engines.VULKAN_RACY, "TAPE0"))
    recording = record_program(arguments, NO_DRIVERS)
    assert recording.answer["devices"] == ["CPU", "TAPE0"]
    code, findings = recording.check()
    assert code == 1
    assert [f for f in findings if "input_embed" in str(f) and "conv_states" in str(f)], findings


@pytest.mark.parametrize("build", [engines.VULKAN_FIXED, engines.LIBRARIES_NEWEST], ids=lambda b: b.kind)
def test_nothing_is_found_after_the_fix(build: engines.NpmBuild, command: Command, tmp_path: Path) -> None:
    alone = subprocess.run(
        command(build, "CPU"),
        env={**os.environ, **NO_DRIVERS},
        capture_output=True,
        timeout=120,
        check=True,
    )
    expected = json.loads(alone.stdout)
    assert expected["devices"] == ["CPU"]  # nobody loaded the plugin
    arguments = record_arguments(tmp_path / "run.tape", command(build, "TAPE0"))
    recording = record_program(arguments, NO_DRIVERS)
    assert recording.check() == (0, [])
    assert recording.tokens == expected["tokens"]
    assert "TAPE0" in recording.info()


def test_a_native_run_on_the_cpu_is_refused_as_unrecorded(native: Command, tmp_path: Path) -> None:
    """The answer is right; yet nothing was computed on the device that was asked for."""
    arguments = record_arguments(tmp_path / "run.tape", native(engines.VULKAN_FIXED, "CPU"))
    done = tapedelay(*arguments, environment=NO_DRIVERS)
    assert done.code == 4, done.err
    assert "no compute was recorded on TAPE0" in done.err
    assert json.loads(done.out.splitlines()[-1])["tokens"]
