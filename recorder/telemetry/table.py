"""Samples of a spool to rows of a tape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.errors import SpoolError
from ...formats.schema import SCHEMAS
from ...formats.tape import Tape
from ..files import REPORT_BYTES_MAX, read_regular
from .files import BYTES_MAX, DESCRIPTION, SAMPLES

__all__ = ["Place", "Samples", "read_samples", "with_telemetry"]


@dataclass(frozen=True)
class Place:
    """A device of the tape, as the engine describes it.

    Attributes
    ----------
    device : int
        Its id on the tape.
    nvidia : bool
        It is one of CUDA's.
    bus : str
        PCI bus id as the engine tells it; empty if it does not.
    """

    device: int
    nvidia: bool = False
    bus: str = ""


@dataclass
class Samples:
    """What lies in a spool.

    Attributes
    ----------
    metrics : list of (str, str)
        Names and units.
    buses : list of str
        PCI bus id of each device.
    notes : list of str
        What the sampler had to say.
    at_ns, device : numpy.ndarray of int64, shape (rows,)
        CLOCK_MONOTONIC, and an index into `buses`.
    values : numpy.ndarray of float64, shape (rows, metrics)
        Not-a-number where it is not known.
    """

    metrics: list[tuple[str, str]] = field(default_factory=list)
    buses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    at_ns: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    device: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    values: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))


def read_samples(directory: Path) -> Samples:
    """Return the samples of a spool; none where nobody sampled.

    Raises
    ------
    SpoolError
        The files are not what a sampler writes.
    """
    try:
        said = json.loads(read_regular(directory / DESCRIPTION, REPORT_BYTES_MAX))
        found = Samples(
            [(_word(name), _word(unit)) for name, unit in said["metrics"]],
            [_word(d["bus"]) for d in said["devices"]],
            [_word(n) for n in said["notes"]],
        )
    except FileNotFoundError:
        return Samples()
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(DESCRIPTION) from None
    row = np.dtype([("at_ns", "<i8"), ("device", "<i8"), ("values", "<f8", (len(found.metrics),))])
    try:
        data = read_regular(directory / SAMPLES, BYTES_MAX + row.itemsize)
    except FileNotFoundError:
        data = b""
    rows = np.frombuffer(data, row, len(data) // row.itemsize)
    if len(rows) and (rows["device"].min() < 0 or rows["device"].max() >= len(found.buses)):
        raise _damaged(SAMPLES)
    found.at_ns, found.device, found.values = rows["at_ns"], rows["device"], rows["values"]
    return found


def with_telemetry(tape: Tape, directory: Path, places: Sequence[Place], shift_ns: int | None) -> Tape:
    """Return a tape with the samples of its spool, if there are any.

    Parameters
    ----------
    tape : Tape
        The tape.
    directory : Path
        The spool.
    places : sequence of Place
        Devices of the tape that NVML may know, the first process's first.
    shift_ns : int or None
        Added to CLOCK_MONOTONIC gives times since the tape's origin; None: nothing was recorded.

    Raises
    ------
    SpoolError
        The files are not what a sampler writes.
    """
    found = read_samples(directory)
    if found.notes:
        tape.manifest = replace(tape.manifest, notes=(*tape.manifest.notes, *found.notes))
    if shift_ns is None or not found.values.size:
        return tape
    tables = {n: tape.table(n) for n in tape.present} | {"telemetry": _table(found, places, shift_ns)}
    return Tape(tape.manifest, tables, name=tape.name)


def _table(found: Samples, places: Sequence[Place], shift_ns: int) -> pa.Table:
    at_ns = found.at_ns + shift_ns
    device_of = _devices(found.buses, places)
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    metrics: list[str] = []
    units: list[str] = []
    for index, place in enumerate(device_of):
        # What was before the first record, of the program's start or of what a ring has dropped, is not told.
        mine = (found.device == index) & (at_ns >= 0)
        for column, (name, unit) in enumerate(found.metrics):
            rows = np.flatnonzero(mine & np.isfinite(found.values[:, column]))
            device = np.full(len(rows), -1 if place is None else place)
            number = np.full(len(rows), len(metrics))
            parts.append((at_ns[rows], device, number, found.values[rows, column]))
            metrics.append(name if place is not None else f"nvml{index}.{name}")
            units.append(unit)
    at, device, number, value = (np.concatenate([p[i] for p in parts]) for i in range(4))
    order = np.lexsort((number, at))
    columns = {
        "at_ns": pa.array(at[order]),
        "device": pa.array(device[order], pa.int32(), mask=device[order] < 0),
        "metric": _words(metrics, number[order]),
        "value": pa.array(value[order]),
        "unit": _words(units, number[order]),
    }
    schema = SCHEMAS["telemetry"]
    return pa.Table.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)


def _words(words: list[str], number: npt.NDArray[Any]) -> pa.Array:
    """Return the words by number as a dictionary without doubles."""
    distinct = sorted(set(words))
    code = np.array([distinct.index(w) for w in words], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code[number]), pa.array(distinct, pa.string()))


def _devices(buses: Sequence[str], places: Sequence[Place]) -> list[int | None]:
    """Return which device of the tape each of NVML's is, where that is certain."""
    known = {bus: p.device for p in reversed(places) if (bus := _bus(p.bus))}
    of: list[int | None] = [known.get(_bus(b)) for b in buses]
    # CUDA has its own order of devices, and NVML knows those that are hidden from it: only one is certain.
    if len(buses) == 1 and of[0] is None:
        of[0] = next((p.device for p in places if p.nvidia and not _bus(p.bus)), None)
    return of


def _bus(text: str) -> tuple[int, ...]:
    """Return a PCI bus id as numbers: one writes the domain with 4 digits, another with 8."""
    try:
        domain, bus, rest = text.split(":")
        device, _, function = rest.partition(".")
        return tuple(int(n, 16) for n in (domain, bus, device, function or "0"))
    except ValueError:
        return ()


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate, which JSON can spell, is no text
    return value[:500]


def _damaged(name: str) -> SpoolError:
    return SpoolError(
        "not what a sampler writes",
        expected="a description of devices and metrics, and rows of those",
        where=name,
        next_step="record again; this spool is damaged",
    )
