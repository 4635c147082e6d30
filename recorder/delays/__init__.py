"""Delay plans in a running engine: compiled for the plugin, counted, written out afterwards."""

from __future__ import annotations

from .asked import AskedDelays, asked_delays
from .plans import engine_plan
from .report import LineCount
from .spool import leave_plan

__all__ = ["AskedDelays", "LineCount", "asked_delays", "engine_plan", "leave_plan"]
