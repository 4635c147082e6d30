"""What a backend is: it loads a program once and runs it many times, each time with other delays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...formats.delays.resolved import Delays
from ..outcome import Outcome

if TYPE_CHECKING:  # a program can name an interleaving of its own
    from ..program import Program

__all__ = ["Backend", "Capabilities", "Loaded", "Options", "Pin"]


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do; what it cannot do it refuses with `Unsupported`.

    Attributes
    ----------
    name : str
        The backend's name.
    real_time : bool
        Ops take real time; false: virtual time, a run costs no more than computing it.
    deterministic : bool
        Two runs of one program with the same delays are equal, times included.
    values : bool
        It judges reads.
    timing_only : bool
        It can leave the values out.
    pin : bool
        It can enforce an interleaving.
    torn : bool
        It sees a write that goes on during a read.
    out_of_order : bool
        It runs queues that are not in order.
    before_issue, before_start, after_end : bool
        Where it can delay.
    lifetimes : bool
        It sees the use of memory or sync objects outside of their life.
    resolution_ns : int
        Delays shorter than that have no reliable effect; 1 in virtual time.
    max_ops : int or None
        More are refused.
    max_real_bytes : int or None
        Where ops touch more bytes in all, memory is scaled down also without `Options.compact`; notes of the
        outcome say so, as where the backend does it for another reason.
    """

    name: str
    real_time: bool = False
    deterministic: bool = False
    values: bool = True
    timing_only: bool = False
    pin: bool = False
    torn: bool = True
    out_of_order: bool = True
    before_issue: bool = True
    before_start: bool = True
    after_end: bool = True
    lifetimes: bool = True
    resolution_ns: int = 1
    max_ops: int | None = None
    max_real_bytes: int | None = None


@dataclass(frozen=True)
class Options:
    """How to run; a backend ignores what means nothing to it.

    Attributes
    ----------
    values : bool
        Judge the reads.
    time_scale : float
        Factor on recorded times (durations and host gaps, not delays) of a backend in real time.
    compact : bool
        Scale real memory down: every range that ops tell apart keeps a few bytes (see `layout`). Without it
        memory is as large as recorded, and a tape that needs more than the backend has is refused.
    wrong_limit : int
        How many wrong reads are told; what comes out of earlier ones is left out first.
    timeout_s : float
        After so long without an op that ends, a run in real time is given up as stuck.
    """

    values: bool = True
    time_scale: float = 1.0
    compact: bool = False
    wrong_limit: int = 10_000
    timeout_s: float = 20.0


@dataclass(frozen=True)
class Pin:
    """An interleaving to be enforced by extra waits.

    Attributes
    ----------
    schedule : numpy.ndarray of int32, shape (2 * units,)
        ``u`` where unit u starts and ``~u`` where it ends, for every unit, also those without duration: the
        order of events of a virtual run (`Program.interleaving`).
    """

    schedule: npt.NDArray[np.int32]


@runtime_checkable
class Loaded(Protocol):
    """A program on a backend."""

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        """Run it once.

        Raises
        ------
        Unsupported
            The backend cannot do that.
        ReplayFailed
            The runtime below it failed.
        """
        ...

    def close(self) -> None:
        """Give back threads, memory and devices; calling it twice does nothing."""
        ...


@runtime_checkable
class Backend(Protocol):
    """A place where programs run; found under the entry-point group ``tapedelay.backends``."""

    def capabilities(self) -> Capabilities:
        """Return what it can do; cheap, needs no device."""
        ...

    def available(self) -> str:
        """Return an empty string, or why it cannot run on this machine, in words."""
        ...

    def load(self, program: Program, options: Options) -> Loaded:
        """Make a program ready to run.

        Raises
        ------
        Unsupported
            The program needs what the backend cannot do.
        """
        ...
