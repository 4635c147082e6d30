"""The side of a benchmark that steps: one step for each line on stdin, as `turns` asks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["answer"]

_DEPTHS = 32


def answer(refill: Callable[[], int], each: int, step: Callable[[], object]) -> None:
    """Answer each line on stdin with the next step: its processor time in ms, and how many there were in all.

    A step runs below 0 to 31 more frames: where on the stack it runs alone moves a step of a Python scheduler
    by some percent, and with hooks it runs elsewhere than without. Over all depths that is levelled out.

    Parameters
    ----------
    refill : callable
        Replaces all requests, before the first step and after every `each`, and says how many steps it made.
    each : int
    step : callable
        Makes a step.
    """
    made = 0
    for number, _ in enumerate(sys.stdin):
        if number % each == 0:
            made += refill()
        begin = _below(number % _DEPTHS, time.process_time, step)
        made += 1
        print(1e3 * (time.process_time() - begin), made, flush=True)


def _below(frames: int, before: Callable[[], float], call: Callable[[], object]) -> float:
    if frames:
        return _below(frames - 1, before, call)
    begin = before()
    call()
    return begin
