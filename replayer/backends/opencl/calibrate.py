"""What a device's clock and its spin kernel are worth in host time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....formats.errors import ReplayFailed

__all__ = ["ClockMap", "Sample", "Spin", "calibrate_spin", "sample_clock"]

TARGET_NS = 400_000
"""Length of the spin that is measured: long against what starting it costs, short against a time slice of the
system, so that on a busy CPU some tries are not interrupted."""

TRIES = 24

MARGIN = 1.1
"""Spins are made longer by that: the clock of a CPU goes up and down, and a delay is no less than it says."""


@dataclass(frozen=True)
class Spin:
    """A kernel that takes a given time.

    Attributes
    ----------
    ns_per_round : float
        Of its loop, at the fastest that was seen; a device that is busy or runs slower takes longer.
    """

    ns_per_round: float

    def rounds(self, ns: int) -> int:
        """Return how many rounds last at least `ns`."""
        return max(1, int(ns * MARGIN / self.ns_per_round) + 1)

    def learned(self, took: Iterable[tuple[int, int]]) -> Spin:
        """Return it corrected by (rounds, ns) of spins that were faster."""
        seen = [ns / rounds for rounds, ns in took if ns >= TARGET_NS // 4]
        return Spin(min([self.ns_per_round, *seen]))


def calibrate_spin(cl: Any, queue: Any, kernel: Any) -> Spin:
    """Measure the spin kernel on a queue with profiling; its two arguments are a sink, set, and the rounds.

    Raises
    ------
    ReplayFailed
        The loop takes no time: a compiler has removed it.
    """

    def measure(rounds: int, tries: int) -> int:
        """Return the least of a few: what else runs on the machine only adds."""
        kernel.set_arg(1, np.uint64(rounds))
        took = []
        for _ in range(tries):
            event = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
            event.wait()
            took.append(int(event.profile.end) - int(event.profile.start))
        return min(took)

    rounds = 1000
    measure(rounds, 1)
    while (took := measure(rounds, 6)) < TARGET_NS // 4:
        if rounds > 1 << 40:
            raise ReplayFailed(
                "the spin kernel takes no time",
                expected="a loop that the device's compiler keeps",
                where="opencl",
                next_step="choose another device (TAPEDELAY_OPENCL)",
            )
        rounds *= max(2, min(64, TARGET_NS // max(took, 1)))
    return Spin(max(min(took, measure(rounds, TRIES)), 1) / rounds)


@dataclass(frozen=True, order=True)
class Sample:
    """A moment in both clocks, and how long the call took that noted it; the shorter, the better."""

    width_ns: int
    device_ns: int
    host_ns: int


@dataclass(frozen=True)
class ClockMap:
    """Device clock to host clock, a line through two samples.

    Attributes
    ----------
    device_ns, host_ns : int
        A moment in both clocks.
    rate : float
        Host nanoseconds per device nanosecond.
    error_ns : int
        Two moments of different clocks that are nearer to each other may have been the other way round.
    """

    device_ns: int
    host_ns: int
    rate: float = 1.0
    error_ns: int = 0

    @staticmethod
    def through(a: Sample, b: Sample) -> ClockMap:
        """Return the line through two samples; rate 1 where they are too near each other."""
        apart = b.device_ns - a.device_ns
        rate = (b.host_ns - a.host_ns) / apart if apart > 50_000_000 else 1.0
        return ClockMap(
            a.device_ns, a.host_ns, rate if 0.999 < rate < 1.001 else 1.0, max(a.width_ns, b.width_ns)
        )

    def host(self, device_ns: int) -> int:
        """Return a moment of the device clock in host time."""
        return self.host_ns + round((device_ns - self.device_ns) * self.rate)


def sample_clock(cl: Any, queue: Any) -> Sample:
    """Return a moment in device and host time: the tightest of a few enqueues, which the driver times."""
    found = []
    for _ in range(16):
        before = time.perf_counter_ns()
        event = cl.enqueue_marker(queue)
        after = time.perf_counter_ns()
        queue.flush()
        event.wait()
        found.append(Sample(after - before, int(event.profile.queued), (before + after) // 2))
    return min(found)
