"""The Python that has an engine whose request scheduler is recorded and rerun, and programs run with it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tapedelay

__all__ = ["PROGRAMS", "TIMEOUT_S", "engine_python", "environment", "program", "record", "tool"]

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 1800
_QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
_PACKAGE = str(Path(next(iter(tapedelay.__path__))).parent)


@functools.cache
def _has(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], capture_output=True, timeout=60).returncode == 0


def engine_python(package: str) -> str:
    """Return the Python that has a package; skip where there is none, fail in CI.

    ``TAPEDELAY_PYTHON_<PACKAGE>`` names another one than that of the tests.
    """
    python = os.environ.get(f"TAPEDELAY_PYTHON_{package.upper()}") or sys.executable
    if _has(python, package):
        return python
    reason = f"{package} is not installed in {python}: make engine-{package}"
    if os.environ.get("TAPEDELAY_TESTS_IN_CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def environment(**more: str) -> dict[str, str]:
    """Return a program's environment: this package, quiet engines, outside of what records these tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_SPOOL")}
    return kept | _QUIET | {"PYTHONPATH": _PACKAGE, "OMP_NUM_THREADS": "1"} | more


def _run(words: list[object], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, words)], env=environment(**more), capture_output=True, text=True, timeout=TIMEOUT_S
    )


def program(package: str, name: str, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one of the `PROGRAMS` with the Python that has a package."""
    return _run([engine_python(package), PROGRAMS / name, *words], env)


def tool(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run tapedelay's command line."""
    return _run([sys.executable, "-m", "tapedelay", *words], env)


def record(tape: Path, package: str, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Record the Python that has a package with `words`: the path of a program, or ``-c`` and a text."""
    return tool("record", "-o", tape, "--", engine_python(package), *words, **env)
