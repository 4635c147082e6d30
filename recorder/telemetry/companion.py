"""The sampling thread that goes along with a recorded command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..outcome import Recording
from ..threads import start_without_signals
from .files import BYTES_MAX, SampleFile, write_description
from .nvml import METRICS, NoNvml, Nvml

__all__ = ["INTERVAL_MS", "Telemetry"]

INTERVAL_MS = 100
_SLOW_NS = 1_000_000_000
_LAST_S = 1.0
"""How long the end of a recording waits for a driver that does not answer."""


@dataclass(frozen=True)
class Telemetry:
    """Samples the devices while a command runs (a `Companion`).

    Attributes
    ----------
    interval_ms : int
        Time between two samples of a device.
    newest : bool
        Only the end of the run is wanted.
    limit_bytes : int
        What the samples may take.
    """

    interval_ms: int = INTERVAL_MS
    newest: bool = False
    limit_bytes: int = BYTES_MAX

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Sample until the context is left; what goes wrong ends the sampling, never the recording."""
        sampler = _Sampler(self, spool)
        sampler.start()
        try:
            yield {}
        finally:
            sampler.stop()


class _Sampler:
    def __init__(self, asked: Telemetry, spool: Path) -> None:
        self._asked = asked
        self._spool = spool
        self._stop = threading.Event()
        self._lock = threading.Lock()  # over what is written: nothing is, once the sampling has ended
        self._ended = False
        self._nvml: Nvml | None = None
        self._file: SampleFile | None = None
        self._said: list[str] = []
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        start_without_signals(self._thread)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_LAST_S)
        with self._lock:
            self._ended = True
            if self._thread.is_alive():  # inside a call to the driver, which nothing can end
                self._describe("NVML did not answer at the end of the run")
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._sample()
        except NoNvml as e:
            self._write(f"no NVML ({e})")
        except OSError as e:
            self._write(f"ended early: the samples could not be written ({e.strerror})")
        except Exception as e:  # of a driver or of its binding; the recording goes on
            self._write(f"ended early: {type(e).__name__}")

    def _sample(self) -> None:
        self._nvml = nvml = Nvml()
        with self._lock:
            if self._ended:
                return
            self._describe(*(["NVML knows no device"] * (not nvml.devices)))
            self._file = SampleFile(
                self._spool, len(METRICS), newest=self._asked.newest, limit_bytes=self._asked.limit_bytes
            )
        try:
            self._rounds(nvml)
        finally:
            nvml.close()

    def _rounds(self, nvml: Nvml) -> None:
        slow_at_ns = 0
        while True:
            last = self._stop.is_set()  # once more at the end: a short run has at least that sample
            begun_ns = time.monotonic_ns()
            slow = begun_ns >= slow_at_ns
            if slow:
                slow_at_ns = begun_ns + _SLOW_NS
            for index in range(len(nvml.devices)):
                if not self._take(index, slow):
                    return
            if last or all(d.gone for d in nvml.devices):
                return
            # A driver that takes its time is left alone for as long as it took.
            took_s = (time.monotonic_ns() - begun_ns) / 1e9
            self._stop.wait(max(self._interval_s() - took_s, took_s))

    def _interval_s(self) -> float:
        assert self._file is not None
        return self._asked.interval_ms / 1e3 * (1 << self._file.halvings)

    def _take(self, index: int, slow: bool) -> bool:
        assert self._nvml is not None
        assert self._file is not None
        device = self._nvml.devices[index]
        if device.gone:
            return True
        known = len(device.missing)
        at_ns = time.monotonic_ns()
        values = self._nvml.read(device, slow=slow)
        with self._lock:
            if self._ended:
                return False
            halvings = self._file.halvings
            self._file.add(at_ns, index, values)
            if device.gone or len(device.missing) > known or self._file.halvings > halvings:
                self._describe()
        return True

    # --- what is said ---

    def _write(self, note: str) -> None:
        with self._lock, suppress(OSError):
            if not self._ended:
                self._describe(note)

    def _describe(self, *notes: str) -> None:
        """Write the description, with the lock held."""
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
            every_ms = self._asked.interval_ms << self._file.halvings
            said.append(f"telemetry: thinned out to one sample in {every_ms} ms, so long was the run")
        description: dict[str, Any] = {
            "metrics": METRICS,
            "devices": [{"name": d.name, "bus": d.bus} for d in devices],
            "notes": said,
        }
        with suppress(OSError):
            write_description(self._spool, description)
