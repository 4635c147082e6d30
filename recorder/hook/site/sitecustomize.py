"""Runs at the start of every Python that ``tapedelay record`` launches.

Runs the ``sitecustomize`` that this one hides, then installs the import hook. Works on any Python 3, needs
nothing but the standard library, and never stops the program.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType


def _run(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    if name == "sitecustomize":
        sys.modules[name] = module  # what the program sees under this name is its own
    spec.loader.exec_module(module)
    return module


def _hidden(here: str) -> str | None:
    rest = [p for p in sys.path if os.path.realpath(p or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    return None if spec is None else spec.origin


def _start() -> None:
    here = os.path.dirname(os.path.realpath(__file__))
    try:
        hook = _run("_tapedelay_engine_hook", os.path.join(os.path.dirname(here), "engine_hook.py"))
        hook.install()
    except Exception as e:
        if sys.stderr is not None:
            sys.stderr.write(f"tapedelay: the import hook cannot be installed ({e})\n")
    origin = _hidden(here)
    if origin is not None:
        _run("sitecustomize", origin)


_start()
