"""The tables of a tape as Arrow schemas: the one place where a column is defined.

``formats/SPEC.md`` says the same in words and is normative; a test compares the two.
Enumerations are dictionary columns (``dictionary<int8, string>``); ids are dense row numbers unless said
otherwise; every column carries ``unit`` and ``doc`` in its field metadata. The definitions themselves stand
in ``formats/tables/``.
"""

from __future__ import annotations

import pyarrow as pa

from .requests.words import ANSWER_WORDS, BLOCK_ACTIONS, DECISION_KINDS, INPUT_KINDS
from .tables import device as d
from .tables import requests as r
from .tables.column import Column, Table, enum
from .tables.device import (
    ACCESS_MODES,
    ACCESS_ORIGINS,
    BUFFER_KINDS,
    COVERAGE,
    DELAY_PLACES,
    DEVICE_KINDS,
    EDGE_KINDS,
    OP_KINDS,
    QUEUE_KINDS,
    SYNC_KINDS,
    SYNC_TARGETS,
    WAIT_STATES,
)

__all__ = [
    "ACCESS_MODES",
    "ACCESS_ORIGINS",
    "ANSWER_WORDS",
    "BLOCK_ACTIONS",
    "BUFFER_KINDS",
    "COVERAGE",
    "DECISION_KINDS",
    "DELAY_PLACES",
    "DEVICE_KINDS",
    "EDGE_KINDS",
    "FORMAT_READ",
    "FORMAT_WRITE",
    "INPUT_KINDS",
    "OP_KINDS",
    "QUEUE_KINDS",
    "REQUIRED",
    "SCHEMAS",
    "SYNC_KINDS",
    "SYNC_TARGETS",
    "TABLES",
    "WAIT_STATES",
    "Column",
    "Table",
    "enum",
]

FORMAT_WRITE = 0
"""Version of the writer. A reader that does not know it opens the tape read-only."""
FORMAT_READ = 0
"""Lowest reader version that understands the tape. A reader that does not know it refuses."""

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        d.DEVICES, d.QUEUES, d.SYNCS, d.BUFFERS, d.ACCESSES, d.OPS, d.EDGES, d.LISTS, d.GRAPHS, d.NODES,
        r.SCHEDULERS, r.POOLS, r.REQUESTS, r.PREFIXES, r.INPUTS, r.ANSWERS, r.DECISIONS, r.BLOCKS,
        r.RESOURCES, d.DELAYS, d.TELEMETRY,
    )
}  # fmt: skip
REQUIRED = ("devices", "queues", "buffers", "accesses", "ops")
"""Tables that every tape has, even when they are empty."""
SCHEMAS: dict[str, pa.Schema] = {name: t.schema() for name, t in TABLES.items()}
