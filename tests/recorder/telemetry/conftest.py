"""A library that stands in for the driver's, compiled here and loaded by ``pynvml`` itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("standin_nvml.c")


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Return the environment in which ``pynvml`` finds the stand-in, in a scenario of it."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(library)],
        check=True,
    )

    def environment(scenario: str = "") -> dict[str, str]:
        known = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), known])), "STANDIN": scenario}

    return environment


@pytest.fixture(scope="session")
def no_driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which no driver's library can be loaded, whatever the machine has."""
    folder = tmp_path_factory.mktemp("no-driver")
    (folder / "libnvidia-ml.so.1").write_text("no library")
    return {"LD_LIBRARY_PATH": str(folder)}
