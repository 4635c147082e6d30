"""What vLLM calls in each of its processes, as one of its general plugins (``vllm.general_plugins``).

A core that runs in a process of its own is recorded through this where it does not inherit the import hook.
"""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["start"]


def start() -> None:
    """Let the scheduler record itself once it is imported; without a recording nothing happens."""
    if not os.environ.get("TAPEDELAY_SPOOL"):
        return
    try:
        from ...hook import engine_hook

        engine_hook.install()
    except Exception as e:  # it would end vLLM's process
        with contextlib.suppress(Exception):
            sys.stderr.write(f"tapedelay: vllm's scheduler is not recorded ({type(e).__name__}: {e})\n")
