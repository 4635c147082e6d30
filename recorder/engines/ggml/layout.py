"""The layout of a spool's files (``native/spool.h``; a test compares the two)."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

__all__ = [
    "ACCESS",
    "COMMIT",
    "GRAPH_NODE",
    "HEADER",
    "MAGIC",
    "MODES",
    "NONE",
    "NO_BUFFER",
    "NO_QUEUE",
    "RECORD",
    "RING_HEADER",
    "RING_MAGIC",
    "RING_WINDOW",
    "RING_WINDOW_BYTES",
    "SEGMENT_BYTES_MAX",
    "SPOOL_VERSION",
    "USAGES",
    "AccessFlag",
    "BufferFlag",
    "Def",
    "EventFlag",
    "Flag",
    "HeaderFlag",
    "Kind",
    "SchedFlag",
    "Stop",
]

MAGIC = 0x304C4F4F50534454
SPOOL_VERSION = 0
COMMIT = 0x7AD0C0DE
NONE = 0xFFFFFFFF
NO_QUEUE = 0xFFFF

HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("record_bytes", "<u4"),
        ("mono_ns", "<u8"),
        ("wall_ns", "<u8"),
        ("pid", "<u4"),
        ("flags", "<u4"),
        ("lost", "<u8"),
        ("boot", "<u8"),
        ("why", "<u4"),
        ("error", "<u4"),
    ]
)
RECORD = np.dtype(
    [
        ("issue_ns", "<u8"),
        ("end_ns", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("c", "<u8"),
        ("d", "<u4"),
        ("e", "<u4"),
        ("name", "<u4"),
        ("thread", "<u4"),
        ("queue", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("commit", "<u4"),
    ]
)
RING_MAGIC = 0x30474E4952445444
RING_WINDOW_BYTES = 1 << 20
SEGMENT_BYTES_MAX = 8 << 20
RING_HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("segment_bytes", "<u8"),
        ("records", "<u8"),
        ("ns", "<u8"),
        ("current", "<u8"),
        ("reserved", "<u8", (3,)),
    ]
)
RING_WINDOW = np.dtype([("first_slot", "<u8"), ("dropped", "<u8"), ("lost", "<u8"), ("kept", "<u8")])
ACCESS = np.dtype(
    [
        ("buffer", "<u4"),
        ("name", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("mode", "u1"),
        ("flags", "u1"),
        ("reserved", "<u2"),
        ("node", "<u4"),
    ]
)
NO_BUFFER = 0xFF
GRAPH_NODE = np.dtype(
    [
        ("shape", "<i8", (4,)),
        ("strides", "<u8", (4,)),
        ("view_offset", "<u8"),
        ("sources", "<i4", (10,)),
        ("view_source", "<i4"),
        ("name", "<u4"),
        ("op", "<u4"),
        ("type", "<u4"),
        ("flags", "<i4"),
        ("buffer_device", "<u4"),
        ("user_device", "<u4"),
        ("op_params", "<i4", (16,)),
        ("usage", "u1"),
        ("host", "u1"),
        ("has_params", "u1"),
        ("reserved", "u1", (9,)),
    ]
)
USAGES = ("any", "weights", "compute")
"""``ggml_backend_buffer_usage``"""
MODES = ("read", "write", "update", "may_write", "reduce")


class Kind(IntEnum):
    """Kinds of records, ``kind_t``."""

    NONE = 0
    COMPUTE = 1
    COPY = 2
    SET = 3
    GET = 4
    MEMSET = 5
    CLEAR = 6
    EVENT_RECORD = 7
    EVENT_WAIT = 8
    EVENT_SYNC = 9
    SYNC = 10
    BUFFER_ALLOC = 11
    BUFFER_FREE = 12
    EVENT_FREE = 13
    QUEUE_INIT = 14
    QUEUE_FREE = 15
    EXEC = 16
    SPLIT_COPY_WAIT = 17
    DELAY = 18
    GAP = 19
    SCHED_COMPUTE = 20
    SCHED_ALLOC = 21
    SCHED_RESET = 22


class Flag(IntFlag):
    """Flags of a record, ``F_*``."""

    HOST = 1
    FOREIGN = 2
    FAILED = 4
    META = 8
    CHILD = 16
    SPAN = 32


class HeaderFlag(IntFlag):
    """Flags of the header, ``HDR_*``."""

    ENDED = 1
    FAILED = 2


class Stop(IntEnum):
    """What ended a recording early, ``STOP_*``."""

    RECORDS = 1
    DEFINITIONS = 2
    FILE = 3
    MEMORY = 4
    THREAD = 5
    FORK = 6


class Def(IntEnum):
    """Types of definition frames, ``def_t``."""

    PROCESS = 1
    THREAD = 2
    DEVICE = 3
    QUEUE = 4
    BUFFER = 5
    EVENT = 6
    NAME = 7
    SET = 8
    SWITCH = 9
    NOTE = 10
    GRAPH = 11
    SCHED = 12
    FILLER = 13
    TAP = 14


class AccessFlag(IntFlag):
    """Flags of an access: a leaf flagged as input, any leaf, a span that is wider than the view."""

    INPUT = 1
    LEAF = 2
    WIDE = 4


class BufferFlag(IntFlag):
    """Flags of a buffer."""

    HOST = 1
    WEIGHTS = 2
    LATE = 4


class SchedFlag(IntFlag):
    """Flags of a scheduler; seen late: whether it is parallel and may offload ops is not known."""

    PARALLEL = 1
    OFFLOADS = 2
    LATE = 4


class EventFlag(IntFlag):
    """Flags of an event: seen late, so that it was perhaps recorded before the recorder came."""

    LATE = 1
