"""What runs in the sampler's own process, where a driver's library may crash or hang. Imports are light.

The process ends when the other end of its standard input is closed, and is killed with its parent. It ends
with `DONE`, which is not what a library that calls ``exit`` ends it with.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .files import SampleFile, write_description
from .nvml import METRICS, NoNvml, Nvml

__all__ = ["DONE", "look", "sample"]

DONE = 87
_SLOW_NS = 1_000_000_000
_PR_SET_PDEATHSIG = 1


def sample() -> None:
    """Sample until the standard input ends.

    The arguments are the parent's process id, the spool, milliseconds between two samples, 1 if only the
    newest ones are wanted, and the bytes that they may take.
    """
    parent, spool, interval_ms, newest, limit_bytes = sys.argv[1:]
    _die_with(int(parent))
    _Sampler(Path(spool), int(interval_ms), newest == "1", int(limit_bytes)).run()
    os._exit(DONE)  # what the library does at a regular exit is of no use to anybody


def look() -> None:
    """Ask each device once and write what was found to the standard output, as JSON.

    The argument is the parent's process id. The answer has ``no_nvml`` (a reason) or ``devices``, a list of
    ``gone`` (a reason or empty) and ``missing`` (names of metrics).
    """
    _die_with(int(sys.argv[1]))
    answer = os.dup(1)  # the library may print, too
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    found: dict[str, Any]
    try:
        nvml = Nvml()
        for device in nvml.devices:
            nvml.read(device)
        found = {"devices": [{"gone": d.gone, "missing": list(d.missing)} for d in nvml.devices]}
        nvml.close()
    except NoNvml as e:
        found = {"no_nvml": str(e)}
    os.write(answer, json.dumps(found).encode())
    os._exit(DONE)


def _die_with(parent: int) -> None:
    """Be killed when the parent dies: a library that hangs may never let us see our input end."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(DONE)


class _Sampler:
    def __init__(self, spool: Path, interval_ms: int, newest: bool, limit_bytes: int) -> None:
        self._spool = spool
        self._interval_ms = interval_ms
        self._newest = newest
        self._limit_bytes = limit_bytes
        self._nvml: Nvml | None = None
        self._file: SampleFile | None = None
        self._said: list[str] = []

    def run(self) -> None:
        try:
            self._sample()
        except NoNvml as e:
            self._describe(f"no NVML ({e})")
        except OSError as e:
            self._describe(f"ended early: the samples could not be written ({e.strerror})")
        except Exception as e:  # of a driver or of its binding
            self._describe(f"ended early: {type(e).__name__}")

    def _sample(self) -> None:
        self._nvml = nvml = Nvml()
        self._describe(*(["NVML knows no device"] * (not nvml.devices)))
        self._file = SampleFile(self._spool, len(METRICS), newest=self._newest, limit_bytes=self._limit_bytes)
        try:
            self._rounds(nvml, self._file)
        finally:
            nvml.close()

    def _rounds(self, nvml: Nvml, file: SampleFile) -> None:
        end = select.poll()
        end.register(0, select.POLLIN | select.POLLHUP)
        last = False
        slow_at_ns = 0
        while True:
            begun_ns = time.monotonic_ns()
            slow = begun_ns >= slow_at_ns
            if slow:
                slow_at_ns = begun_ns + _SLOW_NS
            for index in range(len(nvml.devices)):
                self._take(nvml, file, index, slow)
            if last or all(d.gone for d in nvml.devices):
                return
            # A driver that takes its time is left alone for as long as it took.
            took_ms = (time.monotonic_ns() - begun_ns) / 1e6
            interval_ms = self._interval_ms << file.halvings
            last = bool(end.poll(max(interval_ms - took_ms, took_ms)))  # and once more at the end

    def _take(self, nvml: Nvml, file: SampleFile, index: int, slow: bool) -> None:
        device = nvml.devices[index]
        if device.gone:
            return
        known = len(device.missing)
        halvings = file.halvings
        at_ns = time.monotonic_ns()
        file.add(at_ns, index, nvml.read(device, slow=slow))
        if device.gone or len(device.missing) > known or file.halvings > halvings:
            self._describe()

    def _describe(self, *notes: str) -> None:
        self._said += notes
        devices = self._nvml.devices if self._nvml else []
        said = [f"telemetry: {n}" for n in self._said]
        for i, d in enumerate(devices):
            missing = [n for n, _ in METRICS if n in d.missing]
            if missing:
                why = "; ".join(sorted(set(d.missing.values())))
                said.append(f"telemetry: nvml{i} does not tell {', '.join(missing)} ({why})")
            if d.gone:
                said.append(f"telemetry: nvml{i} stopped answering ({d.gone})")
        if self._file is not None and self._file.halvings:
            every_ms = self._interval_ms << self._file.halvings
            said.append(f"telemetry: thinned out to one sample in {every_ms} ms, so long was the run")
        description: dict[str, Any] = {
            "metrics": METRICS,
            "devices": [{"name": d.name, "bus": d.bus} for d in devices],
            "notes": said,
        }
        with suppress(OSError):
            write_description(self._spool, description)
