"""Delay plans: parse, print, and find the ops of a tape that they name."""

from __future__ import annotations

from .resolved import AFTER_END, BEFORE_ISSUE, BEFORE_START, PLACES, Delays

__all__ = ["AFTER_END", "BEFORE_ISSUE", "BEFORE_START", "PLACES", "Delays"]
