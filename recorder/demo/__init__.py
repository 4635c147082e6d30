"""The demonstration and what it shares with the tests of real engines: models, engine builds, programs."""

from __future__ import annotations

__all__: list[str] = []
