"""Slots that are used again: rings with a count of what is free, and ranges that a pool hands out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .pattern import Pattern
from .script import Pair, Script, aim, verdict_lines

__all__ = ["reused_range", "ring", "slot_patterns"]

_HEAD = "device host host\ndevice gpu0 gpu\nhost H host\nqueue make gpu0\nqueue take gpu0\nqueue idle gpu0\n"


def _spans(block: int, size: int, ring_bytes: int) -> list[tuple[int, int]]:
    begin = block * size % ring_bytes
    end = begin + size
    return [(begin, end)] if end <= ring_bytes else [(begin, ring_bytes), (0, end - ring_bytes)]


def _cells(spans: list[tuple[int, int]]) -> str:
    return ", ".join(f"RING[{b}:{e}]" for b, e in spans)


def ring(
    blocks: int,
    *,
    block_bytes: int = 64,
    ring_bytes: int = 256,
    free: Callable[[int], int] = lambda i: 0,
    full: Callable[[int], int] = lambda i: 0,
    silent: int = -1,
) -> tuple[str, list[Pair]]:
    """Return a ring between a maker and a taker as litmus text, and the pairs that race in it.

    Timeline semaphores count the blocks made and the blocks taken. The maker of block i waits until all
    blocks under it were taken; where `block_bytes` does not divide `ring_bytes`, blocks lie across the seam.

    Parameters
    ----------
    blocks : int
        Blocks that go through the ring.
    free, full : callable
        By how much the maker's and the taker's wait for block i asks too little.
    silent : int
        Block whose making is never told; -1: all are.
    """
    rows: list[str] = []
    pairs: list[Pair] = []
    for i in range(blocks):
        spans = _spans(i, block_bytes, ring_bytes)
        under = (block_bytes * (i + 1) - 1 - ring_bytes) // block_bytes  # the last block that lay here
        if under >= 0:
            if under + 1 - free(i) > 0:
                rows.append(f"room{i} | semwait | make | | | freed | value={under + 1 - free(i)}")
            if free(i):
                pairs.append((f"take{under}", f"make{i}", "WAR", "RING"))
        rows.append(f"make{i} | kernel | make | | {_cells(spans)}")
        if i != silent:
            rows.append(f"made{i} | semsig | make | | | filled | value={i + 1}")
        if i + 1 - full(i) > 0:
            rows.append(f"have{i} | semwait | take | | | filled | value={i + 1 - full(i)}")
        if full(i):
            pairs.append((f"make{i}", f"take{i}", "RAW", "RING"))
        rows.append(f"take{i} | kernel | take | {_cells(spans)} | OUT[{64 * i}:{64 * i + 64}]")
        rows.append(f"taken{i} | semsig | take | | | freed | value={i + 1}")
    return _HEAD + "\n".join(rows) + "\n", pairs


def _rings(*, full: bool) -> Iterator[Pattern]:
    shapes = [(6, 64, 256), (7, 96, 256), (5, 64, 64)] + ([(40, 64, 512), (40, 96, 1000)] if full else [])
    for blocks, size, room in shapes:
        name = f"slots/ring{blocks}-{size}-of-{room}"
        made: dict[str, tuple[str, list[Pair]]] = {
            "clean": ring(blocks, block_bytes=size, ring_bytes=room),
            "one-slot-too-many": ring(blocks, block_bytes=size, ring_bytes=room, free=lambda i: 1),
            "taken-too-early": ring(blocks, block_bytes=size, ring_bytes=room, full=lambda i: 1),
        }
        for at in (blocks - 2, blocks - 1):
            made[f"room{at}-too-early"] = ring(
                blocks,
                block_bytes=size,
                ring_bytes=room,
                free=lambda i, at=at: int(i == at),  # type: ignore[misc]
            )
            made[f"have{at}-too-early"] = ring(
                blocks,
                block_bytes=size,
                ring_bytes=room,
                full=lambda i, at=at: int(i == at),  # type: ignore[misc]
            )
        for variant, (text, pairs) in made.items():
            held = aim(pairs[0] if pairs else None)
            yield Pattern(f"{name}/{variant}", text + verdict_lines("race", pairs), *held)
        text, _ = ring(blocks, block_bytes=size, ring_bytes=room, silent=blocks - 1)
        yield Pattern(f"{name}/never-told", text + f"deadlock: have{blocks - 1}\n")


def reused_range(uses: int, queues: int, *, shift: int = 0) -> Script:
    """Return a range of a pool that is handed out again and again, to one queue after another.

    Each user writes it and reads it back. Releasing a range in flight is bookkeeping; that the next user's
    queue does not wait is the fault.

    Parameters
    ----------
    uses, queues : int
        Uses, and queues that take turns.
    shift : int
        Bytes by which each range lies further than the one before, less than 512.
    """
    s = Script(
        f"slots/range{uses}-over{queues}-shift{shift}",
        {f"q{i}": "gpu0" for i in range(queues)},
        header=[f"buffer POOL {1 << 16} device=gpu0 kind=pool", "buffer Y 4096 device=gpu0"],
    )
    for i in range(uses):
        queue, begin = f"q{i % queues}", i * shift
        s.op("alloc", "H", f"a{i}", target=f"S{i}=POOL[{begin}:{begin + 1024}]")
        s.op("kernel", queue, f"w{i}", "", f"S{i}")
        s.op("kernel", queue, f"u{i}", f"S{i}", f"Y[{64 * i}:{64 * i + 64}]")
        s.op("free", "H", f"f{i}", target=f"S{i}")
        if i:
            before = i - 1
            s.link(
                f"u{before}",
                f"w{i}",
                "WAR",
                "POOL",
                (f"w{before}", f"w{i}", "WAW", "POOL"),
                (f"w{before}", f"u{i}", "RAW", "POOL"),
            )
    return s


def slot_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of rings and of ranges that are handed out again."""
    yield from _rings(full=full)
    shapes = [(2, 2, 0), (4, 2, 0), (4, 2, 512 - 64)] + ([(9, 2, 100)] if full else [])
    for turn, (uses, queues, shift) in enumerate(shapes):
        yield from reused_range(uses, queues, shift=shift).patterns(every_way=full or turn < 2, turn=turn)
