"""What devices did: queues, memory, ops and the graphs behind them."""

from __future__ import annotations

import pyarrow as pa

from .column import Column, Table, enum, id_column, int_column, name_column

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

_ORIGIN = enum("origin", ACCESS_ORIGINS, "how the fact is known")

DEVICES = Table(
    "devices",
    "A memory plus the queues that work on it; the host is one.",
    (
        id_column("device", "device id, 0 .. rows-1"),
        name_column("name", "name the engine gives it"),
        enum("kind", DEVICE_KINDS, "what it is"),
        name_column(
            "profile", "name in the profile table of the manifest or a built-in: what its queues promise"
        ),
        id_column("process", "process ordinal, see manifest.processes"),
    ),
    key="device",
)
QUEUES = Table(
    "queues",
    "What executes ops in order: a stream, a command queue, a copy engine, or a host thread.",
    (
        id_column("queue", "queue id, 0 .. rows-1"),
        id_column(
            "device", "device whose queue it is; host threads belong to the host device of their process"
        ),
        name_column("name", "name"),
        enum(
            "kind",
            QUEUE_KINDS,
            "`default`: a legacy default stream, ordered with every other queue of its device",
        ),
        Column("in_order", pa.bool_(), "false: only the rows of `edges` order its ops"),
        name_column("clock", "clock of start and duration: `host` or a device clock's name"),
        int_column("clock_error_ns", "bound on the error when mapped to the host clock", "ns", nullable=True),
        id_column("process", "process ordinal"),
    ),
    key="queue",
    refs=(("device", "devices"),),
)
SYNCS = Table(
    "syncs",
    "Names of what ops synchronise on: events, semaphores, collectives.",
    (
        id_column("sync", "sync id, 0 .. rows-1"),
        name_column("name", "name"),
        enum("kind", SYNC_KINDS, "what it is"),
        id_column("device", "device that made it", nullable=True),
        id_column("process", "process ordinal; null = shared by several", nullable=True),
    ),
    key="sync",
    refs=(("device", "devices"),),
)
BUFFERS = Table(
    "buffers",
    "Physical memory. A row is one generation of one allocation; a sub-allocation names its parent.",
    (
        id_column("buffer", "buffer id, 0 .. rows-1"),
        id_column("device", "device whose memory it is"),
        name_column("name", "name"),
        int_column("bytes", "size; null = unknown", "bytes", nullable=True),
        enum("kind", BUFFER_KINDS, "kind of memory"),
        id_column(
            "parent",
            "buffer this one is a range of (a sub-allocation, or one generation of it); lower id",
            nullable=True,
        ),
        int_column("parent_offset", "where in the parent it begins", "bytes", nullable=True),
        id_column("generation", "0 for the first use of that range, then counted up"),
        id_column(
            "alloc_op",
            "op that begins the generation; null = lived before the recording",
            pa.int64(),
            nullable=True,
        ),
        id_column("free_op", "op that ends it; null = still alive at the end", pa.int64(), nullable=True),
        id_column(
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
        id_column("set", "access-set id, from 1; 0 is the empty set and has no rows"),
        id_column("seq", "order inside the op, from 0"),
        id_column("buffer", "buffer touched; null = memory that no other op can name", nullable=True),
        int_column("offset", "first byte, relative to the buffer", "bytes"),
        int_column("bytes", "length", "bytes"),
        int_column("offset_per_arg", "added to `offset` times the op's `arg`", "bytes"),
        int_column("bytes_per_arg", "added to `bytes` times the op's `arg`", "bytes"),
        int_column(
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
        name_column("name", "tensor name", nullable=True),
    ),
    refs=(("buffer", "buffers"),),
)
OPS = Table(
    "ops",
    "The recording: one row per operation, in issue order.",
    (
        id_column("op", "op id, strictly increasing, not necessarily dense: issue order", pa.int64()),
        enum("kind", OP_KINDS, "what it does"),
        name_column("name", "kernel, tensor or call name", nullable=True),
        name_column("label", "row label of a litmus file", nullable=True),
        id_column("queue", "queue that executes it"),
        id_column("issuer", "host-thread queue that issued it; null = not seen", nullable=True),
        id_column(
            "parent",
            "op it is part of (graph launch -> kernels, split -> nodes, meta op -> ranks)",
            pa.int64(),
            nullable=True,
        ),
        id_column("sync", "event, semaphore, collective or destroyed object", nullable=True),
        int_column("value", "timeline value of a semaphore signal or wait; null = binary", nullable=True),
        id_column(
            "sync_of", "for a wait: the record op it waits for, when observed", pa.int64(), nullable=True
        ),
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
        id_column(
            "target", "for `sync`: queue id or device id; for `alloc`, `free`: buffer id", nullable=True
        ),
        id_column("access_set", "what it touches: null = UNKNOWN, 0 = nothing", nullable=True),
        int_column(
            "arg", "what a growing access set is multiplied with (a position, in tokens)", nullable=True
        ),
        id_column("list", "list of pool units it touches, or of the sync ids of a wait_any", nullable=True),
        int_column(
            "issue_ns", "when the host handed it over, ns since the tape's origin", "ns", nullable=True
        ),
        int_column("start_after_issue_ns", "start minus issue", "ns", nullable=True),
        int_column("duration_ns", "execution time; null = not seen (or not finished)", "ns", nullable=True),
        int_column("step", "engine iteration", nullable=True),
        id_column("split", "split of the step's graph", nullable=True),
        int_column("bytes", "bytes moved", "bytes", nullable=True),
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
        id_column("src", "op that completes before `dst` starts", pa.int64()),
        id_column("dst", "op", pa.int64()),
        enum("kind", EDGE_KINDS, "where it comes from"),
        _ORIGIN,
    ),
    refs=(("src", "ops"), ("dst", "ops")),
)
LISTS = Table(
    "lists",
    "Units of a pool that an op touches (KV blocks), or the syncs of a wait_any.",
    (
        id_column("list", "list id, from 0; rows of one list are adjacent"),
        int_column("unit", "unit index, or sync id"),
    ),
)

# --- filled by later recorders; specified now so that a tape need not change ---

GRAPHS = Table(
    "graphs",
    "The engine's graph as its scheduler received it, one row per identity.",
    (
        id_column("graph", "graph id, 0 .. rows-1"),
        name_column("name", "name", nullable=True),
        id_column("process", "process ordinal"),
        int_column("uid", "the engine's own identity of the graph", nullable=True),
        id_column("n_nodes", "nodes"),
        id_column("n_leafs", "leafs"),
        id_column("n_copies", "copies of split inputs (pipeline parallelism)", nullable=True),
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
        id_column("first_op", "first compute of its first step", pa.int64(), nullable=True),
    ),
    key="graph",
    refs=(("first_op", "ops"),),
)
NODES = Table(
    "nodes",
    "Nodes and leafs of a graph.",
    (
        id_column("graph", "graph id"),
        id_column("node", "index in the graph; leafs follow the nodes"),
        name_column("name", "tensor name", nullable=True),
        name_column("op", "operation name; of unary and gated ones the function's"),
        Column("op_params", pa.binary(), "operation parameters, as the engine lays them out", nullable=True),
        name_column("dtype", "element type"),
        Column("shape", pa.list_(pa.int64()), "elements per dimension, fastest first"),
        Column("strides", pa.list_(pa.int64()), "bytes per dimension", unit="bytes"),
        Column(
            "sources",
            pa.list_(pa.int32()),
            "node indices of the sources; -1 = outside the graph, null = this place is empty",
        ),
        id_column("view_source", "node index; -1 = outside the graph, null = no view", nullable=True),
        int_column("view_offset", "offset into the view source", "bytes", nullable=True),
        id_column("flags", "the engine's flags (input, output, parameter, ...)"),
        name_column("buffer_usage", "any, weights, compute", nullable=True),
        enum("buffer_kind", BUFFER_KINDS, "kind of memory", nullable=True),
        id_column("user_backend", "device the user pinned the node to", nullable=True),
        Column("is_input", pa.bool_(), "written by the host before the graph runs"),
        Column("is_output", pa.bool_(), "read by the host afterwards"),
    ),
    refs=(("graph", "graphs"), ("user_backend", "devices")),
)
TELEMETRY = Table(
    "telemetry",
    "Samples of device counters.",
    (
        int_column("at_ns", "ns since the tape's origin", "ns"),
        id_column("device", "device", nullable=True),
        name_column("metric", "name of the counter"),
        Column("value", pa.float64(), "value"),
        name_column("unit", "unit of the value"),
    ),
    refs=(("device", "devices"),),
)
DELAYS = Table(
    "delays",
    "Delays that the recorder applied, in the order in which ops were issued.",
    (
        id_column("op", "op that was held up", pa.int64()),
        enum("place", DELAY_PLACES, "where it was held up"),
        int_column("line", "line of the plan, see the manifest's `delays`"),
        int_column("asked_ns", "length in the plan", "ns"),
        int_column("true_ns", "length that it had; null: it did not end", "ns", nullable=True),
        Column("filler", pa.bool_(), "work on the device took its time; else a thread slept"),
    ),
    refs=(("op", "ops"),),
)
