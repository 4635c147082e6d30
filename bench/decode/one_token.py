"""The ops of one token of the bench tape.

Two host threads (main, sampler), devices 1 and 2 with the queues compute, in, out and aux. Main writes the
inputs, hands out scratch ranges and issues all; layers 0-15 run on device 1, 16-31 on device 2; the sampler
waits for the logits and picks the token; main waits for that, then it frees the scratch ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

from .memory import (
    HIDDEN,
    INPUT,
    LAYERS,
    LOGITS,
    PICK,
    RESIDUAL,
    ROPE,
    ROW,
    UNIT,
    Access,
    Memory,
    arena,
    cached,
    layer_sets,
    touch,
    weight,
)

__all__ = ["EVENTS", "QUEUES", "SCRATCHES", "Row", "token_rows"]

QUEUES = ("main", "sampler", "compute1", "in1", "out1", "aux1", "compute2", "in2", "out2", "aux2")
EVENTS = ("sampled", "landed1", "landed2", "roped", "first", "moved", "logits")
SCRATCHES = ((1, 0), (1, 1), (2, 0), (2, 1))
"""Device and range of each scratch memory of a token."""


@dataclass(frozen=True)
class Row:
    """One op of a token.

    Attributes
    ----------
    access_set, other_set : int
        Set, and the one that 1 % of the tokens use instead.
    accesses : tuple of Access
        What an op touches beside its scratch memory.
    event : str
        What it records or waits for.
    target : int
        Queue of a `sync`; number of the scratch memory of an `alloc` or `free`.
    scratch : tuple of (int, str)
        Scratch memories it touches, with the mode: such an op has a set of its own in each token.
    gap_ns, duration_ns : int
        What the issuing thread does before, and how long it takes; `per_position_ps` is added per position.
    """

    kind: str
    name: str
    queue: int
    issuer: int
    access_set: int = 0
    other_set: int = 0
    accesses: tuple[Access, ...] = ()
    event: str = ""
    target: int = -1
    scratch: tuple[tuple[int, str], ...] = ()
    gap_ns: int = 1800
    duration_ns: int = 0
    per_position_ps: int = 0
    arg: bool = False
    bytes: int = -1
    split: int = -1


def token_rows(memory: Memory) -> list[Row]:
    """Return the ops of a token in issue order; adds their sets to `memory`."""
    main, sampler, c1, i1, o1, a1, c2, i2, o2, _ = range(len(QUEUES))
    rows: list[Row] = []

    def record(event: str, queue: int, issuer: int = main) -> None:
        rows.append(Row("record", event, queue, issuer, event=event, gap_ns=600, duration_ns=0))

    def wait(event: str, queue: int, issuer: int = main) -> None:
        rows.append(Row("wait", event, queue, issuer, event=event, gap_ns=500, duration_ns=0))

    def work(kind: str, name: str, queue: int, *accesses: Access, duration_ns: int, size: int = -1) -> None:
        shared = memory.add(*accesses)
        rows.append(Row(kind, name, queue, main, shared, shared, duration_ns=duration_ns, bytes=size))

    rows.append(Row("mark", "step", main, main, gap_ns=300))
    work(
        "host", "write inputs", main,
        touch("inputs", 0, UNIT, "write", "tokens"),
        touch("inputs", UNIT, UNIT, "write", "positions"),
        touch("inputs", 2 * UNIT, 2 * UNIT, "write", "mask"),
        duration_ns=2500,
    )  # fmt: skip
    for d, queue in ((1, i1), (2, i2)):
        work(
            "copy", "inputs", queue,
            touch("inputs", 0, 2 * UNIT, "read", "tokens"),
            touch("inputs", 2 * UNIT, 2 * UNIT, "read", "mask"),
            arena(d, INPUT, "write", "mask", 2 * UNIT),
            arena(d, INPUT + 2 * UNIT, "write", "tokens", 2 * UNIT),
            duration_ns=4000, size=4 * UNIT,
        )  # fmt: skip
        record(f"landed{d}", queue)
    wait("landed1", a1)
    work(
        "kernel", "rope", a1,
        arena(1, INPUT + 2 * UNIT, "read", "positions"),
        touch("weights1", 1 << 29, 4096, "read", "frequencies"),
        arena(1, ROPE, "write", "rope"),
        duration_ns=2600,
    )  # fmt: skip
    record("roped", a1)
    for n in range(len(SCRATCHES)):
        rows.append(Row("alloc", "scratch", main, main, target=n, gap_ns=200, duration_ns=250))
    wait("roped", c1)
    rows.append(Row("memset", "scratch", c1, main, scratch=((0, "write"),), duration_ns=1200, bytes=4096))
    embed = (
        weight(1, 0, 15, "embeddings"),
        arena(1, INPUT + 2 * UNIT, "read", "tokens"),
        arena(1, RESIDUAL, "write", "residual"),
    )
    rows.append(
        Row(
            "kernel",
            "embed",
            c1,
            main,
            accesses=embed,
            scratch=((0, "update"), (1, "write")),
            duration_ns=3100,
        )
    )
    for layer in range(LAYERS):
        c = c1 if layer < LAYERS // 2 else c2
        if layer == LAYERS // 2:
            _second_device(memory, rows)
        plain, shifted = layer_sets(memory, layer, 0), layer_sets(memory, layer, 512)
        for n, (name, took, per) in enumerate(
            (("qkv", 5200, 0), ("attention", 4100, 400), ("project", 3300, 0), ("forward", 9800, 0))
        ):
            rows.append(
                Row(
                    "kernel", f"{name}-{layer}", c, main, plain[n], shifted[n], arg=n < 2,
                    duration_ns=took, per_position_ps=per, split=1 + (c == c2),
                )
            )  # fmt: skip
    norm = (
        weight(2, 31, 13, "norm"),
        arena(2, RESIDUAL, "read", "residual"),
        arena(2, HIDDEN, "write", "hidden"),
    )
    rows.append(
        Row("kernel", "norm", c2, main, accesses=norm, scratch=((2, "read"), (3, "write")), duration_ns=1900)
    )
    head = (
        weight(2, 31, 14, "head"),
        arena(2, HIDDEN, "read", "hidden"),
        arena(2, LOGITS, "write", "logits"),
    )
    rows.append(Row("kernel", "head", c2, main, accesses=head, scratch=((3, "read"),), duration_ns=21000))
    work(
        "kernel", "penalties", c2,
        arena(2, LOGITS, "update", "logits"), arena(2, INPUT, "read", "mask"), duration_ns=2300,
    )  # fmt: skip
    work("kernel", "softmax", c2, arena(2, LOGITS, "update", "logits"), duration_ns=2900)
    work(
        "kernel", "argmax", c2,
        arena(2, LOGITS, "read", "logits"), arena(2, PICK, "write", "pick", 64), duration_ns=2200,
    )  # fmt: skip
    record("logits", c2)
    wait("logits", o2)
    work(
        "copy", "logits", o2,
        arena(2, LOGITS, "read", "logits"), touch("logits", 0, UNIT, "write", "logits"),
        duration_ns=3800, size=UNIT,
    )  # fmt: skip
    rows.append(Row("sync", "swapped", main, main, target=o1, gap_ns=700))
    rows.append(Row("sync", "logits", sampler, sampler, target=o2, gap_ns=900))
    sample = memory.add(
        touch("logits", 0, UNIT, "read", "logits"), touch("logits", 2 * UNIT, 64, "write", "picked")
    )
    rows.append(Row("host", "sample", sampler, sampler, sample, sample, gap_ns=400, duration_ns=6500))
    rows.append(Row("record", "sampled", sampler, sampler, event="sampled", gap_ns=300))
    wait("sampled", main)
    for n in range(len(SCRATCHES)):
        rows.append(Row("free", "scratch", main, main, target=n, gap_ns=200, duration_ns=150))
    return rows


def _second_device(memory: Memory, rows: list[Row]) -> None:
    """Add what lies between the devices: the copy, the first device's cache swapped out beside it."""
    main, _, c1, _, o1, _, c2, _, _, a2 = range(len(QUEUES))
    rows.append(Row("record", "first", c1, main, event="first", gap_ns=600))
    rows.append(Row("wait", "first", o1, main, event="first", gap_ns=500))
    swap = memory.add(
        *(
            touch("kv1", cached(1, layer, part), ROW, "read", "k" if part == 0 else "v", offset_per_arg=ROW)
            for layer in (0, 15)
            for part in (0, 1)
        ),
        touch("swap", 0, ROW, "write", "swap", offset_per_arg=ROW),
    )
    rows.append(Row("copy", "swap out", o1, main, swap, swap, duration_ns=3000, arg=True, bytes=ROW))
    rows.append(Row("wait", "first", a2, main, event="first", gap_ns=500))
    between = memory.add(arena(1, RESIDUAL, "read", "residual"), arena(2, RESIDUAL, "write", "residual"))
    rows.append(Row("copy", "residual", a2, main, between, between, duration_ns=5600, bytes=UNIT))
    rows.append(Row("record", "moved", a2, main, event="moved", gap_ns=600))
    rows.append(Row("wait", "moved", c2, main, event="moved", gap_ns=500))
    rows.append(Row("wait", "landed2", c2, main, event="landed2", gap_ns=500))
    rows.append(Row("memset", "scratch", c2, main, scratch=((2, "write"),), duration_ns=1200, bytes=4096))
