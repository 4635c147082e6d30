"""The sampling process that goes along with a recorded command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...formats.errors import TapedelayError
from ..files import REPORT_BYTES_MAX, read_regular
from ..outcome import Recording
from .files import BYTES_MAX, DESCRIPTION, write_description
from .nvml import METRICS
from .process import NO_ANSWER, NvmlProcess

__all__ = ["INTERVAL_MS", "Telemetry"]

INTERVAL_MS = 100
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
        words = [str(spool), str(self.interval_ms), str(int(self.newest)), str(self.limit_bytes)]
        try:
            process = NvmlProcess("sample", *words)
        except OSError as e:
            _note(spool, f"telemetry: the sampler could not be started ({e.strerror})")
            yield {}
            return
        try:
            yield {}
        finally:
            wrong, _ = process.end(_LAST_S)
            if wrong:
                at_the_end = " at the end of the run" * (wrong == NO_ANSWER)
                _note(spool, f"telemetry: NVML {wrong}{at_the_end}")


def _note(spool: Path, note: str) -> None:
    """Add to what a sampler said that has ended."""
    try:
        description = json.loads(read_regular(spool / DESCRIPTION, REPORT_BYTES_MAX))
    except (FileNotFoundError, TapedelayError, ValueError):
        description = {"metrics": METRICS, "devices": [], "notes": []}
    with suppress(OSError):
        write_description(spool, {**description, "notes": [*description["notes"], note]})
