"""An engine program on synchronous devices and under a plan: is what it gives the same?

A regression test of an engine needs no GPU for this. `run_engine_twice` runs the program, `explain` puts what
came of it into words; the fixture ``tapedelay_engine`` of the pytest plugin is both in one.
"""

from __future__ import annotations

from .api import run_engine_twice
from .explain import explain
from .results import EngineRun, EngineRuns, Setting

__all__ = ["EngineRun", "EngineRuns", "Setting", "explain", "run_engine_twice"]
