"""llama-cpp-python from before the fix of #26040, compiled from its sources, recorded by the import hook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import engine_environment, record_arguments, record_program

pytestmark = pytest.mark.soak
PROGRAM = Path(__file__).parent / "programs" / "llama_cpp_prompt.py"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    try:
        return engine_environment(engines.llama_cpp_python(engines.LLAMA_CPP_PYTHON_RACY))
    except InfrastructureError as error:
        pytest.skip(f"llama-cpp-python {engines.LLAMA_CPP_PYTHON_RACY}: {error.found}")


def test_it_is_recorded_and_the_pair_is_named(
    environment: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = [sys.executable, str(PROGRAM), str(tiny_model)]
    alone = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, timeout=300, check=True
    )
    reference = record_program(record_arguments(tmp_path / "sync.tape", program, sync=True), environment)
    assert reference.answer == json.loads(alone.stdout)
    assert reference.check() == (0, [])
    recording = record_program(record_arguments(tmp_path / "run.tape", program), environment)
    code, findings = recording.check()
    assert code == 1
    assert any("input_embed" in str(f) and "conv_states" in str(f) for f in findings), findings
    shown = recording.info()
    assert f"package llama_cpp, package_version {engines.LLAMA_CPP_PYTHON_RACY}" in shown
    assert "TAPE0" in shown
