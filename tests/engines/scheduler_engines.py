"""Which Python has an engine whose request scheduler is recorded and rerun."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

__all__ = ["engine_python"]


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
