"""The doctor and the real engine: all can be recorded, and it says what each backend does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import Finished, prompt_program, record_arguments, tapedelay
from tapedelay.recorder.doctor.elf import holds_ggml

from .test_vulkan import program

SHORT = ("--prompt-tokens", "20", "--n-predict", "2")
STANDIN_NVML = Path(__file__).parents[1] / "recorder" / "telemetry" / "standin_nvml.c"


def findings(done: Finished, code: str) -> list[dict[str, Any]]:
    said: dict[str, Any] = json.loads(done.out)
    return [f for f in said["engine"] if f["code"] == code]


def test_a_python_package(newest: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    done = tapedelay(
        "doctor", "--json", "-o", tmp_path, "--", *prompt_program(tiny_model, *SHORT), environment=newest
    )
    assert done.code == 0, done.out
    assert findings(done, "package")[0]["found"].startswith(f"xllamacpp {engines.XLLAMACPP_NEWEST}")
    device, cpu = (f["found"] for f in findings(done, "device"))
    assert device.startswith("TAPE0 (test device of TAPE): calls are asynchronous, events are recorded")
    assert cpu.startswith("CPU (host of CPU): works on the calling thread; ")
    assert int(cpu.split()[-2]) > 0
    assert not any(tmp_path.iterdir())


def test_no_layers_on_the_device(newest: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    command = prompt_program(tiny_model, *SHORT, "--gpu-layers", "0")
    done = tapedelay("doctor", "--json", "-o", tmp_path, "--", *command, environment=newest)
    assert done.code == 4
    (found,) = findings(done, "no-work")
    assert "n_gpu_layers" in found["remedy"]


def test_the_vulkan_backend(vulkan: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    command = program(engines.VULKAN_FIXED, tiny_model, "--n-predict", "1")
    done = tapedelay("doctor", "--json", "-o", tmp_path, "--", *command, environment=vulkan)
    assert done.code == 0, done.out
    device = next(f for f in findings(done, "device") if f["found"].startswith("Vulkan0"))
    assert device["found"].startswith(
        "Vulkan0 (gpu of Vulkan): calls are asynchronous, events are recorded, pinned host memory, "
    )
    assert device["found"].endswith(" computes")


def test_which_files_of_the_engine_contain_it(newest: dict[str, str]) -> None:
    folder = Path(newest["PYTHONPATH"].split(os.pathsep)[0]) / "xllamacpp"
    (library,) = folder.glob("xllamacpp*.so")
    assert holds_ggml(library) == "exporting"
    try:
        libraries = engines.npm_libraries(engines.VULKAN_FIXED)
    except InfrastructureError as error:
        pytest.skip(error.found)
    kinds = {p.name.split(".")[0]: holds_ggml(p) for p in libraries.glob("lib*.so*")}
    assert kinds["libggml-base"] == "exporting"
    assert {name for name, kind in kinds.items() if kind} == {"libggml-base"}, (
        "backends and llama only use it"
    )


def test_telemetry_goes_along(
    newest: dict[str, str], tiny_model: Path, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    driver = compiled("libnvidia-ml.so.1", "-shared", "-fPIC", STANDIN_NVML).parent
    arguments = record_arguments(tmp_path / "a.tape", prompt_program(tiny_model, *SHORT, "--repeat", "20"))
    arguments[1:1] = ["--telemetry-ms", "10"]
    done = tapedelay(*arguments, environment={**newest, "LD_LIBRARY_PATH": str(driver)})
    assert done.code == 0, done.err
    tape = load_tape(tmp_path / "a.tape")
    ops, samples = tape.table("ops"), tape.table("telemetry")
    last_ns = max(filter(None, ops.column("issue_ns").to_pylist()))
    at_ns = samples.column("at_ns").to_pylist()
    assert sum(0 <= t <= last_ns for t in at_ns) > 20, "while the engine worked"
    assert min(at_ns) >= 0
    assert set(samples.column("device").to_pylist()) == {None}, "test devices are none of NVML's"
