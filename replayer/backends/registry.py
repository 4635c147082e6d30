"""Backends by name: the built-in ones, and those of other packages under an entry-point group."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from ...formats.errors import Unsupported, UsageError
from .guarded import Guarded, words_of
from .protocol import Backend

__all__ = ["GROUP", "backends_present", "find_backend", "names"]

GROUP = "tapedelay.backends"
"""Entry points of this group name a class, or a function without arguments, that gives a backend."""

REPAIR = "repair or remove the package that brings it"

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
        except (Exception, SystemExit) as error:  # whatever another package does while it is imported
            raise Unsupported(
                f"backend {name} cannot be loaded: {words_of(error)}", where=point.value, next_step=REPAIR
            ) from error
    if not isinstance(backend, Backend):
        raise Unsupported(
            f"backend {name} is no backend: it gives a {type(backend).__name__}",
            expected="capabilities(), available() and load(), see replayer/backends/protocol.py",
            where=name,
            next_step=REPAIR,
        )
    return backend


def _why_not(name: str, backend: Backend) -> str:
    """Return an empty string, or why a backend cannot run here; also where it fails to say so.

    Raises
    ------
    Unsupported
        It is another package's, and does not answer with text.
    """
    try:
        why: object = backend.available()
    except (
        Exception,
        SystemExit,
    ) as error:  # it must not disturb the others
        if name in BUILT_IN:
            raise
        raise Unsupported(
            f"backend {name} cannot say whether it runs here: {words_of(error)}", where=name, next_step=REPAIR
        ) from error
    if not isinstance(why, str):
        raise Unsupported(
            f"backend {name} cannot say whether it runs here: available() gives a {type(why).__name__}",
            expected="an empty string, or why it cannot run",
            where=name,
            next_step=REPAIR,
        )
    return why


def _served(name: str, backend: Backend) -> Backend:
    """Return a backend as callers get it: one of another package answers for its own errors."""
    return backend if name in BUILT_IN else Guarded(backend, name)


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
        raise UsageError(
            f"no backend {name!r}",
            expected=", ".join(names()),
            where="backend",
            next_step="choose one of them, or install the package that brings it",
        )
    backend = _make(name)
    why = _why_not(name, backend)
    if why:
        others = ", ".join(n for n in backends_present() if n != name)
        raise Unsupported(
            f"backend {name} cannot run here: {why}", where="backend", next_step=f"there is: {others}"
        )
    return _served(name, backend)


def backends_present() -> dict[str, Backend]:
    """Return the backends that can run here, by name; one that fails to load or to say so is left out."""
    found = {}
    for name in names():
        try:
            backend = _make(name)
            if not _why_not(name, backend):
                found[name] = _served(name, backend)
        except Unsupported:
            continue
    return found
