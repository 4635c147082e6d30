"""The tape with rows in every table."""

from __future__ import annotations

from ...formats.conftest import rich_tape, run_cli, written

__all__ = ["rich_tape", "run_cli", "written"]
