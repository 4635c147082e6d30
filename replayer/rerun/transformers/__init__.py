"""Adapter of transformers' continuous batching: its real scheduler and cache, without model and memory."""

from __future__ import annotations

from .driver import TransformersDriver

__all__ = ["TransformersDriver"]
