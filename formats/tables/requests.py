"""What request schedulers did. ``formats/requests`` has their words and the deltas."""

from __future__ import annotations

import pyarrow as pa

from ..requests.words import ANSWER_WORDS, BLOCK_ACTIONS, DECISION_KINDS, INPUT_KINDS
from .column import Column, Table, enum, id_column, int_column, name_column

SCHEDULERS = Table(
    "schedulers",
    "Request schedulers; each has requests, inputs and pools of its own.",
    (
        id_column("scheduler", "scheduler id, 0 .. rows-1"),
        id_column("process", "process ordinal"),
        name_column("engine", "vllm, deepinfer, transformers, ..."),
        name_column("engine_version", "its version", nullable=True),
        Column(
            "config",
            pa.string(),
            "what it was built with: one JSON object of numbers, booleans and known words",
        ),
    ),
    key="scheduler",
)
POOLS = Table(
    "pools",
    "Pools of units that a request scheduler hands out (KV blocks, state slots, encoder entries).",
    (
        id_column("pool", "pool id, 0 .. rows-1"),
        id_column("scheduler", "scheduler"),
        name_column("name", "kv, state, encoder, ..."),
        int_column("units", "all units, those that are never handed out included", "units"),
        int_column("reserved", "units, from 0, that are never handed out (a null block)", "units"),
        int_column("tokens_per_unit", "tokens that one unit holds", "tokens", nullable=True),
    ),
    key="pool",
    refs=(("scheduler", "schedulers"),),
)
REQUESTS = Table(
    "requests",
    "Requests of a request scheduler, renumbered; no text, no token values.",
    (
        id_column("request", "request id, 0 .. rows-1, first seen first"),
        id_column("scheduler", "scheduler"),
        int_column("prompt_tokens", "prompt length; of a session its first chunk", "tokens"),
        int_column("max_tokens", "limit on produced tokens", "tokens", nullable=True),
        int_column("priority", "lower is served first", nullable=True),
        Column("flags", pa.list_(pa.string()), "engine flags, known words only", nullable=True),
        int_column("reserve_tokens", "reserved up front", "tokens", nullable=True),
        int_column(
            "id_rank", "rank of the engine's own id among all (a tie-break of some queues)", nullable=True
        ),
        int_column(
            "arrive_ns",
            "arrival that the scheduler sorts by, ns since the tape's origin",
            "ns",
            nullable=True,
        ),
    ),
    key="request",
    refs=(("scheduler", "schedulers"),),
)
PREFIXES = Table(
    "prefixes",
    "Tokens that a request shares with an earlier one, as far as its scheduler can tell: whole units.",
    (
        id_column("request", "request"),
        id_column("of", "the request that had them first", pa.int32()),
        int_column("from_tokens", "first position", "tokens"),
        int_column("to_tokens", "one past the last position", "tokens"),
    ),
    refs=(("request", "requests"), ("of", "requests")),
)
INPUTS = Table(
    "inputs",
    "What reached the request scheduler from outside, in order.",
    (
        id_column("input", "input id, 0 .. rows-1", pa.int64()),
        id_column("scheduler", "scheduler"),
        enum("kind", INPUT_KINDS, "what it is"),
        id_column("request", "request, null for batch or global inputs", nullable=True),
        Column(
            "requests",
            pa.list_(pa.int32()),
            "requests of a batch abort, in the engine's order",
            nullable=True,
        ),
        int_column(
            "step", "the scheduler's step that it makes (`step`) or answers (`output`)", nullable=True
        ),
        int_column("tokens", "tokens of the next chunk", "tokens", nullable=True),
        Column("decode_only", pa.bool_(), "the step may only decode", nullable=True),
        int_column("value", "new priority or other argument", nullable=True),
        name_column("word", "a known word: mode of a pause, ...", nullable=True),
        int_column("at_ns", "ns since the tape's origin", "ns", nullable=True),
        int_column(
            "arrive_ns",
            "of a `next_chunk`: arrival that the scheduler sorts its request by from then on, ns since the "
            "tape's origin",
            "ns",
            nullable=True,
        ),
        id_column("op", "for `step`: first op issued between it and its output", pa.int64(), nullable=True),
    ),
    key="input",
    refs=(("scheduler", "schedulers"), ("request", "requests"), ("op", "ops")),
)
ANSWERS = Table(
    "answers",
    "What the model gave for a step, where it is not what is expected: one token for each request whose "
    "known tokens are all computed after the step, none for the others, and nobody finishes.",
    (
        id_column("input", "the `output`", pa.int64()),
        id_column("seq", "order in the input, shared with `decisions` and `blocks`"),
        id_column("request", "request"),
        int_column("tokens", "tokens that the model gave", "tokens"),
        enum("word", ANSWER_WORDS, "why the request ends with it; null: it goes on", nullable=True),
    ),
    refs=(("input", "inputs"), ("request", "requests")),
)
DECISIONS = Table(
    "decisions",
    "What the request scheduler decided. Scheduling is stored as deltas: a request that decodes goes on with "
    "as many tokens, at its place of the order, until another row names it; a `prefill` holds for one step.",
    (
        id_column("input", "input that it answers: a `step`, or an `abort`, `output`, ...", pa.int64()),
        id_column("seq", "order in the input, shared with `answers` and `blocks`"),
        id_column("request", "request"),
        enum("kind", DECISION_KINDS, "decision"),
        int_column(
            "tokens", "tokens scheduled (`prefill`, `decode`) or shown (`emit`)", "tokens", nullable=True
        ),
        int_column("computed_tokens", "tokens computed before this step", "tokens", nullable=True),
    ),
    refs=(("input", "inputs"), ("request", "requests")),
)
BLOCKS = Table(
    "blocks",
    "Units of a pool changing hands, as deltas.",
    (
        id_column("input", "input during which it happened", pa.int64()),
        id_column("seq", "order in the input, shared with `answers` and `decisions`"),
        id_column("pool", "pool"),
        enum("action", BLOCK_ACTIONS, "what happens to the unit"),
        int_column("unit", "unit index in the pool"),
        id_column("request", "request", nullable=True),
    ),
    refs=(("input", "inputs"), ("pool", "pools"), ("request", "requests")),
)
RESOURCES = Table(
    "resources",
    "Free and used units per pool after an input, where they changed.",
    (
        id_column("input", "input", pa.int64()),
        id_column("pool", "pool"),
        int_column("free", "free units, as the scheduler counts them, right or wrong", "units"),
        int_column("used", "used units, likewise", "units"),
    ),
    refs=(("input", "inputs"), ("pool", "pools")),
)
