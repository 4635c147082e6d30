"""Programs that run an engine and nothing else: what a user would record."""

from __future__ import annotations

__all__: list[str] = []
