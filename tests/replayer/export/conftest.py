"""The tape with rows in every table, and Perfetto's trace processor."""

from __future__ import annotations

from ...formats.conftest import rich_tape, written
from ...formats.exporters.conftest import query

__all__ = ["query", "rich_tape", "written"]
