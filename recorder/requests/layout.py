"""How the raw recording of a request scheduler is laid out: one file per process.

A header, then frames: u32 length, u32 CRC-32, and so many bytes of msgpack. Numbers are little-endian.

| frame | fields |
|---|---|
| ``[0, scheduler, engine, version, config, pools]`` | a scheduler; pools are ``[name, units, reserved, tokens_per_unit]`` |
| ``[1, scheduler, kind, at_ns, request, requests, step, tokens, decode_only, value, word, arrive_ns, new, prefixes, events, resources]`` | an input with all that it caused |

``new`` are ``[request, after, prompt_tokens, max_tokens, priority, flags, reserve_tokens, arrive_ns]``: requests
first seen (``after``: the one whose id sorts right before it, -1 none; null: told before). ``prefixes`` are ``[request, of,
from_tokens, to_tokens]``, ``resources`` ``[pool, free, used]``. ``events`` are, in their order,
``[0, kind, request, tokens, computed_tokens]`` decisions, ``[1, request, tokens, word]`` answers and
``[2, action, pool, request, unit, ...]`` units that change hands. Kinds, words and actions are places in
`formats.requests.words`. Times are CLOCK_MONOTONIC, ``arrive_ns`` is as the engine has it.
"""  # noqa: E501  (rows of a table)

from __future__ import annotations

import struct

__all__ = [
    "ANSWER",
    "BLOCK",
    "DECISION",
    "ENDED",
    "FRAME",
    "FRAME_BYTES_MAX",
    "HEADER",
    "INPUT",
    "INT_MAX",
    "MAGIC",
    "PATTERN",
    "RUNNING",
    "SCHEDULER",
    "STATUS",
    "STATUS_AT",
    "STOPPED",
    "VERSION",
]

MAGIC = b"TDREQSTS"
VERSION = 0
HEADER = struct.Struct("<8sIIIIqq")
"""Magic, version, status, error number, process id, CLOCK_MONOTONIC and CLOCK_REALTIME of one moment."""
STATUS_AT = 12
STATUS = struct.Struct("<II")
"""Status and error number: written in place, as a full disk lets nothing grow."""
RUNNING, ENDED, STOPPED = 0, 1, 2
FRAME = struct.Struct("<II")
FRAME_BYTES_MAX = 1 << 23
"""Of one input: 1.6 million units that change hands at once."""
INT_MAX = (1 << 62) - 1
PATTERN = "requests-*.frames"

SCHEDULER, INPUT = 0, 1
DECISION, ANSWER, BLOCK = 0, 1, 2
