"""What the plugin does where memory is refused, without the plugin."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[5] / "recorder/engines/ggml/native"


def test_memory_that_is_refused_is_done_without(tmp_path: Path) -> None:
    cxx = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if cxx is None:
        pytest.skip("no C++ compiler")
    flags = ["-std=c++17", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-fno-exceptions", f"-I{NATIVE}"]
    sources = [str(HERE / "memory_cases.cpp"), str(NATIVE / "memory.cpp")]
    program = tmp_path / "cases"
    subprocess.run([cxx, *flags, *sources, "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
