"""`tapedelay export`: a tape in another form, with what `check` finds in it marked."""

from __future__ import annotations

__all__: list[str] = []
