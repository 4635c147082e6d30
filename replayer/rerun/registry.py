"""Engine adapters by name. Standard library only."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from .protocol import Driver, Unsupported

__all__ = ["DRIVERS", "GROUP", "driver", "names"]

DRIVERS = {
    "vllm": "tapedelay.replayer.rerun.vllm:VllmDriver",
    "deepinfer": "tapedelay.replayer.rerun.deepinfer:DeepInferDriver",
    "transformers": "tapedelay.replayer.rerun.transformers:TransformersDriver",
}
"""Our own, ``module:class``; imported when asked for."""

GROUP = "tapedelay.rerun_engines"
"""Entry points of others; each names a class or function without arguments that gives a `Driver`."""


def names() -> list[str]:
    """Return every name that `driver` knows here."""
    return sorted({*DRIVERS, *(e.name for e in entry_points(group=GROUP))})


def driver(name: str) -> Driver:
    """Return the adapter of an engine.

    Parameters
    ----------
    name : str
        One of `names`, or ``module:class`` of an adapter that is not installed as an entry point.

    Raises
    ------
    Unsupported
        There is none, or it cannot be imported here.
    """
    target = DRIVERS.get(name)
    if target is None and ":" in name:
        target = name
    if target is None:
        target = next((e.value for e in entry_points(group=GROUP) if e.name == name), None)
    if target is None:
        raise Unsupported(f"no engine adapter is named {name!r}: there are {', '.join(names())}")
    module, _, attribute = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except Exception as e:  # a module may raise anything when it is imported
        why = str(e) if isinstance(e, ImportError | AttributeError) else f"{type(e).__name__}: {e}"
        raise Unsupported(f"the engine adapter {name!r} cannot be imported here: {why}") from None
    if not isinstance(made, Driver):
        raise Unsupported(f"{target} gives no engine adapter")
    return made
