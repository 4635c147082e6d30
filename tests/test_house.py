"""House rules that a program can check."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tapedelay

ROOT = Path(__file__).resolve().parents[1]


def modules() -> list[str]:
    names = ["tapedelay.formats", "tapedelay.recorder", "tapedelay.replayer"]
    for top in list(names):
        package = importlib.import_module(top)
        names += [m.name for m in pkgutil.walk_packages(package.__path__, top + ".")]
    # `__main__` and the folder that is put on a child's path run code when imported.
    # A library that engines load looks like an extension module, but is none.
    skipped = ("__main__", ".hook.site", "sitecustomize", ".libtapedelay_")
    return [n for n in names if not any(part in n for part in skipped)]


@pytest.mark.parametrize("name", modules())
def test_every_exported_name_exists_and_every_module_says_what_it_is_for(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), f"{name} has no docstring"
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), f"{name}.{exported} is listed but missing"


def undocumented(source: str) -> list[str]:
    """Return the public functions, classes and methods of a module that have no docstring."""
    bare = []
    tree = ast.parse(source)
    inside = [(n, f"{c.name}.") for c in tree.body if isinstance(c, ast.ClassDef) for n in c.body]
    private = {c.name for c in tree.body if isinstance(c, ast.ClassDef) and c.name.startswith("_")}
    for node, prefix in [(n, "") for n in tree.body] + inside:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        # a setter or an overload is said elsewhere
        told = any(
            (isinstance(d, ast.Attribute) and d.attr == "setter")
            or (isinstance(d, ast.Name) and d.id == "overload")
            for d in node.decorator_list
        )
        hidden = node.name.startswith("_") or prefix.removesuffix(".") in private
        if not (hidden or told or ast.get_docstring(node)):
            bare.append(f"{node.lineno} {prefix}{node.name}")
    return bare


def sources() -> list[Path]:
    return [
        p
        for room in ("formats", "recorder", "replayer")
        for p in sorted((ROOT / room).rglob("*.py"))
        if "native" not in p.parts
    ]


def test_every_public_thing_says_what_it_is() -> None:
    assert len(sources()) > 50
    bare = [f"{p.relative_to(ROOT)}:{x}" for p in sources() for x in undocumented(p.read_text())]
    assert bare == []


def test_a_missing_docstring_would_be_noticed() -> None:
    source = """
def f(): pass
def g(): 'says it'
def _h(): pass
class A:
    def m(self): pass
    def _n(self): pass
    def __len__(self): pass
    @property
    def p(self): 'says it'
    @p.setter
    def p(self, value): pass
class _B:
    def m(self): pass
"""
    assert undocumented(source) == ["2 f", "5 A", "6 A.m"]


def test_the_core_imports_without_engines_and_fast() -> None:
    code = (
        "import sys, tapedelay.formats.cli, tapedelay.recorder, tapedelay.replayer\n"
        "heavy = {'pyarrow', 'numpy', 'torch', 'vllm', 'xllamacpp', 'rich.progress'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", tapedelay.__version__)


def tracked_files() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if out.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / n for n in out.stdout.decode().split("\0") if n]


def test_build_files_name_no_address() -> None:
    build = [
        p for p in tracked_files() if p.suffix in {".toml", ".txt", ".cmake"} or p.name in {"Makefile", "run"}
    ]
    assert build
    for p in build:
        if "corpus" in p.parts or "traces" in p.parts:
            continue
        assert not re.search(r"https?://|index-url", p.read_text()), p


def test_make_help_lists_the_documented_targets() -> None:
    text = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "test-engines", "soak", "bench", "lint", "format"):
        assert re.search(rf"^{target}:.*## ", text, re.M), target


def test_tests_whose_counts_grow_in_soak_are_run_there() -> None:
    """`make soak` takes the real engines and what is marked: other counts would never grow."""
    asks = re.compile(r"environ(\.get\(|\[)\"TAPEDELAY_SOAK\"")
    files = [
        f
        for f in (ROOT / "tests").rglob("test_*.py")
        if "engines" not in f.relative_to(ROOT / "tests").parts[:1]
    ]
    counting = [f for f in files if asks.search(f.read_text(encoding="utf-8"))]
    assert len(counting) > 5
    assert [f.name for f in counting if "pytest.mark.counted" not in f.read_text(encoding="utf-8")] == []
