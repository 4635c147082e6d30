"""The spool driver, compiled once: the real writer without an engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def build_module() -> ModuleType:
    """Return the module that compiles the plugin's sources."""
    spec = importlib.util.spec_from_file_location("native_build", HERE / "native_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def driver(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    build = build_module()
    if build.compiler() is None:
        pytest.skip("no C++ compiler on this machine")
    made = made_once(
        "driver", lambda folder: build.compile_with_plugin(HERE / "spool_driver.cpp", folder / "spool_driver")
    )
    return made / "spool_driver"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    directory = tmp_path / "spool"
    directory.mkdir()
    return directory
