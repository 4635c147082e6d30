"""Builds a graph with ggml's own functions and gives it to a scheduler; test_tap.py judges what was recorded.

usage: scheduler_calls.py; environment: PYTHONPATH with xllamacpp, and that of `record --tap`. Prints, as
JSON, what ggml itself says about the graph before the scheduler got it, and what the scheduler made of it.
"""

from __future__ import annotations

import ctypes
import json
from ctypes import c_bool, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

from xllamacpp import xllamacpp

F32, I32, I64 = 0, 26, 27
_lib = ctypes.CDLL(xllamacpp.__file__)
# As a library that is linked with ggml finds them: the program, what was preloaded, then the engine.
_global = ctypes.CDLL(None)


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class Tensor(ctypes.Structure):
    """``ggml_tensor`` of ggml.h."""

    _fields_ = (
        ("type", c_int), ("buffer", c_void_p), ("ne", c_int64 * 4), ("nb", c_size_t * 4), ("op", c_int),
        ("op_params", c_int32 * 16), ("flags", c_int32), ("src", c_void_p * 10), ("view_src", c_void_p),
        ("view_offs", c_size_t), ("data", c_void_p), ("name", c_char * 64), ("extra", c_void_p),
    )  # fmt: skip


class Pointer(ctypes.c_void_p):
    """A pointer that stays one when it is returned."""


def call(name: str, *arguments: Any, result: Any = Pointer) -> Any:
    """Call an exported function; plain integers are 64-bit, floats are C floats."""
    library = _global if "sched" in name and hasattr(_global, name) else _lib
    function = getattr(library, name)
    function.restype = result
    kinds = {int: ctypes.c_int64, float: ctypes.c_float}
    return function(*[kinds[type(a)](a) if type(a) in kinds else a for a in arguments])


def number(name: str, *arguments: Any) -> int:
    found: int = call(name, *arguments, result=c_int)
    return found


def text(name: str, *arguments: Any) -> str:
    found: bytes = call(name, *arguments, result=c_char_p)
    return found.decode()


def fields(tensor: Any) -> Tensor:
    return ctypes.cast(tensor, ctypes.POINTER(Tensor)).contents


def named(tensor: Any, name: str) -> Any:
    call("ggml_set_name", tensor, name.encode())
    return tensor


def describe(tensor: Any, places: dict[int, int]) -> dict[str, Any]:
    """Return what ggml says about a tensor; `places`: index in the graph by address."""
    t = fields(tensor)
    count = max((i + 1 for i, s in enumerate(t.src) if s), default=0)
    buffer = fields(t.view_src).buffer if t.view_src else t.buffer
    return {
        "name": text("ggml_get_name", tensor),
        "op": text("ggml_op_desc", tensor),
        "dtype": text("ggml_type_name", c_int(t.type)),
        "shape": list(t.ne),
        "strides": list(t.nb),
        "op_params": bytes(t.op_params).hex(),
        "flags": t.flags,
        "sources": [places.get(s, -1) if s else None for s in t.src[:count]],
        "view_source": places.get(t.view_src, -1) if t.view_src else None,
        "view_offset": t.view_offs if t.view_src else None,
        "buffer_usage": ("any", "weights", "compute")[
            number("ggml_backend_buffer_get_usage", Pointer(buffer))
        ]
        if buffer
        else None,
        "host": bool(number("ggml_backend_buffer_is_host", Pointer(buffer)) & 1) if buffer else None,
    }


def main() -> None:
    tape, cpu = (
        call("ggml_backend_dev_init", call("ggml_backend_dev_by_name", n), None) for n in (b"TAPE0", b"CPU")
    )
    weights_ctx = call("ggml_init", _InitParams(1 << 20, None, True))
    weights = named(call("ggml_new_tensor_2d", weights_ctx, c_int(F32), 8, 8), "weights")
    memory = call("ggml_backend_alloc_ctx_tensors", weights_ctx, tape)
    call("ggml_backend_buffer_set_usage", memory, c_int(1), result=None)
    state_ctx = call("ggml_init", _InitParams(1 << 20, None, True))
    state = named(call("ggml_new_tensor_2d", state_ctx, c_int(F32), 8, 4), "state")
    call("ggml_backend_alloc_ctx_tensors", state_ctx, cpu)

    ctx = call("ggml_init", _InitParams(4 << 20, None, True))
    x = named(call("ggml_new_tensor_2d", ctx, c_int(F32), 8, 2), "x")
    rows = named(call("ggml_new_tensor_1d", ctx, c_int(I64), 2), "rows")
    for tensor in (x, rows):
        call("ggml_set_input", tensor, result=None)
    norm = named(call("ggml_rms_norm", ctx, x, 1e-5), "norm")
    product = named(call("ggml_mul_mat", ctx, weights, norm), "product")
    active = named(call("ggml_silu", ctx, product), "active")
    part = named(call("ggml_view_2d", ctx, active, 4, 2, 32, 16), "part")
    dense = named(call("ggml_cont", ctx, part), "dense")
    kept = named(call("ggml_set_rows", ctx, state, active, rows), "kept")
    out = named(call("ggml_scale", ctx, dense, 2.0), "out")
    call("ggml_set_output", out, result=None)
    graph = call("ggml_new_graph", ctx)
    for end in (kept, out):
        call("ggml_build_forward_expand", graph, end, result=None)

    order = [call("ggml_graph_node", graph, c_int(i)) for i in range(number("ggml_graph_n_nodes", graph))]
    leafs = (weights, x, rows, state)
    backends = (c_void_p * 2)(tape.value, cpu.value)
    sched = call("ggml_backend_sched_new", backends, None, c_int(2), 256, c_bool(False), c_bool(True))
    call("ggml_backend_sched_reset", sched, result=None)
    call("ggml_backend_sched_set_tensor_backend", sched, norm, cpu, result=None)
    # Leafs stand in the order in which the graph found them: by their names, which are all different.
    places = {t.value: i for i, t in enumerate(order)}
    places |= {t.value: -10 - i for i, t in enumerate(leafs)}
    told: dict[str, Any] = {
        "nodes": [describe(t, places) for t in order],
        "leafs": [describe(t, places) for t in leafs],
        "pinned": "norm",
    }
    assert call("ggml_backend_sched_alloc_graph", sched, graph, result=c_bool)
    for i in range(3):
        values = (ctypes.c_float * 16)(*(i + 1.0 for _ in range(16)))
        call("ggml_backend_tensor_set", rows, (c_int64 * 2)(0, 2), 0, 16, result=None)
        call("ggml_backend_tensor_set", x, values, 0, 64, result=None)
        assert number("ggml_backend_sched_graph_compute", sched, graph) == 0
        result = (ctypes.c_float * 8)()
        call("ggml_backend_tensor_get", out, result, 0, 32, result=None)
    told["splits"] = number("ggml_backend_sched_get_n_splits", sched)
    told["copies"] = number("ggml_backend_sched_get_n_copies", sched)
    call("ggml_backend_sched_free", sched, result=None)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
