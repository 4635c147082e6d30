"""Stands here for importers of its old place; `formats.notation` has it."""

from __future__ import annotations

from ..notation import Spot, integer, shown

__all__ = ["Spot", "integer", "shown"]
