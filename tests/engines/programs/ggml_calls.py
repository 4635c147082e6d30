"""Calls ggml's C interface directly, one case per run; test_recorder_tables.py judges what was recorded.

usage: ggml_calls.py CASE; environment: PYTHONPATH with xllamacpp, TAPEDELAY_PLUGIN, TAPEDELAY_SPOOL.
Prints, as JSON, where ggml itself says that the named tensors begin.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from xllamacpp import xllamacpp

F32, Q4_0, I32, I64 = 0, 2, 26, 27
_lib = ctypes.CDLL(xllamacpp.__file__)
_P = ctypes.c_void_p
_made: dict[str, Any] = {}


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", _P), ("no_alloc", ctypes.c_bool))


def call(name: str, *arguments: Any, result: Any = _P) -> Any:
    """Call an exported function; plain integers are 64-bit, floats are C floats."""
    function = getattr(_lib, name)
    function.restype = result
    kinds = {int: ctypes.c_int64, float: ctypes.c_float}
    return function(*[kinds[type(a)](a) if type(a) in kinds else a for a in arguments])


class Pointer(ctypes.c_void_p):
    """A pointer that stays one when it is returned."""


def p(name: str, *arguments: Any) -> Any:
    """Call a function that returns a pointer."""
    return call(name, *arguments, result=Pointer)


def named(tensor: Any, name: str) -> Any:
    call("ggml_set_name", tensor, name.encode())
    _made[name] = tensor
    return tensor


def context() -> Any:
    return p("ggml_init", _InitParams(4 << 20, None, True))


def graph_of(ctx: Any, *ends: Any) -> Any:
    graph = p("ggml_new_graph", ctx)
    for end in ends:
        call("ggml_build_forward_expand", graph, end, result=None)
    return graph


def device(name: str) -> Any:
    found = p("ggml_backend_dev_by_name", name.encode())
    assert found, name
    return found


def backend(name: str) -> Any:
    return p("ggml_backend_dev_init", device(name), None)


def compute(on: Any, graph: Any) -> None:
    assert call("ggml_backend_graph_compute", on, graph, result=ctypes.c_int) == 0


def new(ctx: Any, name: str, *shape: int, type_: int = F32) -> Any:
    return named(p(f"ggml_new_tensor_{len(shape)}d", ctx, ctypes.c_int(type_), *shape), name)


# --- cases ---------------------------------------------------------------------------------------------


def accesses() -> None:
    """One graph per rule, in this order; the reader finds them by the first tensor written."""
    cpu, ctx = backend("CPU"), context()
    a, b = new(ctx, "a", 64), new(ctx, "b", 64)
    call("ggml_set_input", a, result=None)
    state = new(ctx, "state", 64)
    cache = new(ctx, "cache", 8, 16)
    rows, ids64, ids32 = (
        new(ctx, "rows", 8, 2),
        new(ctx, "ids64", 2, type_=I64),
        new(ctx, "ids32", 2, type_=I32),
    )
    matrix, columns = new(ctx, "matrix", 16, 8), new(ctx, "columns", 64, 2)
    weights = new(ctx, "weights", 64, 4, type_=Q4_0)
    part = new(ctx, "part", 16)
    params, moment1, moment2, step = (
        new(ctx, "params", 16),
        new(ctx, "moment1", 16),
        new(ctx, "moment2", 16),
        new(ctx, "step", 7),
    )
    call("ggml_set_param", params, result=None)

    plain = named(p("ggml_add", ctx, a, b), "plain")
    chain1 = named(p("ggml_add", ctx, a, b), "chain1")
    chain2 = named(p("ggml_add", ctx, chain1, a), "chain2")
    update = named(p("ggml_scale_inplace", ctx, state, 2.0), "update")
    own1 = named(p("ggml_add", ctx, a, b), "own1")
    own2 = named(p("ggml_scale_inplace", ctx, own1, 2.0), "own2")
    into = named(p("ggml_view_1d", ctx, state, 16, 64), "into")
    copied = named(p("ggml_cpy", ctx, part, into), "copied")
    scatter = named(p("ggml_set_rows", ctx, cache, rows, ids64), "scatter")
    gather = named(p("ggml_get_rows", ctx, cache, ids32), "gather")
    strided = named(p("ggml_view_2d", ctx, matrix, 4, 8, 64, 16), "strided")
    gaps = named(p("ggml_cont", ctx, strided), "gaps")
    dense = named(p("ggml_cont", ctx, named(p("ggml_transpose", ctx, matrix), "turned")), "dense")
    set_in = named(p("ggml_set_1d_inplace", ctx, state, part, 32), "set_in")
    quantised = named(p("ggml_mul_mat", ctx, weights, columns), "quantised")
    some = named(p("ggml_get_rows", ctx, cache, ids32), "some")
    every = named(p("ggml_scale", ctx, cache, 2.0), "every")
    trained = named(p("ggml_opt_step_adamw", ctx, params, part, moment1, moment2, step), "trained")
    memory = p("ggml_backend_alloc_ctx_tensors", ctx, cpu)
    assert memory
    base = call("ggml_backend_buffer_get_base", memory)
    print(json.dumps({name: call("ggml_get_data", t) - base for name, t in _made.items()}))
    call("ggml_backend_buffer_clear", memory, ctypes.c_uint8(0), result=None)  # row numbers must be in range
    for end in (
        plain,
        chain2,
        update,
        own2,
        copied,
        scatter,
        gather,
        gaps,
        dense,
        set_in,
        quantised,
        trained,
    ):
        compute(cpu, graph_of(ctx, end))
    compute(cpu, graph_of(ctx, some, every))
    again = graph_of(ctx, plain)
    for _ in range(3):
        compute(cpu, again)


def twins() -> None:
    """Pairs of graphs that differ in one thing each: a parameter, the far end of a name, a stride, a flag."""
    cpu, ctx = backend("CPU"), context()
    state, part, matrix = new(ctx, "state", 64), new(ctx, "part", 16), new(ctx, "matrix", 16, 8)
    pairs: dict[str, list[Any]] = {
        "set": [p("ggml_set_1d_inplace", ctx, state, part, at) for at in (32, 96)],
        "acc": [p("ggml_acc_inplace", ctx, state, part, 64, 64, 64, at) for at in (0, 128)],
        "stride": [],
        "a_name_of_many_bytes": [p("ggml_scale_inplace", ctx, state, 2.0) for _ in range(2)],
    }
    target = p("ggml_view_1d", ctx, state, 8, 0)
    for row in (16, 64):  # the first stride of the source, after it is turned
        view = p("ggml_view_3d", ctx, matrix, 4, 2, 1, row, 512, 0)
        axes = [ctypes.c_int(n) for n in (1, 0, 2, 3)]
        turned = named(p("ggml_permute", ctx, named(view, "view"), *axes), "turned")
        pairs["stride"].append(p("ggml_cpy", ctx, turned, target))
    for name, twins_ in pairs.items():
        for number, end in enumerate(twins_):
            named(end, f"{name}.{number}" if "bytes" in name else name)
    row = named(p("ggml_view_1d", ctx, matrix, 16, 64), "row")
    marked = named(p("ggml_cpy", ctx, row, part), "marked")
    memory = p("ggml_backend_alloc_ctx_tensors", ctx, cpu)
    call("ggml_backend_buffer_clear", memory, ctypes.c_uint8(0), result=None)
    base = call("ggml_backend_buffer_get_base", memory)
    print(
        json.dumps({name: call("ggml_get_data", _made[name]) - base for name in ("state", "part", "matrix")})
    )
    for twins_ in pairs.values():
        for end in twins_:
            compute(cpu, graph_of(ctx, end))
    compute(cpu, graph_of(ctx, marked))
    call("ggml_set_input", matrix, result=None)  # of the root, not of the view that is read
    compute(cpu, graph_of(ctx, marked))


def queues() -> None:
    """Two test devices: copies, events, what is declined."""
    one, two, ctx = backend("TAPE0"), backend("TAPE1"), context()
    a = new(ctx, "a", 64)
    assert p("ggml_backend_alloc_ctx_tensors", ctx, one)
    ctx2 = context()
    b = new(ctx2, "b", 64)
    assert p("ggml_backend_alloc_ctx_tensors", ctx2, two)
    source, back = (ctypes.c_float * 64)(*range(64)), (ctypes.c_float * 64)()
    call("ggml_backend_tensor_set_async", one, a, source, 0, 256, result=None)
    call("ggml_backend_tensor_copy_async", one, two, a, b, result=None)
    event = p("ggml_backend_event_new", device("TAPE0"))
    call("ggml_backend_event_wait", two, event, result=None)
    for _ in range(2):
        call("ggml_backend_event_record", event, one, result=None)
        call("ggml_backend_event_wait", two, event, result=None)
    call("ggml_backend_event_synchronize", event, result=None)
    call("ggml_backend_tensor_get_async", two, b, back, 16, 128, result=None)
    call("ggml_backend_synchronize", two, result=None)
    call("ggml_backend_synchronize", one, result=None)
    assert list(back)[:32] == list(range(4, 36)), list(back)
    call("ggml_backend_event_free", event, result=None)
    call("ggml_backend_free", two, result=None)
    again = backend("TAPE1")
    call("ggml_backend_synchronize", again, result=None)
    call("ggml_backend_free", again, result=None)
    call("ggml_backend_free", one, result=None)


def buffers() -> None:
    """Allocation, free, blocking access; ids are never reused though addresses may be."""
    types = [call("ggml_backend_dev_buffer_type", device(n)) for n in ("TAPE0", "CPU")]
    for type_ in types:
        for _ in range(3):
            buffer = p("ggml_backend_buft_alloc_buffer", _P(type_), 4096)
            call("ggml_backend_buffer_clear", buffer, ctypes.c_uint8(1), result=None)
            call("ggml_backend_buffer_free", buffer, result=None)
    one, ctx = backend("TAPE0"), context()
    t = new(ctx, "t", 16, 8)
    assert p("ggml_backend_alloc_ctx_tensors", ctx, one)
    data = (ctypes.c_uint8 * 512)()
    call("ggml_backend_tensor_set", t, data, 32, 100, result=None)
    call("ggml_backend_tensor_get", t, data, 8, 16, result=None)
    call("ggml_backend_tensor_memset", t, ctypes.c_uint8(7), 0, 64, result=None)


def late() -> None:
    """Memory from before the recorder came is known when it is first touched, and its end is seen."""
    ctx, early = context(), backend("CPU")
    a, b = new(ctx, "a", 64), new(ctx, "b", 64)
    total = named(p("ggml_add", ctx, a, b), "total")
    memory = p("ggml_backend_alloc_ctx_tensors", ctx, early)
    load_plugin()
    compute(backend("CPU"), graph_of(ctx, total))
    call("ggml_backend_buffer_free", memory, result=None)


def extra() -> None:
    """Types beside the CPU's own: ggml makes a CPU buffer and replaces some of its functions."""
    cpu = device("CPU")
    kinds = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)
    reg = p("ggml_backend_dev_backend_reg", cpu)
    get = kinds(call("ggml_backend_reg_get_proc_address", reg, b"ggml_backend_dev_get_extra_bufts"))
    types, i = get(cpu), 0
    while types[i]:
        buffer = p("ggml_backend_buft_alloc_buffer", _P(types[i]), 4096)
        call("ggml_backend_buffer_clear", buffer, ctypes.c_uint8(1), result=None)
        call("ggml_backend_buffer_free", buffer, result=None)
        i += 1
    print(i)


def load_plugin() -> None:
    assert p("ggml_backend_load", os.environ["TAPEDELAY_PLUGIN"].encode()), "the plugin was refused"


def main() -> int:
    case = {f.__name__: f for f in (accesses, twins, queues, buffers, extra, late)}[sys.argv[1]]
    if case is not late:
        load_plugin()
    case()
    return 0


if __name__ == "__main__":
    sys.exit(main())
