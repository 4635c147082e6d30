"""Limits on what a tape may hold, beyond which the time to judge it would not grow with its size."""

from __future__ import annotations

__all__ = ["MAX_ABOVE", "MAX_BUFFER_DEPTH", "MAX_QUEUES", "MAX_SIDE_BY_SIDE"]

MAX_QUEUES = 4096
"""Queues."""

MAX_ABOVE = 256
"""Ops that one op is part of: its parent, that one's parent, and so on."""

MAX_BUFFER_DEPTH = 64
"""Buffers that one buffer lies in: its parent, that one's parent, and so on."""

MAX_SIDE_BY_SIDE = 4096
"""Ops of queues that are not in order which nothing orders among themselves."""
