"""Backends by name: the built-in ones, and those of other packages under an entry-point group."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from ...formats.errors import Unsupported, UsageError
from .protocol import Backend

__all__ = ["GROUP", "backends_present", "find_backend", "names"]

GROUP = "tapedelay.backends"
"""Entry points of this group name a class, or a function without arguments, that gives a backend."""

BUILT_IN = {
    "virtual": ".virtual:VirtualBackend",
    "threads": ".threads:ThreadsBackend",
    "opencl": ".opencl:OpenCLBackend",
}


def _foreign() -> dict[str, EntryPoint]:
    """Return the entry points of other packages; a built-in name is ours."""
    return {p.name: p for p in entry_points(group=GROUP) if p.name not in BUILT_IN}


def names() -> tuple[str, ...]:
    """Return all names, the built-in ones first; nothing is imported."""
    return (*BUILT_IN, *sorted(_foreign()))


def _make(name: str) -> Backend:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        backend = getattr(import_module(module, __package__), attribute)()
    else:
        point = _foreign()[name]
        try:
            backend = point.load()()
        except Exception as error:  # whatever another package does while it is imported
            raise Unsupported(
                f"backend {name} cannot be loaded: {type(error).__name__}: {error}",
                where=point.value,
                next_step="repair or remove the package that brings it",
            ) from error
    if not isinstance(backend, Backend):
        raise Unsupported(
            f"backend {name} is no backend: it gives a {type(backend).__name__}",
            expected="capabilities(), available() and load(), see replayer/backends/protocol.py",
            where=name,
            next_step="repair or remove the package that brings it",
        )
    return backend


def find_backend(name: str) -> Backend:
    """Return a backend that can run here.

    Raises
    ------
    UsageError
        No backend has that name.
    Unsupported
        It cannot run on this machine.
    """
    if name not in names():
        raise UsageError(f"no backend {name!r}", expected=", ".join(names()), where="backend")
    backend = _make(name)
    why = backend.available()
    if why:
        others = ", ".join(n for n in backends_present() if n != name)
        raise Unsupported(
            f"backend {name} cannot run here: {why}", where="backend", next_step=f"there is: {others}"
        )
    return backend


def backends_present() -> dict[str, Backend]:
    """Return the backends that can run here, by name; one that cannot be loaded is left out."""
    found = {}
    for name in names():
        try:
            backend = _make(name)
        except Unsupported:
            continue
        if not backend.available():
            found[name] = backend
    return found
