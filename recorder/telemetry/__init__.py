"""Counters of the devices while a command is recorded: clocks, power, temperature, memory, PCIe, load.

Sampled by ``record`` in a thread of its own process, never in the engine; kept in the spool, so that a tape
has them whatever becomes of the engine or of ``record``.
"""

from __future__ import annotations

from .companion import INTERVAL_MS, Telemetry

__all__ = ["INTERVAL_MS", "Telemetry"]
