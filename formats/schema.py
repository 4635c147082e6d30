"""The tables of a tape as Arrow schemas: the one place where a column is defined.

``formats/SPEC.md`` says the same in words and is normative; a test compares the two.
Enumerations are dictionary columns (``dictionary<int8, string>``); ids are dense row numbers unless said
otherwise; every column carries ``unit`` and ``doc`` in its field metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

__all__ = [
    "ACCESS_MODES",
    "ACCESS_ORIGINS",
    "BUFFER_KINDS",
    "DEVICE_KINDS",
    "FORMAT_READ",
    "FORMAT_WRITE",
    "OP_KINDS",
    "QUEUE_KINDS",
    "SCHEMAS",
    "SYNC_KINDS",
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

# --- vocabularies ---

DEVICE_KINDS = ("host", "gpu", "igpu", "accel", "nic", "test", "meta", "other")
QUEUE_KINDS = ("host_thread", "queue", "nic", "default")
BUFFER_KINDS = ("device", "host", "pinned", "managed", "weights", "pool", "other")
SYNC_KINDS = ("event", "semaphore", "collective", "graph", "other")

OP_KINDS = (
    "host",      # code on a host thread that touches memory
    "kernel",    # one device kernel
    "compute",   # a (sub)graph executed as one op: a ggml split, a CUDA graph launch
    "copy",      # memory copy
    "memset",    # fill
    "rdma",      # transfer by a network card
    "record",    # event record
    "wait",      # a queue, or a host thread, waits for an event
    "wait_any",  # ... for at least one of several events (op.list names their sync ids)
    "sync",      # a host thread waits for a queue, a device or everything (op.target, op.target_kind)
    "alloc",     # a generation of a buffer begins
    "free",      # a generation of a buffer ends
    "semsig",    # named semaphore signalled (op.value: timeline value, null = binary)
    "semwait",   # named semaphore awaited
    "coll",      # member of a collective: rows with the same sync id are one joint operation
    "destroy",   # event, semaphore, graph or queue destroyed
    "mark",      # no effect; names a moment
)  # fmt: skip
ACCESS_MODES = ("read", "write", "update", "may_write", "reduce")
DELAY_PLACES = ("before_issue", "before_start", "after_end")
ACCESS_ORIGINS = ("observed", "inferred", "declared")
WAIT_STATES = ("contract", "unresolved", "none", "foreign")
"""How a wait finds its record when ``sync_of`` is null.

``contract``: the newest record of that event at issue (no such record: no edge);
``unresolved``: the record may exist but was not seen; ``none``: known never to have been recorded;
``foreign``: the waiting backend does not understand the event, so there is no edge.
"""
SYNC_TARGETS = ("queue", "device", "all")
EDGE_KINDS = ("graph", "data", "control", "collective", "order", "other")
COVERAGE = ("full", "partial", "none")
INPUT_KINDS = (
    "submit", "abort", "set_schedulable", "next_chunk", "pause", "resume", "cache_reset", "priority",
    "output", "step",
)  # fmt: skip
DECISION_KINDS = (
    "prefill",  # `tokens` of a prompt (or of what has to be computed again), in this step only
    "decode",   # `tokens` per step from now on
    "skip",     # a request that decoded is not scheduled in this step and those after it
    "order",    # the step's whole order: one row per scheduled request, where it is not the one expected
    "preempt", "resume", "finish", "reject",
    "emit",     # tokens shown to the user, where they are not those of the answer
)  # fmt: skip
ANSWER_WORDS = ("length", "stop", "abort", "error", "ignored", "repetition", "preempted")
BLOCK_ACTIONS = ("alloc", "free", "share", "fill", "read", "launch", "retire")

ENUM = pa.dictionary(pa.int8(), pa.string())
NAME = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, unit, nullability, meaning and, for enumerations, the words allowed."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False
    words: tuple[str, ...] = ()

    def field(self) -> pa.Field:
        """Return the Arrow field with ``unit`` and ``doc`` metadata."""
        metadata = {"doc": self.doc}
        if self.unit:
            metadata["unit"] = self.unit
        if self.words:
            metadata["words"] = ",".join(self.words)
        return pa.field(self.name, self.type, nullable=self.nullable, metadata=metadata)


@dataclass(frozen=True)
class Table:
    """One table: its columns, its key, and which columns refer to which table's key."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: str | None = None
    refs: tuple[tuple[str, str], ...] = ()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([c.field() for c in self.columns], metadata={"doc": self.doc})


def enum(name: str, words: Iterable[str], doc: str, *, nullable: bool = False) -> Column:
    """Return an enumeration column."""
    return Column(name, ENUM, doc, nullable=nullable, words=tuple(words))


def _id(name: str, doc: str, type_: pa.DataType | None = None, *, nullable: bool = False) -> Column:
    return Column(name, type_ or pa.int32(), doc, nullable=nullable)


def _int(name: str, doc: str, unit: str = "", *, nullable: bool = False) -> Column:
    return Column(name, pa.int64(), doc, unit=unit, nullable=nullable)


def _name(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, NAME, doc, nullable=nullable)


_ORIGIN = enum("origin", ACCESS_ORIGINS, "how the fact is known")

DEVICES = Table(
    "devices",
    "A memory plus the queues that work on it; the host is one.",
    (
        _id("device", "device id, 0 .. rows-1"),
        _name("name", "name the engine gives it"),
        enum("kind", DEVICE_KINDS, "what it is"),
        _name("profile", "name in the profile table of the manifest or a built-in: what its queues promise"),
        _id("process", "process ordinal, see manifest.processes"),
    ),
    key="device",
)
QUEUES = Table(
    "queues",
    "What executes ops in order: a stream, a command queue, a copy engine, or a host thread.",
    (
        _id("queue", "queue id, 0 .. rows-1"),
        _id("device", "device whose queue it is; host threads belong to the host device of their process"),
        _name("name", "name"),
        enum(
            "kind",
            QUEUE_KINDS,
            "`default`: a legacy default stream, ordered with every other queue of its device",
        ),
        Column("in_order", pa.bool_(), "false: only the rows of `edges` order its ops"),
        _name("clock", "clock of start and duration: `host` or a device clock's name"),
        _int("clock_error_ns", "bound on the error when mapped to the host clock", "ns", nullable=True),
        _id("process", "process ordinal"),
    ),
    key="queue",
    refs=(("device", "devices"),),
)
SYNCS = Table(
    "syncs",
    "Names of what ops synchronise on: events, semaphores, collectives.",
    (
        _id("sync", "sync id, 0 .. rows-1"),
        _name("name", "name"),
        enum("kind", SYNC_KINDS, "what it is"),
        _id("device", "device that made it", nullable=True),
        _id("process", "process ordinal; null = shared by several", nullable=True),
    ),
    key="sync",
    refs=(("device", "devices"),),
)
BUFFERS = Table(
    "buffers",
    "Physical memory. A row is one generation of one allocation; a sub-allocation names its parent.",
    (
        _id("buffer", "buffer id, 0 .. rows-1"),
        _id("device", "device whose memory it is"),
        _name("name", "name"),
        _int("bytes", "size; null = unknown", "bytes", nullable=True),
        enum("kind", BUFFER_KINDS, "kind of memory"),
        _id(
            "parent",
            "buffer this one is a range of (a sub-allocation, or one generation of it); lower id",
            nullable=True,
        ),
        _int("parent_offset", "where in the parent it begins", "bytes", nullable=True),
        _id("generation", "0 for the first use of that range, then counted up"),
        _id(
            "alloc_op",
            "op that begins the generation; null = lived before the recording",
            pa.int64(),
            nullable=True,
        ),
        _id("free_op", "op that ends it; null = still alive at the end", pa.int64(), nullable=True),
        _id(
            "shared_key",
            "root buffers with one key are one memory, seen from several devices or processes",
            nullable=True,
        ),
    ),
    key="buffer",
    refs=(("device", "devices"), ("parent", "buffers"), ("alloc_op", "ops"), ("free_op", "ops")),
)
ACCESSES = Table(
    "accesses",
    "Access sets: what an op touches, shared by the ops that touch the same.",
    (
        _id("set", "access-set id, from 1; 0 is the empty set and has no rows"),
        _id("seq", "order inside the op, from 0"),
        _id("buffer", "buffer touched; null = memory that no other op can name", nullable=True),
        _int("offset", "first byte, relative to the buffer", "bytes"),
        _int("bytes", "length", "bytes"),
        _int("offset_per_arg", "added to `offset` times the op's `arg`", "bytes"),
        _int("bytes_per_arg", "added to `bytes` times the op's `arg`", "bytes"),
        _int(
            "unit_bytes",
            "if set: the access repeats at `offset + unit * unit_bytes` for each unit of the op's `list`",
            "bytes",
            nullable=True,
        ),
        enum(
            "mode",
            ACCESS_MODES,
            "read, write, update (new = f(op, old)), may_write (scatter), reduce (commutative)",
        ),
        _ORIGIN,
        _name("name", "tensor name", nullable=True),
    ),
    refs=(("buffer", "buffers"),),
)
OPS = Table(
    "ops",
    "The recording: one row per operation, in issue order.",
    (
        _id("op", "op id, strictly increasing, not necessarily dense: issue order", pa.int64()),
        enum("kind", OP_KINDS, "what it does"),
        _name("name", "kernel, tensor or call name", nullable=True),
        _name("label", "row label of a litmus file", nullable=True),
        _id("queue", "queue that executes it"),
        _id("issuer", "host-thread queue that issued it; null = not seen", nullable=True),
        _id(
            "parent",
            "op it is part of (graph launch -> kernels, split -> nodes, meta op -> ranks)",
            pa.int64(),
            nullable=True,
        ),
        _id("sync", "event, semaphore, collective or destroyed object", nullable=True),
        _int("value", "timeline value of a semaphore signal or wait; null = binary", nullable=True),
        _id("sync_of", "for a wait: the record op it waits for, when observed", pa.int64(), nullable=True),
        enum(
            "wait_state",
            WAIT_STATES,
            "for a wait whose `sync_of` is null: how it finds its record; null elsewhere",
            nullable=True,
        ),
        enum(
            "target_kind",
            SYNC_TARGETS,
            "for `sync`: what the host thread waits for; null elsewhere",
            nullable=True,
        ),
        _id("target", "for `sync`: queue id or device id; for `alloc`, `free`: buffer id", nullable=True),
        _id("access_set", "what it touches: null = UNKNOWN, 0 = nothing", nullable=True),
        _int("arg", "what a growing access set is multiplied with (a position, in tokens)", nullable=True),
        _id("list", "list of pool units it touches, or of the sync ids of a wait_any", nullable=True),
        _int("issue_ns", "when the host handed it over, ns since the tape's origin", "ns", nullable=True),
        _int("start_after_issue_ns", "start minus issue", "ns", nullable=True),
        _int("duration_ns", "execution time; null = not seen (or not finished)", "ns", nullable=True),
        _int("step", "engine iteration", nullable=True),
        _id("split", "split of the step's graph", nullable=True),
        _int("bytes", "bytes moved", "bytes", nullable=True),
        _ORIGIN,
    ),
    key="op",
    refs=(
        ("queue", "queues"),
        ("issuer", "queues"),
        ("parent", "ops"),
        ("sync", "syncs"),
        ("sync_of", "ops"),
    ),
)
EDGES = Table(
    "edges",
    "Happens-before that no queue, event or sync says.",
    (
        _id("src", "op that completes before `dst` starts", pa.int64()),
        _id("dst", "op", pa.int64()),
        enum("kind", EDGE_KINDS, "where it comes from"),
        _ORIGIN,
    ),
    refs=(("src", "ops"), ("dst", "ops")),
)
LISTS = Table(
    "lists",
    "Units of a pool that an op touches (KV blocks), or the syncs of a wait_any.",
    (_id("list", "list id, from 0; rows of one list are adjacent"), _int("unit", "unit index, or sync id")),
)

# --- filled by later recorders; specified now so that a tape need not change ---

GRAPHS = Table(
    "graphs",
    "The engine's graph as its scheduler received it, one row per identity.",
    (
        _id("graph", "graph id, 0 .. rows-1"),
        _name("name", "name", nullable=True),
        _id("process", "process ordinal"),
        _int("uid", "the engine's own identity of the graph", nullable=True),
        _id("n_nodes", "nodes"),
        _id("n_leafs", "leafs"),
        _id("n_copies", "copies of split inputs (pipeline parallelism)", nullable=True),
        Column("op_offload", pa.bool_(), "whether the scheduler may offload", nullable=True),
        Column(
            "backend_order",
            pa.list_(pa.int32()),
            "device of each backend, in the scheduler's order",
            nullable=True,
        ),
        Column(
            "buffer_types",
            pa.list_(pa.string()),
            "buffer type in which the scheduler places what each of them computes",
            nullable=True,
        ),
        Column(
            "input_order",
            pa.list_(pa.int32()),
            "node indices in the order the host wrote the inputs",
            nullable=True,
        ),
        _id("first_op", "first compute of its first step", pa.int64(), nullable=True),
    ),
    key="graph",
    refs=(("first_op", "ops"),),
)
NODES = Table(
    "nodes",
    "Nodes and leafs of a graph.",
    (
        _id("graph", "graph id"),
        _id("node", "index in the graph; leafs follow the nodes"),
        _name("name", "tensor name", nullable=True),
        _name("op", "operation name; of unary and gated ones the function's"),
        Column("op_params", pa.binary(), "operation parameters, as the engine lays them out", nullable=True),
        _name("dtype", "element type"),
        Column("shape", pa.list_(pa.int64()), "elements per dimension, fastest first"),
        Column("strides", pa.list_(pa.int64()), "bytes per dimension", unit="bytes"),
        Column(
            "sources",
            pa.list_(pa.int32()),
            "node indices of the sources; -1 = outside the graph, null = this place is empty",
        ),
        _id("view_source", "node index; -1 = outside the graph, null = no view", nullable=True),
        _int("view_offset", "offset into the view source", "bytes", nullable=True),
        _id("flags", "the engine's flags (input, output, parameter, ...)"),
        _name("buffer_usage", "any, weights, compute", nullable=True),
        enum("buffer_kind", BUFFER_KINDS, "kind of memory", nullable=True),
        _id("user_backend", "device the user pinned the node to", nullable=True),
        Column("is_input", pa.bool_(), "written by the host before the graph runs"),
        Column("is_output", pa.bool_(), "read by the host afterwards"),
    ),
    refs=(("graph", "graphs"), ("user_backend", "devices")),
)
SCHEDULERS = Table(
    "schedulers",
    "Request schedulers; each has requests, inputs and pools of its own.",
    (
        _id("scheduler", "scheduler id, 0 .. rows-1"),
        _id("process", "process ordinal"),
        _name("engine", "vllm, deepinfer, transformers, ..."),
        _name("engine_version", "its version", nullable=True),
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
        _id("pool", "pool id, 0 .. rows-1"),
        _id("scheduler", "scheduler"),
        _name("name", "kv, state, encoder, ..."),
        _int("units", "all units, those that are never handed out included", "units"),
        _int("reserved", "units, from 0, that are never handed out (a null block)", "units"),
        _int("tokens_per_unit", "tokens that one unit holds", "tokens", nullable=True),
    ),
    key="pool",
    refs=(("scheduler", "schedulers"),),
)
REQUESTS = Table(
    "requests",
    "Requests of a request scheduler, renumbered; no text, no token values.",
    (
        _id("request", "request id, 0 .. rows-1, first seen first"),
        _id("scheduler", "scheduler"),
        _int("prompt_tokens", "prompt length; of a session its first chunk", "tokens"),
        _int("max_tokens", "limit on produced tokens", "tokens", nullable=True),
        _int("priority", "lower is served first", nullable=True),
        Column("flags", pa.list_(pa.string()), "engine flags, known words only", nullable=True),
        _int("reserve_tokens", "reserved up front", "tokens", nullable=True),
        _int("id_rank", "rank of the engine's own id among all (a tie-break of some queues)", nullable=True),
        _int(
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
    "Tokens that a request has in common with one seen before, as far as its scheduler can tell (whole units).",
    (
        _id("request", "request"),
        _id("of", "the request that had them first", pa.int32()),
        _int("from_tokens", "first position", "tokens"),
        _int("to_tokens", "one past the last position", "tokens"),
    ),
    refs=(("request", "requests"), ("of", "requests")),
)
INPUTS = Table(
    "inputs",
    "What reached the request scheduler from outside, in order.",
    (
        _id("input", "input id, 0 .. rows-1", pa.int64()),
        _id("scheduler", "scheduler"),
        enum("kind", INPUT_KINDS, "what it is"),
        _id("request", "request, null for batch or global inputs", nullable=True),
        Column(
            "requests",
            pa.list_(pa.int32()),
            "requests of a batch abort, in the engine's order",
            nullable=True,
        ),
        _int("step", "the scheduler's step that it makes (`step`) or answers (`output`)", nullable=True),
        _int("tokens", "tokens of the next chunk", "tokens", nullable=True),
        Column("decode_only", pa.bool_(), "the step may only decode", nullable=True),
        _int("value", "new priority or other argument", nullable=True),
        _name("word", "a known word: mode of a pause, ...", nullable=True),
        _int("at_ns", "ns since the tape's origin", "ns", nullable=True),
        _id("op", "for `step`: first op issued between it and its output", pa.int64(), nullable=True),
    ),
    key="input",
    refs=(("scheduler", "schedulers"), ("request", "requests"), ("op", "ops")),
)
ANSWERS = Table(
    "answers",
    "What the model gave for a step, where it is not what is expected: one token for each request whose known "
    "tokens are all computed after the step, none for the others, and nobody finishes.",
    (
        _id("input", "the `output`", pa.int64()),
        _id("seq", "order in the input, shared with `decisions` and `blocks`"),
        _id("request", "request"),
        _int("tokens", "tokens that the model gave", "tokens"),
        enum("word", ANSWER_WORDS, "why the request ends with it; null: it goes on", nullable=True),
    ),
    refs=(("input", "inputs"), ("request", "requests")),
)
DECISIONS = Table(
    "decisions",
    "What the request scheduler decided. Scheduling is stored as deltas: a request that decodes goes on with as "
    "many tokens, at its place of the order, until another row names it; a `prefill` holds for one step.",
    (
        _id("input", "input that it answers: a `step`, or an `abort`, `output`, ...", pa.int64()),
        _id("seq", "order in the input, shared with `answers` and `blocks`"),
        _id("request", "request"),
        enum("kind", DECISION_KINDS, "decision"),
        _int("tokens", "tokens scheduled (`prefill`, `decode`) or shown (`emit`)", "tokens", nullable=True),
        _int("computed_tokens", "tokens computed before this step", "tokens", nullable=True),
    ),
    refs=(("input", "inputs"), ("request", "requests")),
)
BLOCKS = Table(
    "blocks",
    "Units of a pool changing hands, as deltas.",
    (
        _id("input", "input during which it happened", pa.int64()),
        _id("seq", "order in the input, shared with `answers` and `decisions`"),
        _id("pool", "pool"),
        enum("action", BLOCK_ACTIONS, "what happens to the unit"),
        _int("unit", "unit index in the pool"),
        _id("request", "request", nullable=True),
    ),
    refs=(("input", "inputs"), ("pool", "pools"), ("request", "requests")),
)
RESOURCES = Table(
    "resources",
    "Free and used units per pool after an input, where they changed.",
    (
        _id("input", "input", pa.int64()),
        _id("pool", "pool"),
        _int("free", "free units", "units"),
        _int("used", "used units", "units"),
    ),
    refs=(("input", "inputs"), ("pool", "pools")),
)
TELEMETRY = Table(
    "telemetry",
    "Samples of device counters.",
    (
        _int("at_ns", "ns since the tape's origin", "ns"),
        _id("device", "device", nullable=True),
        _name("metric", "name of the counter"),
        Column("value", pa.float64(), "value"),
        _name("unit", "unit of the value"),
    ),
    refs=(("device", "devices"),),
)
DELAYS = Table(
    "delays",
    "Delays that the recorder applied, in the order in which ops were issued.",
    (
        _id("op", "op that was held up", pa.int64()),
        enum("place", DELAY_PLACES, "where it was held up"),
        _int("line", "line of the plan, see the manifest's `delays`"),
        _int("asked_ns", "length in the plan", "ns"),
        _int("true_ns", "length that it had; null: it did not end", "ns", nullable=True),
        Column("filler", pa.bool_(), "work on the device took its time; else a thread slept"),
    ),
    refs=(("op", "ops"),),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        DEVICES, QUEUES, SYNCS, BUFFERS, ACCESSES, OPS, EDGES, LISTS, GRAPHS, NODES, SCHEDULERS, POOLS, REQUESTS,
        PREFIXES, INPUTS, ANSWERS, DECISIONS, BLOCKS, RESOURCES, DELAYS, TELEMETRY,
    )
}  # fmt: skip
REQUIRED = ("devices", "queues", "buffers", "accesses", "ops")
"""Tables that every tape has, even when they are empty."""
SCHEMAS: dict[str, pa.Schema] = {name: t.schema() for name, t in TABLES.items()}
