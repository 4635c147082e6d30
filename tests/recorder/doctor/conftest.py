"""Programs in which the reasons of the doctor really occur, compiled here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAKE = HERE.parent / "engines" / "ggml" / "native"
NATIVE = HERE.parents[2] / "recorder" / "engines" / "ggml" / "native"
FLAGS = ("-O0", "-pthread", f"-I{NATIVE}", f"-I{FAKE}")


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile and link; the same is made once."""
    folder = tmp_path_factory.mktemp("programs")
    made: dict[tuple[str, ...], Path] = {}

    def make(name: str, *words: str | Path) -> Path:
        key = (name, *map(str, words))
        if key not in made:
            cxx = (
                os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
            )
            if cxx is None:
                pytest.skip("no C++ compiler")
            compiler = (
                cxx if any(str(w).endswith((".cpp", ".o")) for w in words) else shutil.which("cc") or cxx
            )
            subprocess.run([compiler, *FLAGS, *map(str, words), "-o", str(folder / name), "-ldl"], check=True)
            made[key] = folder / name
        return made[key]

    return make


@pytest.fixture(scope="session")
def ggml(build: Callable[..., Path]) -> list[Path]:
    """Object files: a small ggml, and a program around it."""
    sources = (FAKE / "fake_host.cpp", HERE / "programs" / "host.cpp")
    return [build(f"{s.stem}.o", "-c", "-fPIC", "-std=c++17", s) for s in sources]


@pytest.fixture(scope="session")
def host(build: Callable[..., Path], ggml: list[Path]) -> Path:
    """A program that exports its ggml."""
    return build("host", "-rdynamic", *ggml)
