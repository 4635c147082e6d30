"""Backends by name: built-in ones, those of other packages, and what is said where one is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import Unsupported, UsageError
from tapedelay.replayer.backends import registry
from tapedelay.replayer.backends.guarded import Guarded
from tapedelay.replayer.backends.protocol import Backend
from tapedelay.replayer.backends.registry import backends_present, find_backend, names
from tapedelay.replayer.backends.virtual import VirtualBackend

MODULE = """
from tapedelay.replayer.backends.virtual import VirtualBackend

class Good(VirtualBackend):
    pass

class Away(VirtualBackend):
    def available(self):
        return "no such device is plugged in"

class Raises(VirtualBackend):
    def available(self):
        raise RuntimeError("no driver")

class Leaves(VirtualBackend):
    def available(self):
        raise SystemExit(3)

class Vague(VirtualBackend):
    def available(self):
        return None

class Silent(Exception):
    def __str__(self):
        raise ValueError("no text")

def failing():
    raise RuntimeError("driver too old")

def leaving():
    raise SystemExit("licence expired")

def silent():
    raise Silent

def nothing():
    return 7
"""

POINTS = """
[tapedelay.backends]
good = acme_backends:Good
away = acme_backends:Away
failing = acme_backends:failing
nothing = acme_backends:nothing
missing = acme_backends_that_are_not_there:Good
virtual = acme_backends:Away
raises = acme_backends:Raises
leaves = acme_backends:Leaves
vague = acme_backends:Vague
leaving = acme_backends:leaving
silent = acme_backends:silent
"""

BROKEN = ("failing", "leaves", "leaving", "missing", "nothing", "raises", "silent", "vague")


@pytest.fixture
def _acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that brings backends, as pip would."""
    (tmp_path / "acme_backends.py").write_text(MODULE, encoding="utf-8")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_backends", raising=False)


def test_built_in_backends() -> None:
    assert names()[:3] == ("virtual", "threads", "opencl")
    present = backends_present()
    assert {"virtual", "threads"} <= set(present)
    for name, backend in present.items():
        assert isinstance(backend, Backend)
        assert backend.capabilities().name == name
        assert backend.available() == ""


def test_an_unknown_name_is_told_with_those_that_are_known() -> None:
    with pytest.raises(UsageError) as caught:
        find_backend("cuda")
    assert "'cuda'" in caught.value.found
    assert caught.value.expected == ", ".join(names())


@pytest.mark.usefixtures("_acme")
def test_backends_of_other_packages() -> None:
    assert names() == ("virtual", "threads", "opencl", *sorted({*BROKEN, "away", "good"}))
    good = find_backend("good")
    assert isinstance(good, Guarded)
    assert isinstance(good.backend, VirtualBackend)
    present = backends_present()
    assert isinstance(present["good"], Guarded)
    assert {"virtual", "threads", "good"} <= set(present)
    assert not {"away", *BROKEN} & set(present)


@pytest.mark.usefixtures("_acme")
def test_a_built_in_name_stays_ours() -> None:
    assert type(find_backend("virtual")) is VirtualBackend


@pytest.mark.usefixtures("_acme")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("away", "cannot run here: no such device is plugged in"),
        ("failing", "cannot be loaded: RuntimeError: driver too old"),
        (
            "missing",
            "cannot be loaded: ModuleNotFoundError: No module named 'acme_backends_that_are_not_there'",
        ),
        ("nothing", "is no backend: it gives a int"),
        ("raises", "cannot say whether it runs here: RuntimeError: no driver"),
        ("leaves", "cannot say whether it runs here: SystemExit: 3"),
        ("vague", "cannot say whether it runs here: available() gives a NoneType"),
        ("leaving", "cannot be loaded: SystemExit: licence expired"),
        ("silent", "cannot be loaded: Silent"),
    ],
)
def test_why_a_backend_is_not_there(name: str, said: str) -> None:
    with pytest.raises(Unsupported) as caught:
        find_backend(name)
    assert caught.value.found == f"backend {name} {said}"
    assert caught.value.next_step


def test_the_built_in_names_lead_to_what_they_say() -> None:
    for name in registry.BUILT_IN:
        assert registry._make(name).capabilities().name == name
