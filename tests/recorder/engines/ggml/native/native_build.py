"""Compile the plugin's sources with the system compiler, for what drives them without an engine."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["NATIVE", "compile_with_plugin", "compiler"]

NATIVE = Path(__file__).parents[5] / "recorder/engines/ggml/native"
_FLAGS = [
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-Wall", "-Wextra", '-DTAPEDELAY_VERSION="0"', f"-I{NATIVE}",
]  # fmt: skip


def compiler() -> str | None:
    """Return the C++ compiler's path, or None: ``$CXX`` or what the system has."""
    return shutil.which(os.environ.get("CXX", "") or "c++") or shutil.which("g++") or shutil.which("clang++")


def compile_with_plugin(source: Path, target: Path, *, shared: bool = False, optimise: str = "-O1") -> Path:
    """Compile `source` with all of the plugin's sources into a program, or a shared library.

    Parameters
    ----------
    source
        The file with ``main``, or with what the library exports.
    target
        Where to write; a folder for object files is made beside it.
    shared
        Make a shared library.
    optimise
        The compiler's level.

    Returns
    -------
    Path
        `target`.
    """
    cxx = compiler()
    assert cxx is not None, "no C++ compiler"
    objects = target.parent / f"{target.name}.objects"
    objects.mkdir()

    def build(unit: Path) -> str:
        out = objects / f"{unit.stem}.o"
        run = subprocess.run(
            [cxx, *_FLAGS, optimise, "-c", str(unit), "-o", str(out)], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return str(out)

    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(build, [*sorted(NATIVE.glob("*.cpp")), source]))
    link = [cxx, *(["-shared"] if shared else []), *parts, "-o", str(target), "-lpthread", "-ldl"]
    run = subprocess.run(link, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return target
