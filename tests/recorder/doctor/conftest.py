"""Programs in which the reasons of the doctor really occur, compiled here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAKE = HERE.parent / "engines" / "ggml" / "native"
NATIVE = HERE.parents[2] / "recorder" / "engines" / "ggml" / "native"
FLAGS = ("-O0", "-pthread", f"-I{NATIVE}", f"-I{FAKE}")


@pytest.fixture(scope="session")
def build(compiled: Callable[..., Path]) -> Callable[..., Path]:
    """Compile and link."""

    def make(name: str, *words: str | Path) -> Path:
        return compiled(name, *FLAGS, *words, "-ldl")

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
