"""Open and check a decode-like tape: ops per second on one core, and memory per op.

python bench/check_speed.py [OPS] [SEED]
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.write import write_tape
from tapedelay.replayer.check import check_tape

LAYERS = 32
ROW = 1024
"""Bytes that a token adds to one layer's KV cache."""
ACTIVATION = 8192


def decode_tape(ops: int, seed: int = 1, *, race: bool = False) -> Tape:
    """Return a tape of decoded tokens on 2 devices with 4 queues each, issued and read by 2 host threads.

    Per token: input written by the host and copied, 32 layers with a KV append and a read of the whole
    prefix, a copy between the devices, logits copied back and read by a second thread, a scratch range handed
    out anew. With `race`, the copy between the devices is not waited for in the middle token.
    """
    rng = random.Random(seed)
    b = TapeBuilder()
    host = b.device(name="CPU", kind="host", profile="ggml-host")
    gpus = [b.device(name=f"GPU{i}", kind="gpu") for i in range(2)]
    main = b.queue(device=host, name="main", kind="host_thread")
    sampler = b.queue(device=host, name="sampler", kind="host_thread")
    names = ("compute", "in", "out", "aux")
    queues = [{n: b.queue(device=g, name=f"{n}{i}") for n in names} for i, g in enumerate(gpus)]
    tokens = ops // (LAYERS + 21) + 1
    inputs = b.buffer(device=host, name="inputs", bytes=ACTIVATION, kind="pinned")
    logits = b.buffer(device=host, name="logits", bytes=ACTIVATION, kind="pinned")
    arena = [b.buffer(device=g, name=f"arena{i}", bytes=64 * ACTIVATION) for i, g in enumerate(gpus)]
    weights = [
        b.buffer(device=g, name=f"weights{i}", bytes=1 << 30, kind="weights") for i, g in enumerate(gpus)
    ]
    cache = [b.buffer(device=g, name=f"kv{i}", bytes=LAYERS * tokens * ROW) for i, g in enumerate(gpus)]

    def touch(buffer: int, offset: int, size: int, mode: str, **more: int) -> dict[str, object]:
        return {"buffer": buffer, "offset": offset, "bytes": size, "mode": mode, **more}

    def layer_set(layer: int, device: int, shift: int) -> int:
        begin = layer * tokens * ROW
        return b.access_set(
            [
                touch(weights[device], layer << 20, 1 << 20, "read"),
                touch(arena[device], (layer % 2) * ACTIVATION, ACTIVATION, "read"),
                touch(cache[device], begin, ROW, "write", offset_per_arg=ROW),
                touch(cache[device], begin, ROW, "read", bytes_per_arg=ROW),
                touch(arena[device], 4 * ACTIVATION + shift, ACTIVATION, "write"),
                touch(arena[device], ((layer + 1) % 2) * ACTIVATION, ACTIVATION, "write"),
            ]
        )

    layers = [layer_set(n, n * 2 // LAYERS, 0) for n in range(LAYERS)]
    shifted = [layer_set(n, n * 2 // LAYERS, 512) for n in range(LAYERS)]
    write_input = b.access_set([touch(inputs, 0, ACTIVATION, "write")])
    copy_in = b.access_set([touch(inputs, 0, ACTIVATION, "read"), touch(arena[0], 0, ACTIVATION, "write")])
    between = b.access_set([touch(arena[0], 0, ACTIVATION, "read"), touch(arena[1], 0, ACTIVATION, "write")])
    copy_out = b.access_set([touch(arena[1], 0, ACTIVATION, "read"), touch(logits, 0, ACTIVATION, "write")])
    read_logits = b.access_set([touch(logits, 0, ACTIVATION, "read")])
    events = {n: b.sync(name=n) for n in ("landed", "first", "moved", "second", "out", "sampled", "scratch")}

    def record(name: str, queue: int, issuer: int = main) -> int:
        return b.op(kind="record", queue=queue, issuer=issuer, sync=events[name], access_set=0)

    def wait(name: str, queue: int, record_op: int, issuer: int = main) -> None:
        b.op(kind="wait", queue=queue, issuer=issuer, sync=events[name], sync_of=record_op, access_set=0)

    q0, q1 = queues
    sampled = None
    for token in range(tokens):
        if sampled is not None:
            wait("sampled", main, sampled)
        b.op(kind="host", queue=main, issuer=main, access_set=write_input, step=token)
        b.op(kind="copy", queue=q0["in"], issuer=main, access_set=copy_in, step=token)
        wait("landed", q0["compute"], record("landed", q0["in"]))
        parent = arena[token % 2]
        slot = (8 + rng.randrange(32)) * ACTIVATION
        scratch = b.buffer(
            device=gpus[token % 2], name="scratch", bytes=ACTIVATION, parent=parent, parent_offset=slot,
            generation=token,
        )  # fmt: skip
        use = b.access_set([touch(scratch, 0, ACTIVATION, "update")])
        row = b.rows("buffers")[scratch]
        row["alloc_op"] = b.op(kind="alloc", queue=main, issuer=main, target=scratch, access_set=0)
        for n in range(LAYERS):
            device = n * 2 // LAYERS
            if n == LAYERS // 2:
                wait("first", q1["aux"], record("first", q0["compute"]))
                b.op(kind="copy", queue=q1["aux"], issuer=main, access_set=between, step=token)
                moved = record("moved", q1["aux"])
                if not (race and token == tokens // 2):
                    wait("moved", q1["compute"], moved)
            known = shifted if rng.random() < 0.01 else layers
            b.op(
                kind="kernel", queue=queues[device]["compute"], issuer=main, access_set=known[n], arg=token,
                step=token,
            )  # fmt: skip
        b.op(kind="kernel", queue=queues[token % 2]["compute"], issuer=main, access_set=use, step=token)
        wait("second", q1["out"], record("second", q1["compute"]))
        b.op(kind="copy", queue=q1["out"], issuer=main, access_set=copy_out, step=token)
        out = record("out", q1["out"])
        b.op(kind="sync", queue=main, issuer=main, target_kind="queue", target=q0["compute"], access_set=0)
        wait("out", sampler, out, sampler)
        b.op(kind="host", queue=sampler, issuer=sampler, access_set=read_logits, step=token)
        sampled = record("sampled", sampler, sampler)
        b.op(kind="sync", queue=main, issuer=main, target_kind="queue", target=q1["compute"], access_set=0)
        row["free_op"] = b.op(kind="free", queue=main, issuer=main, target=scratch, access_set=0)
    return b.build(name="decode")


def main() -> None:
    if sys.argv[1:2] == [
        "--write"
    ]:  # in a process of its own: making the tape must not count as memory of ours
        write_tape(decode_tape(int(sys.argv[3]), int(sys.argv[4]), race=True), sys.argv[2])
        return
    ops = sys.argv[1] if len(sys.argv) > 1 else "100000"
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "decode.tape"
        subprocess.run([sys.executable, __file__, "--write", str(path), ops, seed], check=True)
        size = sum(f.stat().st_size for f in path.iterdir())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, busy = time.perf_counter(), time.process_time()
        tape = load_tape(path, validate=False)
        report = check_tape(tape)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = tape.table("ops").num_rows
    print(f"tape: {rows:,} ops, {size / rows:.1f} bytes/op on disk")
    print(
        f"open + check: {rows / seconds:,.0f} ops/s, {report.accesses_checked / seconds:,.0f} accesses/s "
        f"({seconds:.2f} s, {busy:.2f} s of it on the CPU); "
        f"peak memory {(after - before) * 1024 / rows:,.0f} bytes/op"
    )
    print(f"findings: {report.count('race')} pairs of the one planted race")
    assert report.count("race"), "the planted race was not found"


if __name__ == "__main__":
    main()
