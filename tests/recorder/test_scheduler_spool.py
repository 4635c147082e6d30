"""What the tap leaves in a spool: read as it was written, or refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from tapedelay.formats.errors import SpoolError
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.layout import GRAPH_NODE
from tapedelay.recorder.engines.ggml.spool import read_spool

Make = Callable[..., Any]
IN = {"name": "in", "flags": 1, "usage": 0, "host": 1}


def taped(e: Any) -> Tape:
    tape = collect([read_spool(e.w.write())])
    assert validate(tape) == []
    return tape


def sched(e: Any, **more: Any) -> int:
    backends = [(e.queues[0], e.devices[0], "TAPE0"), (e.cpu_queue, e.cpu, "CPU")]
    made: int = e.w.sched(backends, **more)
    return made


def of(tape: Tape, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(o[c] for c in columns) for o in tape.table("ops").to_pylist()]


def test_a_graph_comes_back_as_it_was_written(engine: Make) -> None:
    e = engine()
    s = sched(e, flags=3, copies=4)
    weights, pinned = e.w.device("OTHER"), e.devices[0]
    e.w.graph(
        s,
        [
            {"name": "a", "op": "ADD", "sources": (3, -2, -1), "params": (1, -1), "user": e.devices[0]},
            {"name": "v", "op": "VIEW", "view": 0, "view_offset": 8, "sources": (0,), "flags": 2},
            {"name": "c", "op": "CUSTOM", "params": None, "view": -1, "view_offset": 4},
            {**IN, "memory": e.cpu},
            {"name": "w", "memory": weights, "usage": 1},
            {"name": "p", "memory": pinned, "usage": 2, "host": 1},
            {"name": "d", "memory": pinned, "usage": 2},
        ],
        n_leafs=4,
    )
    e.w.record("sched_reset", e=s, end=15)
    tape = taped(e)
    (graph,) = tape.table("graphs").to_pylist()
    assert graph == {
        "graph": 0, "name": None, "process": 0, "uid": None, "n_nodes": 3, "n_leafs": 4, "n_copies": 4,
        "op_offload": True, "backend_order": [1, 0], "buffer_types": ["TAPE0", "CPU"], "input_order": None,
        "first_op": None,
    }  # fmt: skip
    nodes = tape.table("nodes").to_pylist()
    assert [n["sources"] for n in nodes] == [[3, None, -1], [0], [], [], [], [], []]
    assert [(n["view_source"], n["view_offset"]) for n in nodes[:4]] == [
        (None, None),
        (0, 8),
        (-1, 4),
        (None, None),
    ]
    assert nodes[0]["op_params"] == struct.pack("<16i", 1, -1, *[0] * 14)
    assert nodes[2]["op_params"] is None
    assert [n["user_backend"] for n in nodes[:2]] == [1, None]
    assert [(n["buffer_usage"], n["buffer_kind"]) for n in nodes] == [
        (None, None), (None, None), (None, None), ("any", "host"), ("weights", "weights"),
        ("compute", "pinned"), ("compute", "device"),
    ]  # fmt: skip
    assert [(n["is_input"], n["is_output"]) for n in nodes[:4]] == [
        (False, False), (False, True), (False, False), (True, False),
    ]  # fmt: skip


def test_the_order_in_which_inputs_were_written(engine: Make) -> None:
    e = engine()
    s = sched(e)
    names = ("x", "y", "z")
    g = e.w.graph(s, [{"name": "a", "op": "ADD"}, *({**IN, "name": n} for n in names)], n_leafs=3)
    graph_set = e.w.set([(e.host, 0, 64, "read", "x", 1), (e.memory, 0, 64, "write", "a")])
    for name in ("z", "x", "weights", "z"):
        e.w.record("set", e=e.host, b=0, c=16, name=name, flags=1, end=e.w.now + 15)
    e.w.record("sched_compute", e=s, d=g, a=9, b=0, c=1, end=e.w.now + 100)
    e.w.record("compute", queue=e.queues[0], d=graph_set)
    tape = taped(e)
    (graph,) = tape.table("graphs").to_pylist()
    assert (graph["input_order"], graph["uid"]) == ([3, 1], 9)
    # after the inferred write of what no set covered
    assert of(tape, "name", "step")[1:5] == [("z", 0), ("x", 0), ("weights", None), ("z", 0)]
    first = tape.table("ops").to_pylist()[graph["first_op"]]
    assert (first["kind"], first["split"]) == ("compute", 0)


def test_two_processes_have_graphs_of_their_own(engine: Make) -> None:
    made = [engine(), engine()]
    for e in made:
        s = sched(e)
        g = e.w.graph(s, [{"name": "a"}])
        e.w.record("sched_compute", e=s, d=g, b=0, c=0, end=e.w.now + 15)
    tape = collect([read_spool(e.w.write()) for e in made])
    assert validate(tape) == []
    assert [(g["graph"], g["process"]) for g in tape.table("graphs").to_pylist()] == [(0, 0), (1, 1)]
    assert sorted(n for (n,) in of(tape, "name")) == [f"scheduler compute graph {i}" for i in (0, 1)]
    assert [n["graph"] for n in tape.table("nodes").to_pylist()] == [0, 1]


def test_a_call_that_never_returned_keeps_all_that_came_after(engine: Make) -> None:
    e = engine()
    s = sched(e)
    g = e.w.graph(s, [{"name": "a"}])
    graph_set = e.w.set([(e.memory, 0, 64, "write", "a")])
    e.w.record("sched_compute", e=s, d=g, b=5, c=0)
    e.w.record("compute", queue=e.queues[0], d=graph_set)
    e.w.record("sync", queue=e.queues[0])
    assert of(taped(e), "kind", "step", "split") == [("mark", 5, None), ("compute", 5, 0), ("sync", 5, 0)]


def test_what_a_meta_call_passes_on_has_its_split(engine: Make) -> None:
    e = engine(devices=2)
    meta = e.w.queue(e.w.device("Meta", kind=4, test=False, profile=""), "Meta")
    s = sched(e)
    g = e.w.graph(s, [{"name": "a"}])
    graph_set = e.w.set([(e.memory, 0, 64, "write", "a")])
    event = e.w.event(e.devices[0])
    e.w.record("sched_compute", e=s, d=g, b=0, c=2, end=e.w.now + 1000)
    for i in range(2):
        e.w.record("set", queue=meta, e=e.memory, b=0, c=16, flags=8)
        e.w.record("set", queue=e.queues[0], e=e.memory, b=0, c=16, flags=16)
        e.w.record("compute", queue=meta, flags=8, e=3)
        e.w.record("compute", queue=e.queues[0], d=graph_set, flags=16)
        e.w.record("compute", queue=e.queues[1], d=graph_set, flags=16)
        e.w.record("event_record", queue=e.queues[0], d=event, a=i + 1)
    rows = of(taped(e), "kind", "split")[1:]
    assert rows == [
        (k, i) for i in (0, 1) for k in ("copy", "copy", "compute", "compute", "compute", "record")
    ]


def change(e: Any, index: int, column: str, value: int) -> None:
    """Change a column of a node of the last graph, with a checksum that fits."""
    n, _, kind = struct.unpack_from("<III", e.w.frames[-1])
    payload = bytearray(e.w.frames[-1][12 : 12 + n])
    assert GRAPH_NODE.fields is not None
    kind_of, at = GRAPH_NODE.fields[column][:2]
    where = 16 + index * GRAPH_NODE.itemsize + at
    size = kind_of.base.itemsize
    payload[where : where + size] = value.to_bytes(size, "little", signed=value < 0)
    e.w.frames.pop()
    e.w.frame(kind, bytes(payload))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("sources", 2), ("sources", -3), ("view_source", 2), ("view_source", -3), ("shape", -1),
        ("strides", 1 << 63), ("view_offset", 1 << 63), ("name", 77), ("op", 77), ("type", 77),
        ("buffer_device", 9), ("user_device", 9), ("usage", 3),
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_is_damage(engine: Make, column: str, value: int) -> None:
    e = engine()
    e.w.graph(sched(e), [{"name": "a"}, {"name": "b"}])
    taped(e)
    change(e, 1, column, value)
    with pytest.raises(SpoolError):
        read_spool(e.w.write())


@pytest.mark.parametrize(
    "how", ["twice", "sched", "longer", "shorter", "count", "backends", "queue", "device"]
)
def test_a_frame_that_cannot_be_is_damage(engine: Make, how: str) -> None:
    e = engine()
    s = sched(e)
    node = e.w._node()
    graph = {
        "twice": struct.pack("<IIII", 1, s, 1, 0) + node,
        "sched": struct.pack("<IIII", 0, s + 1, 1, 0) + node,
        "longer": struct.pack("<IIII", 0, s, 1, 0) + node + b"\0",
        "shorter": struct.pack("<IIII", 0, s, 1, 0) + node[:-1],
        "count": struct.pack("<IIII", 0, s, 0xFFFFFFFF, 0xFFFFFFFF) + node,
    }
    made = {
        "backends": struct.pack("<IIII", 1, 0, 1, 0xFFFFFFFF),
        "queue": struct.pack("<IIIIIII", 1, 0, 1, 1, 99, 0, 0),
        "device": struct.pack("<IIIIIII", 1, 0, 1, 1, 0, 99, 0),
    }
    e.w.frame(11 if how in graph else 12, graph.get(how) or made[how])
    with pytest.raises(SpoolError):
        read_spool(e.w.write())


@pytest.mark.parametrize(
    ("kind", "d", "e"), [("sched_compute", 7, 0), ("sched_alloc", 7, 0), ("sched_reset", 0, 7)]
)
def test_a_call_that_names_what_is_not_defined_is_damage(engine: Make, kind: str, d: int, e: int) -> None:
    spool = engine()
    sched(spool)
    spool.w.record(kind, d=d, e=e)
    with pytest.raises(SpoolError):
        read_spool(spool.w.write())


def test_steps_beyond_all_measure_cost_no_memory(engine: Make) -> None:
    e = engine()
    s = sched(e)
    g = e.w.graph(s, [{"name": "a"}])
    graph_set = e.w.set([(e.memory, 0, 64, "write", "a")])
    for step in ((1 << 62) - 1, (1 << 61), 0):
        e.w.record("sched_compute", e=s, d=g, b=step, c=1, end=e.w.now + 25)
        e.w.record("compute", queue=e.queues[0], d=graph_set)
        e.w.record("get", queue=e.queues[0], d=e.memory, c=64, at=e.w.now + 50)
    assert {step for (step,) in of(taped(e), "step")} == {(1 << 62) - 1, 1 << 61, 0}


def test_a_graph_without_nodes(engine: Make) -> None:
    e = engine()
    e.w.graph(sched(e), [])
    (graph,) = taped(e).table("graphs").to_pylist()
    assert (graph["n_nodes"], graph["n_leafs"]) == (0, 0)
