"""A recording of the toy as a tape, and a toy that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from .searching import RECORDINGS
from .taping import taped

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taped(RECORDINGS["plain"], tmp_path_factory.mktemp("toy"))


@pytest.fixture
def tape(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of the toy, in a Python that can import the toy."""
    monkeypatch.syspath_prepend(str(HERE))
    return recorded


@pytest.fixture
def broken(tmp_path: Path, tape: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """An engine that keeps the units of what is aborted in the middle of its prompt."""
    (tmp_path / "leaking.py").write_text(
        "from toy import FAULTS, ToyDriver\n"
        "planted = FAULTS['kept-mid-prefill'].planted()\n"
        "planted.__enter__()\n"
        "class Leaking(ToyDriver):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "--engine", "leaking:Leaking"
