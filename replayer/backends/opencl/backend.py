"""The backend: programs on OpenCL command queues."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....formats.delays.resolved import Delays
from ....formats.errors import ReplayFailed, Unsupported
from ...layout import WORD_BYTES
from ...outcome import Outcome
from ...program import Program, checked
from ..protocol import Capabilities, Options, Pin
from .graph import lay_out
from .judge import Judge
from .lives import Lives
from .meetings import Meetings, meetings
from .memory import map_memory
from .platform import choose, why_not
from .run import Trace, run_once
from .session import open_session
from .timing import Timing

__all__ = ["MAX_OPS", "LoadedOpenCL", "OpenCLBackend"]

MAX_OPS = 200_000

REAL_LIMIT_BYTES = 1 << 20
"""Ops that touch more than that in all run in memory that is scaled down: it is looked at byte by byte, which
takes up to 0.2 us each, and 5 us in a wrong read."""

NAME = "opencl"

RESOLUTION_NS = 500_000
"""A launch, and the sleep of a host thread, on a busy machine."""


class OpenCLBackend:
    """Runs programs on the command queues of an OpenCL device.

    All devices of a tape are one OpenCL device; each queue of the tape is a command queue of its own, each
    host thread a thread of this process.
    """

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(
            NAME,
            real_time=True,
            pin=True,
            resolution_ns=RESOLUTION_NS,
            max_ops=MAX_OPS,
            max_real_bytes=REAL_LIMIT_BYTES,
        )

    def available(self) -> str:
        """Return an empty string, or why it cannot run here."""
        return why_not()

    def load(self, program: Program, options: Options) -> LoadedOpenCL:
        """Put a program onto the device and run it once in reference order.

        Raises
        ------
        Unsupported
            No device; the program is too large for it, or needs queues that it does not have.
        ReplayFailed
            The runtime failed.
        """
        return LoadedOpenCL(program, options)


class LoadedOpenCL:
    """A program on the device."""

    def __init__(self, program: Program, options: Options) -> None:
        if program.rows > MAX_OPS:
            raise Unsupported(
                f"{program.rows:,} ops",
                expected=f"at most {MAX_OPS:,} on {NAME}",
                where=program.tape.where,
                next_step="replay fewer ops (`--ops a:b`), or on the virtual backend",
            )
        self.program, self.options = program, options
        self.device = choose()
        self.graph = lay_out(program)
        self.too_real = "" if options.compact else _too_real(program)
        self.compact = options.compact or bool(self.too_real)
        self.memory = map_memory(program, self.graph, compact=self.compact)
        self.session = open_session(self.device, self.graph, self.memory, program.tape.where)
        self._closed = False
        try:
            reference = self._run(Delays.of(), np.array(self.graph.nodes(), np.int32), reference=True)
            lives = Lives(program, self.graph, self.memory)
            self.judge = Judge(self.graph, self.memory, lives, reference, self.device.name)
        except BaseException:
            self.close()
            raise

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        """Run it once.

        Raises
        ------
        ReplayFailed
            The runtime failed, or nothing went on for `Options.timeout_s`.
        UsageError
            The interleaving or a delay is of another program.
        """
        if self._closed:
            raise ReplayFailed("the program is closed", where=NAME, next_step="load it again")
        checked(self.program, delays)
        trace = self._run(delays, pin.schedule if pin is not None else None)
        return self.judge.outcome(trace, self.options.wrong_limit, self._notes())

    def close(self) -> None:
        """Give everything back; calling it twice does nothing."""
        self._closed = True
        self.session.close()

    def _run(self, delays: Delays, pin: npt.NDArray[np.int32] | None, *, reference: bool = False) -> Trace:
        if self.session.broken:
            raise ReplayFailed(
                "commands of an earlier run that was given up have not ended",
                where=self.device.name,
                next_step="load the program again, in a new process if that does not help",
            )
        timing = Timing(self.program, self.graph, delays, self.options.time_scale, pin)
        # The reference runs units one by one: what happens inside of one with parts meets nothing.
        alone = pin is None or reference
        met = Meetings() if alone else meetings(timing.place, self.graph, self.memory)
        return run_once(self.session, self.program, self.graph, timing, met, self.options.timeout_s)

    def _notes(self) -> tuple[str, ...]:
        notes = [f"on {self.device.name}, up to {self.device.workers} commands at once"]
        if any(a.stage >= 0 for a in self.memory.all):
            notes.append("device ops touch host memory through staged copies")
        if self.too_real:
            notes.append(f"memory scaled down: {self.too_real}")
        return (*self.program.notes, *notes)


def _too_real(program: Program) -> str:
    """Return why memory as recorded is not to be had here, in words; an empty string if it is."""
    _, _, begin, end, _, _ = program.core.accesses()
    touched = int((end - begin).sum(dtype=np.float64))
    if touched > REAL_LIMIT_BYTES:
        return f"ops touch {touched:,} bytes, as recorded up to {REAL_LIMIT_BYTES:,}"
    if ((begin | end) % WORD_BYTES).any():  # what is torn is told by words
        return f"ranges that are no whole words of {WORD_BYTES} bytes"
    return ""
