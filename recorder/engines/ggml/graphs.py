"""Tables ``graphs`` and ``nodes``: the graphs that the schedulers of all processes received."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....formats.builder import TapeBuilder
from ....formats.schema import SCHEMAS
from .definitions import DeviceType, Spool
from .joins import Ints
from .layout import NO_BUFFER, NONE, USAGES
from .places import Places
from .rows import OpRows
from .steps import Steps

__all__ = ["GraphTables"]

_INPUT, _OUTPUT = 1, 2
_NO_SOURCE = -2
_UNKNOWN_OP = "unknown"
_WEIGHTS = USAGES.index("weights")


class GraphTables:
    """Collects the graphs of one process after another.

    Parameters
    ----------
    builder : TapeBuilder
        Where rows of ``graphs`` go; ``nodes`` may be many and are kept as columns.
    """

    def __init__(self, builder: TapeBuilder) -> None:
        self._builder = builder
        self._nodes: list[pa.Table] = []
        self._first: list[tuple[dict[str, Any], int]] = []

    def add(self, spool: Spool, places: Places, process: int, steps: Steps, positions: Ints) -> int:
        """Add the graphs of a process; return the id of its first one."""
        base = len(self._builder.rows("graphs"))
        first_calls = steps.first_calls()
        for index, graph in enumerate(spool.graphs):
            sched = spool.scheds[graph.sched]
            call = first_calls.get(index)
            devices = [places.devices[d] for d in sched.devices if d != NONE]
            written = [] if call is None else steps.inputs_written(call)
            row = self._builder.add(
                "graphs",
                graph=base + index,
                process=process,
                uid=None if call is None else int(spool.records["a"][call]) or None,
                n_nodes=graph.n_nodes,
                n_leafs=graph.n_leafs,
                n_copies=sched.copies,
                op_offload=sched.op_offload,
                backend_order=devices if len(devices) == len(sched.devices) else None,
                buffer_types=list(sched.buffer_types),
                input_order=written or None,
            )
            compute = None if call is None else steps.first_compute(call)
            if compute is not None:
                self._first.append((row, int(positions[compute])))
        if spool.graphs:
            self._nodes.append(_nodes(base, spool, places))
        return base

    def finish(self, rows: OpRows) -> dict[str, pa.Table]:
        """Return the table of nodes, if there are any, and name the first op of each graph in its row."""
        for row, position in self._first:
            row["first_op"] = rows.number_at(position)
        return {"nodes": pa.concat_tables(self._nodes).unify_dictionaries()} if self._nodes else {}


def _nodes(base: int, spool: Spool, places: Places) -> pa.Table:
    """Return the nodes of all graphs of a process, whose first one has the id `base`."""
    rows = np.concatenate([g.rows for g in spool.graphs])
    sizes = np.array([len(g.rows) for g in spool.graphs])
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    names = pa.array(spool.names, pa.string())
    view = rows["view_source"]
    flags = rows["flags"]
    values = {
        "graph": base + np.repeat(np.arange(len(sizes)), sizes),
        "node": np.arange(len(rows)) - starts,
        "name": _texts(names, rows["name"]),
        "op": _texts(names, rows["op"]).fill_null(_UNKNOWN_OP),
        "op_params": _parameters(rows),
        "dtype": _texts(names, rows["type"]).fill_null(_UNKNOWN_OP),
        "shape": _fixed(rows["shape"].astype(np.int64)),
        "strides": _fixed(rows["strides"].astype(np.int64)),
        "sources": _sources(rows["sources"]),
        "view_source": pa.array(view, mask=view == _NO_SOURCE),
        "view_offset": pa.array(rows["view_offset"].astype(np.int64), mask=view == _NO_SOURCE),
        "flags": flags,
        "buffer_usage": _usages(rows["usage"]),
        "buffer_kind": _kinds(rows, spool),
        "user_backend": _users(rows["user_device"], places),
        "is_input": (flags & _INPUT) != 0,
        "is_output": (flags & _OUTPUT) != 0,
    }
    arrays = []
    for field in SCHEMAS["nodes"]:
        value = values[field.name]
        array = value if isinstance(value, pa.Array) else pa.array(value)
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        arrays.append(array.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMAS["nodes"])


def _texts(names: pa.Array, ids: npt.NDArray[Any]) -> pa.Array:
    return names.take(pa.array(ids.astype(np.int64), mask=ids == NONE))


def _parameters(rows: npt.NDArray[Any]) -> pa.Array:
    values = rows["op_params"]
    width = values.dtype.itemsize * values.shape[1]
    plain = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(rows), [None, pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    )
    known = pa.array(rows["has_params"] != 0)
    return pc.if_else(known, plain.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _fixed(values: npt.NDArray[np.int64]) -> pa.Array:
    n, width = values.shape
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(values).reshape(-1)))


def _sources(values: npt.NDArray[np.int32]) -> pa.Array:
    """Return the sources up to the last that is set; a place left empty before it is null."""
    there = values != _NO_SOURCE
    width = values.shape[1]
    length = np.where(there.any(1), width - there[:, ::-1].argmax(1), 0)
    kept = np.arange(width) < length[:, None]
    flat = values[kept]
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, pa.int32(), mask=flat == _NO_SOURCE))


def _usages(usage: npt.NDArray[np.uint8]) -> pa.Array:
    there = usage != NO_BUFFER
    return pa.array(USAGES).take(pa.array(np.where(there, usage, 0), mask=~there))


def _kinds(rows: npt.NDArray[Any], spool: Spool) -> pa.Array:
    """Return kinds of memory, by the words of table ``buffers``."""
    # Memory without a device is the host's.
    types = np.array([*(d.type for d in spool.devices), DeviceType.CPU])
    device = np.where(rows["buffer_device"] == NONE, len(types) - 1, rows["buffer_device"])
    kind = types[device]
    words = np.full(len(rows), "device", object)
    words[kind == DeviceType.META] = "other"
    host = rows["host"] != 0
    words[host] = "pinned"
    words[host & (kind == DeviceType.CPU)] = "host"
    words[rows["usage"] == _WEIGHTS] = "weights"
    words[rows["usage"] == NO_BUFFER] = None
    return pa.array(words, pa.string())


def _users(devices: npt.NDArray[np.uint32], places: Places) -> pa.Array:
    table = np.array([*places.devices, 0], np.int32)
    none = devices == NONE
    return pa.array(table[np.where(none, len(table) - 1, devices)], mask=none)
