"""The OpenCL backend for tests; a skip says why it cannot run here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.opencl import LoadedOpenCL, OpenCLBackend
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.program import Program

__all__ = ["backend", "loaded"]


def backend() -> OpenCLBackend:
    """Return the backend; skip where there is no OpenCL."""
    found = OpenCLBackend()
    why = found.available()
    if why:
        pytest.skip(f"opencl: {why}")
    return found


@contextmanager
def loaded(tape: Tape, options: Options | None = None) -> Iterator[tuple[Program, LoadedOpenCL]]:
    """Give a tape, loaded."""
    program = Program.from_tape(tape)
    run = backend().load(program, options or Options())
    try:
        yield program, run
    finally:
        run.close()
