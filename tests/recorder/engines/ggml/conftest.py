"""Programs around a ggml of our own making, compiled once in a test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.recorder import plugin

CASES = Path(__file__).parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
FLAGS = ("-std=c++17", "-O1", "-pthread", f"-I{NATIVE}")


@pytest.fixture(scope="session")
def host_program(compiled: Callable[..., Path]) -> Callable[..., Path]:
    """Return a file of cases as a program: ``host_program("delay_cases.cpp")``.

    `options` go to the compiler; `exports`: others can find its ggml.
    """

    def build(cases: str, *options: str, exports: bool = True) -> Path:
        host = compiled("fake_host.o", "-c", *FLAGS, *options, CASES / "fake_host.cpp")
        link = ["-rdynamic"] if exports else []
        return compiled("cases", *FLAGS, *options, *link, host, CASES / cases, "-ldl")

    return build
