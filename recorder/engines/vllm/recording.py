"""Record every scheduler that this process builds, from the moment it is built."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ...requests import PoolRow, SchedulerRecorder, enabled, stop
from ..hooked import say
from .described import config_of, tokens_per_unit
from .watch import attach

__all__ = ["start"]

_MARK = "_tapedelay_records"


def start(module: Any) -> None:
    """Let the schedulers of this module record themselves.

    Parameters
    ----------
    module : module
        ``vllm.v1.core.sched.scheduler``, imported.
    """
    cls = module.Scheduler
    original = cls.__init__
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        _record(self)

    setattr(__init__, _MARK, True)
    cls.__init__ = __init__


def _record(scheduler: Any) -> None:
    """Record a scheduler that is all built; without a recording, and after a fault, leave it as it is."""
    if not enabled():
        return
    try:
        pool = scheduler.kv_cache_manager.block_pool
        tokens = tokens_per_unit(scheduler.kv_cache_config.kv_cache_groups)
        recorder = SchedulerRecorder(
            "vllm",
            str(getattr(sys.modules["vllm"], "__version__", "")),
            config_of(scheduler),
            [PoolRow("kv", pool.num_gpu_blocks, 1, tokens)],
        )
        attach(scheduler, recorder, _say)
        _end_with_core()
    except Exception as e:
        _say(e)


def _end_with_core() -> None:
    """Let a core that has its process to itself end the recording before it takes itself down.

    That waits for its workers; after 5 s its parent kills it, and the recording would look cut off.
    """
    cls = getattr(sys.modules.get("vllm.v1.engine.core"), "EngineCoreProc", None)
    original = getattr(cls, "shutdown", None)
    if original is None or getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        stop()
        return original(self, *args, **kwargs)

    setattr(shutdown, _MARK, True)
    cls.shutdown = shutdown  # type: ignore[union-attr]


def _say(fault: Exception) -> None:
    say("vllm's", fault)
