"""Counters of the devices while a command is recorded: clocks, power, temperature, memory, PCIe, load.

Sampled in a process of its own beside ``record``, never in the engine; kept in the spool, so that a tape has
them whatever becomes of the engine, of ``record`` or of the driver's library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .companion import INTERVAL_MS, Telemetry

__all__ = ["INTERVAL_MS", "Telemetry"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # late: the sampling process does without it
        from . import companion

        return getattr(companion, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
