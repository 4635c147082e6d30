"""What the plugin does where memory is refused, without the plugin."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[5] / "recorder/engines/ggml/native"


def test_memory_that_is_refused_is_done_without(compiled: Callable[..., Path]) -> None:
    flags = ["-std=c++17", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-fno-exceptions", f"-I{NATIVE}"]
    program = compiled("cases", *flags, HERE / "memory_cases.cpp", NATIVE / "memory.cpp")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
