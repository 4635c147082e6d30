"""The layer rule: formats <- recorder <- replayer, never the other way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "formats": {"formats"},
    "recorder": {"formats", "recorder"},
    "replayer": {"formats", "recorder", "replayer"},
}


def rooms_imported(path: Path, source: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (line, room, names below it) for each import of one of our rooms."""
    package = ["tapedelay", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        targets: list[list[str]] = []
        if isinstance(node, ast.Import):
            targets = [a.name.split(".") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = base + (node.module.split(".") if node.module else [])
            targets = [[*full, a.name] for a in node.names]
        for t in targets:
            if t[0] == "tapedelay" and len(t) > 1:
                yield getattr(node, "lineno", 0), t[1], t[2:]
            elif t[0] in MAY_IMPORT:
                yield getattr(node, "lineno", 0), f"bare {t[0]}", t[1:]


def violations(path: Path, source: str) -> list[str]:
    room = path.relative_to(ROOT).parts[0]
    bad = []
    for line, target, _below in rooms_imported(path, source):
        if target not in MAY_IMPORT[room]:
            bad.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    return bad


def recorder_names() -> set[str]:
    """Return what the recorder offers to others: its ``__all__``."""
    for node in ast.parse((ROOT / "recorder" / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError("recorder/__init__.py has no __all__")


def is_watch(below: list[str]) -> bool:
    """Whether it is how an engine's scheduler is watched: adapters share that with the recorder."""
    return len(below) in (3, 4) and below[0] == "engines" and below[2] == "watch"


def private_uses(path: Path, source: str) -> list[str]:
    """Return the imports of the recorder by another room that are not of its public names."""
    public = recorder_names()
    return [
        f"{path.relative_to(ROOT)}:{line} imports {'.'.join([target, *below])}"
        for line, target, below in rooms_imported(path, source)
        if target == "recorder" and not (len(below) == 1 and below[0] in public) and not is_watch(below)
    ]


def test_the_replayer_uses_public_names_of_the_recorder_only() -> None:
    assert recorder_names()
    files = sorted((ROOT / "replayer").rglob("*.py"))
    assert [v for f in files for v in private_uses(f, f.read_text())] == []


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("from ...recorder import record", False),
        ("from tapedelay.recorder import Recording", False),
        ("from ...recorder.session import Recording", True),
        ("from ...recorder import session", True),
        ("from ... import recorder", True),
        ("import tapedelay.recorder.launch", True),
        ("from tapedelay.recorder import *", True),
        ("from ...recorder.engines.vllm.watch import attach", False),
        ("from ...recorder.engines.transformers import watch", False),
        ("from ...recorder.engines.transformers import hook", True),
        ("from ...recorder.engines.ggml.watch.inner import attach", True),
        ("from ...formats.tape import Tape", False),
    ],
)
def test_the_rule_on_public_names_bites(source: str, bad: bool) -> None:
    assert bool(private_uses(ROOT / "replayer/check/x.py", source)) == bad


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_no_import_goes_up(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    assert [v for f in files for v in violations(f, f.read_text())] == []


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("formats/x.py", "from ..recorder import record"),
        ("formats/x.py", "from tapedelay.replayer.check import check_tape"),
        ("recorder/engines/ggml/x.py", "from ....replayer import check"),
        ("recorder/x.py", "def f():\n    import tapedelay.replayer"),
        ("replayer/x.py", "import formats"),
    ],
)
def test_the_rule_bites(where: str, source: str) -> None:
    assert violations(ROOT / where, source) != []


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("recorder/x.py", "from ..formats.tape import Tape"),
        ("replayer/check/x.py", "from ...recorder import record\nfrom .y import z"),
        ("formats/x.py", "import json\nfrom .errors import InputError"),
    ],
)
def test_the_rule_allows(where: str, source: str) -> None:
    assert violations(ROOT / where, source) == []
