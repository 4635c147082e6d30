"""Record a request scheduler from inside of its engine: hooks call `SchedulerRecorder`.

Imports nothing heavy: it runs in the engine's own Python.
"""

from __future__ import annotations

from .recorder import PoolRow, SchedulerRecorder
from .spool import enabled, stop

__all__ = ["PoolRow", "SchedulerRecorder", "enabled", "stop"]
