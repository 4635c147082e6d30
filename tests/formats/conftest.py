"""Tapes to test with."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.tape import Coverage, DelayLine, Manifest, Process, Tape

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def make_rich_builder() -> TapeBuilder:
    """Return a valid tape's builder with rows in every table."""
    b = TapeBuilder()
    host = b.device(name="host", kind="host", profile="ggml-host")
    dev = b.device(name="TAPE0", kind="test", profile="mine")
    h = b.queue(device=host, name="H", kind="host_thread")
    q0 = b.queue(device=dev, name="TAPE0", clock_error_ns=50)
    q1 = b.queue(device=dev, name="TAPE0 copy", in_order=False)
    event = b.sync(name="e0", device=dev, process=0)
    sem = b.sync(name="s0", kind="semaphore")
    coll = b.sync(name="all reduce", kind="collective")
    pool = b.buffer(device=dev, name="pool", bytes=1 << 16, kind="pool", shared_key=1)
    sub = b.buffer(
        device=dev, name="KV", bytes=4096, parent=pool, parent_offset=1024, alloc_op=10, free_op=150
    )
    b.buffer(device=host, name="M0 – größer", bytes=None, kind="host")
    grow = b.access_set(
        [
            {"buffer": sub, "offset": 0, "bytes": 64, "bytes_per_arg": 64, "mode": "read", "name": "k"},
            {"buffer": sub, "offset": 64, "offset_per_arg": 64, "bytes": 64, "mode": "update", "name": "k"},
        ]
    )
    paged = b.access_set(
        [
            {
                "buffer": pool,
                "offset": 0,
                "bytes": 256,
                "unit_bytes": 256,
                "mode": "may_write",
                "origin": "inferred",
            }
        ]
    )
    anon = b.access_set([{"buffer": None, "offset": 0, "bytes": 4, "mode": "write", "origin": "declared"}])
    units = b.unit_list([3, 1, 2])
    events = b.unit_list([event, sem])
    graph = b.op(
        op=0, kind="compute", name="split 0", queue=q0, issuer=h, access_set=0, issue_ns=0, step=0, split=0
    )
    b.op(op=10, kind="alloc", queue=h, issuer=h, target=sub, access_set=0, issue_ns=5)
    b.op(
        op=20, kind="kernel", name="mul", queue=q0, issuer=h, parent=graph, access_set=grow, arg=7, issue_ns=9
    )
    b.op(op=30, kind="copy", queue=q1, issuer=h, access_set=paged, list=units, bytes=256, issue_ns=9)
    b.op(op=40, kind="host", queue=h, issuer=h, access_set=anon, issue_ns=10, duration_ns=3)
    record = b.op(op=50, kind="record", queue=q0, issuer=h, sync=event, access_set=0, issue_ns=11)
    b.op(op=60, kind="wait", queue=q1, issuer=h, sync=event, sync_of=record, access_set=0, issue_ns=12)
    b.op(op=70, kind="wait", queue=q1, issuer=h, sync=event, wait_state="unresolved", access_set=0)
    b.op(op=80, kind="wait_any", queue=q1, issuer=h, list=events, access_set=0)
    b.op(op=90, kind="sync", queue=h, issuer=h, target_kind="queue", target=q0, access_set=0)
    b.op(op=95, kind="sync", queue=h, issuer=h, target_kind="all", access_set=0)
    b.op(op=100, kind="semsig", queue=q0, issuer=h, sync=sem, value=3, access_set=0)
    b.op(op=110, kind="semwait", queue=q1, issuer=h, sync=sem, value=3, access_set=0)
    b.op(op=120, kind="coll", queue=q0, issuer=h, sync=coll, access_set=None, label="c")
    b.op(op=130, kind="coll", queue=q1, sync=coll, access_set=None, origin="declared")
    b.op(op=140, kind="destroy", queue=h, issuer=h, sync=event, access_set=0)
    b.op(
        op=150, kind="free", queue=h, issuer=h, target=sub, access_set=0, issue_ns=20, start_after_issue_ns=-1
    )
    b.edge(30, 120, kind="data")
    b.add(
        "graphs", graph=0, process=0, n_nodes=2, n_leafs=1, backend_order=[1, 0], first_op=0, op_offload=True
    )
    node = {"graph": 0, "op": "MUL_MAT", "dtype": "f32", "flags": 0}
    node |= {"shape": [4, 2, 1, 1], "strides": [4, 16, 32, 32]}
    b.add("nodes", node=0, sources=[1, 2], is_input=False, is_output=True, op_params=b"\0\xff", **node)
    b.add("nodes", node=1, sources=[], is_input=True, is_output=False, view_source=2, view_offset=16, **node)
    b.add("nodes", node=2, sources=[-1], is_input=False, is_output=False, buffer_kind="weights", **node)
    b.add("schedulers", scheduler=0, process=0, engine="vllm", engine_version="0.32.0", config='{"slots": 4}')
    b.add("pools", pool=0, scheduler=0, name="kv", units=8, reserved=1, tokens_per_unit=16)
    b.add("pools", pool=1, scheduler=0, name="state", units=4, reserved=0)
    b.add("requests", request=0, scheduler=0, prompt_tokens=12, id_rank=1, flags=["stream", "echo"])
    b.add("requests", request=1, scheduler=0, prompt_tokens=40, max_tokens=9, priority=-1, id_rank=0)
    b.add("prefixes", request=1, of=0, from_tokens=0, to_tokens=12)
    b.add("inputs", input=0, scheduler=0, kind="submit", request=0, at_ns=3)
    b.add("inputs", input=1, scheduler=0, kind="submit", request=1, at_ns=4)
    b.add("inputs", input=2, scheduler=0, kind="step", step=0, at_ns=5, op=20)
    b.add("inputs", input=3, scheduler=0, kind="output", step=0, at_ns=6)
    b.add("inputs", input=4, scheduler=0, kind="abort", requests=[1, 0], at_ns=7)
    b.add("decisions", input=2, seq=1, request=0, kind="prefill", tokens=12, computed_tokens=0)
    b.add("answers", input=3, seq=0, request=0, tokens=1, word="stop")
    b.add("blocks", input=2, seq=0, pool=0, action="alloc", unit=3, request=0)
    b.add("blocks", input=3, seq=1, pool=0, action="free", unit=3, request=0)
    b.add("resources", input=2, pool=0, free=6, used=1)
    b.add("delays", op=20, place="before_start", line=1, asked_ns=1000, true_ns=1004, filler=False)
    b.add("delays", op=20, place="after_end", line=2, asked_ns=9, filler=True)
    b.add("telemetry", at_ns=4, device=1, metric="power", value=12.5, unit="W")
    return b


RICH_MANIFEST = Manifest(
    engine={"name": "llama.cpp", "build": 10229, "api_version": 2},
    profiles={"mine": {"doc": "test", "free_synchronises": True, "blocking_copies": ["d2h"]}},
    processes=(Process(0, records=17, lost=2, wall_offset_ns=1_700_000_000_000_000_000),),
    coverage=(Coverage(0, host_accesses="partial", waits="partial"), Coverage(1)),
    switches={"GGML_SCHED_DEBUG": "off"},
    notes=("split and step: not seen without the tap",),
    lost=2,
    delays=(DelayLine(1, "every kernel +1us before_start", 1), DelayLine(2, "first op +9ns after_end", 1)),
)


@pytest.fixture
def rich_builder() -> TapeBuilder:
    """Return a builder whose rows a test may break."""
    return make_rich_builder()


@pytest.fixture
def rich_tape() -> Tape:
    """Return a valid tape with rows in every table."""
    return make_rich_builder().build(RICH_MANIFEST)


@pytest.fixture
def run_cli() -> Run:
    """Run the command line in a process of its own, optionally with little memory."""

    def run(
        *arguments: Any, memory_bytes: int | None = None, timeout_s: float = 120, cwd: Path | None = None
    ) -> Any:
        def limit() -> None:
            if memory_bytes:
                resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

        return subprocess.run(
            [sys.executable, "-c", "from tapedelay.formats.cli import main; main()", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd,
            preexec_fn=limit,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    return run


@pytest.fixture
def written(rich_tape: Tape, tmp_path: Path) -> Path:
    """Return the rich tape as a directory."""
    from tapedelay.formats.write import write_tape

    return write_tape(rich_tape, tmp_path / "rich.tape")
