"""Tapes in the forms of other programs: Perfetto traces, pages for a browser."""

from __future__ import annotations

__all__: list[str] = []
