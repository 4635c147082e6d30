"""Every module says what it exports, exports exist, and the error tree is the one its docstring draws."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import tapedelay
from tapedelay.formats import errors

ROOT = Path(tapedelay.__file__).parent
PACKAGES = ("formats", "recorder", "replayer")
MODULES = sorted(
    "tapedelay." + ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for p in (ROOT / package).rglob("*.py")
    if "native" not in p.parts and p.name != "__main__.py"
)


def test_all_packages_are_seen() -> None:
    for package in PACKAGES:
        assert sum(m.startswith(f"tapedelay.{package}") for m in MODULES) > 3


@pytest.mark.parametrize("name", MODULES)
def test_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    assert module.__doc__, "a module says what it is for"
    defined = {
        n.name
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")
    }
    exported = getattr(module, "__all__", None)
    if exported is None:
        assert not defined, "a module that defines something lists it in __all__"
        return
    assert len(set(exported)) == len(exported)
    for n in exported:
        assert hasattr(module, n), f"{n} is exported and does not exist"
    for n in exported:
        value = getattr(module, n)
        if isinstance(value, type) and value.__module__ == name:
            assert value.__doc__, f"{n} has no docstring"


def test_error_tree() -> None:
    """The drawing in the docstring, parsed, against the classes: names, parents, exit codes."""
    assert errors.__doc__
    drawn: dict[str, tuple[str | None, int | None]] = {}
    stack: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        m = re.match(r"^([ │├└─]*)(\w+)\s+(.*)$", line)
        if not m or not hasattr(errors, m[2]):
            continue
        depth = len(m[1])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        code = re.search(r"exit (\d)", m[3])
        drawn[m[2]] = (stack[-1][1] if stack else None, int(code[1]) if code else None)
        stack.append((depth, m[2]))
    assert set(drawn) == set(errors.__all__)
    for name, (parent, exit_code) in drawn.items():
        cls = getattr(errors, name)
        assert cls.__base__.__name__ == (parent or "Exception"), name
        if exit_code is not None:
            assert cls.exit_code == exit_code, name
        e = cls("found it", expected="that", where="here", next_step="do this")
        assert str(e) == "here: found it (expected that)\n  next: do this"
        assert e.as_dict()["exit_code"] == cls.exit_code


def test_errors_are_raised_with_all_parts() -> None:
    """No error is raised with what was found alone."""
    bare = []
    for name in MODULES:
        module = importlib.import_module(name)
        path = module.__file__
        assert path
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            mine = getattr(errors, node.func.id, None)
            if getattr(module, node.func.id, mine) is not mine:
                continue  # an engine adapter has an exception of the same name, of words alone
            if node.func.id in errors.__all__ and not any(k.arg is None for k in node.keywords):
                said = {k.arg for k in node.keywords}
                if not said & {"expected", "next_step"}:
                    bare.append(f"{name}:{node.lineno}")
    assert not bare
