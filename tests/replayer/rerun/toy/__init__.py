"""A small, honest request scheduler of our own, and faults that can be planted into it.

It stands for an engine where none is installed: paged KV units with prefix sharing, state slots, chunked
prefill, preemption, priorities, sessions, requests that are not schedulable yet, pausing, cache reset, two
steps in flight.
"""

from __future__ import annotations

from .driver import ToyDriver
from .faults import FAULTS, Fault

__all__ = ["FAULTS", "Fault", "ToyDriver"]
