"""Run a tape again with delays, and search for the delay that shows a finding of `check`."""

from __future__ import annotations

from .api import replay
from .results import Replay
from .search import Attempt, Search, search

__all__ = ["Attempt", "Replay", "Search", "replay", "search"]
