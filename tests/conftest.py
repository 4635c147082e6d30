"""What every test may rely on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test is timed: on a loaded machine an example takes as long as it takes.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# What the outside says about output (CI lets pytest print whole failures in its summary; colours, widths) is
# not for the programs and inner test runs that the tests start: they print the same everywhere.
if os.environ.get("CI"):
    os.environ["TAPEDELAY_TESTS_IN_CI"] = "1"  # where a missing engine is a failure
_OUTPUT = "BUILD_NUMBER CI COLUMNS FORCE_COLOR LINES NO_COLOR PY_COLORS PYTEST_ADDOPTS PYTEST_THEME"
for name in _OUTPUT.split():
    os.environ.pop(name, None)

# A shell that puts a job into the background lets it ignore Ctrl-C; tests that press it would wait for ever,
# in their own process and in those that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make what is in a folder once in a test run, whichever worker of pytest-xdist needs it first.

    ``made_once(name, make)`` calls ``make(folder)`` unless that was done, and returns the folder.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made"

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder = shared / name
        folder.mkdir(parents=True, exist_ok=True)
        with (shared / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = shared / f"{name}.done"
            if not done.exists():
                shutil.rmtree(folder)  # of a worker that failed
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def compiled(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., Path]:
    """Compile a program or a library, the same one once in a test run: ``compiled(name, *words)``."""

    def build(name: str, *words: str | Path) -> Path:
        text = list(map(str, words))
        in_c = any(w.endswith(".c") for w in text) and not any(w.endswith((".cpp", ".o")) for w in text)
        names = ("CC", "cc", "gcc", "clang") if in_c else ("CXX", "c++", "g++", "clang++")
        found = os.environ.get(names[0]) or next(filter(None, map(shutil.which, names[1:])), None)
        if found is None:
            pytest.skip(f"no {'C' if in_c else 'C++'} compiler")
        compiler: str = found
        key = hashlib.sha256("\0".join([compiler, name, *text]).encode()).hexdigest()[:16]

        def make(folder: Path) -> None:
            subprocess.run([compiler, *text, "-o", str(folder / name)], check=True)

        return made_once(f"{name}-{key}", make) / name

    return build
