"""Check a tape for races, lifetime faults and deadlocks, on physical byte ranges.

It is exact where every access, wait and host-to-host synchronisation was recorded and host control flow does
not depend on the raced data; a report names the conditions that fail.
"""

from __future__ import annotations

from .baseline import Baseline, read_baseline, write_baseline
from .findings import Condition, Finding, Group, Hider, OpView, Report
from .judge import check_tape

__all__ = [
    "Baseline",
    "Condition",
    "Finding",
    "Group",
    "Hider",
    "OpView",
    "Report",
    "check_tape",
    "read_baseline",
    "write_baseline",
]
