"""The invariants of a request scheduler, judged on sequences of commands."""

from __future__ import annotations

from .judge import Judge, judge
from .violation import Violation

__all__ = ["Judge", "Violation", "judge"]
