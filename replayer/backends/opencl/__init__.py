"""OpenCL: the protocol on a real asynchronous runtime, on a GPU or, with PoCL, on the CPU.

Every queue of the tape is a command queue and every host thread a thread; edges are wait lists of events.
Ops digest what they read and stamp what they write, on the device, so that a missing edge shows as another
value and not as another time. Importing this needs no OpenCL; loading a program does.
"""

from __future__ import annotations

from .backend import LoadedOpenCL, OpenCLBackend

__all__ = ["LoadedOpenCL", "OpenCLBackend"]
