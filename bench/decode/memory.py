"""Memory of the bench tape: buffers, and the access sets that all tokens share."""

from __future__ import annotations

from dataclasses import dataclass, field

LAYERS = 32
POSITIONS = 20_000
"""Tokens that the KV cache holds."""
ROW = 1024
"""Bytes that a token adds to the K (and to the V) of one layer."""
UNIT = 8192
"""Bytes of one activation."""
SCRATCH = 64 * UNIT
"""Bytes of each of the two ranges of an arena that the sub-allocator hands out."""

# ranges of an arena, in bytes
RESIDUAL, QUERY, ATTENDED, HIDDEN, WORK, INNER, INPUT, ROPE, LOGITS, PICK = (n * 4 * UNIT for n in range(10))
ARENA = 10 * 4 * UNIT
"""Where the sub-allocator's ranges begin."""
SHIFT = 512
"""By so much an access of 1 % of the kernels lies beside the others'."""

Access = tuple[str, int, int, str, int, int, str]
"""Buffer, offset, bytes, mode, offset and bytes per position, tensor name."""


@dataclass
class Memory:
    """The buffers that live all the time and the sets on them.

    Attributes
    ----------
    buffers : dict of str to (device, bytes, kind)
        By name, in id order.
    sets : list of tuple of Access
        Set `i + 1` has the accesses `sets[i]`.
    """

    buffers: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    sets: list[tuple[Access, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buffers |= {"inputs": (0, 4 * UNIT, "pinned"), "logits": (0, 4 * UNIT, "pinned")}
        self.buffers["swap"] = (0, POSITIONS * ROW, "pinned")
        for d in (1, 2):
            self.buffers[f"weights{d}"] = (d, 1 << 30, "weights")
            self.buffers[f"kv{d}"] = (d, LAYERS * POSITIONS * ROW, "device")
            self.buffers[f"arena{d}"] = (d, ARENA + 2 * SCRATCH, "device")

    def add(self, *accesses: Access) -> int:
        """Return the id of a new set."""
        self.sets.append(accesses)
        return len(self.sets)


def touch(
    buffer: str,
    offset: int,
    size: int,
    mode: str,
    name: str,
    offset_per_arg: int = 0,
    bytes_per_arg: int = 0,
) -> Access:
    """Return one access."""
    return (buffer, offset, size, mode, offset_per_arg, bytes_per_arg, name)


def weight(device: int, layer: int, index: int, name: str) -> Access:
    """Return the read of one of a layer's 16 weights."""
    return touch(f"weights{device}", (layer * 16 + index) << 20, 1 << 20, "read", name)


def arena(device: int, offset: int, mode: str, name: str, size: int = UNIT) -> Access:
    """Return an access to an arena."""
    return touch(f"arena{device}", offset, size, mode, name)


def cached(device: int, layer: int, part: int) -> int:
    """Return where the K (0) or V (1) of a layer begins in its device's cache."""
    return ((layer % (LAYERS // 2)) * 2 + part) * POSITIONS * ROW


def layer_sets(memory: Memory, layer: int, shift: int) -> tuple[int, int, int, int]:
    """Return the sets of a layer's kernels: qkv, attention, projection, feed-forward.

    With `shift`, what they use to work in lies across the ranges of the others.
    """
    d = 1 + layer * 2 // LAYERS
    kv = f"kv{d}"
    k, v = cached(d, layer, 0), cached(d, layer, 1)
    qkv = memory.add(
        weight(d, layer, 0, "norm"),
        weight(d, layer, 1, "wq"),
        weight(d, layer, 2, "wk"),
        weight(d, layer, 3, "wv"),
        arena(d, RESIDUAL, "read", "residual"),
        arena(d, ROPE, "read", "rope"),
        touch(kv, k, ROW, "write", "k", offset_per_arg=ROW),
        touch(kv, v, ROW, "write", "v", offset_per_arg=ROW),
        arena(d, QUERY + shift, "write", "q"),
    )
    attention = memory.add(
        arena(d, QUERY + shift, "read", "q"),
        touch(kv, k, ROW, "read", "k", bytes_per_arg=ROW),
        touch(kv, v, ROW, "read", "v", bytes_per_arg=ROW),
        arena(d, INPUT, "read", "mask"),
        weight(d, layer, 4, "sinks"),
        arena(d, WORK + shift, "write", "work"),
        arena(d, ATTENDED, "write", "attended"),
    )
    project = memory.add(
        weight(d, layer, 5, "wo"),
        weight(d, layer, 6, "bias"),
        weight(d, layer, 7, "norm2"),
        arena(d, ATTENDED, "read", "attended"),
        arena(d, WORK, "read", "work"),
        arena(d, RESIDUAL, "update", "residual"),
        arena(d, HIDDEN, "write", "hidden"),
    )
    forward = memory.add(
        weight(d, layer, 8, "router"),
        weight(d, layer, 9, "gate"),
        weight(d, layer, 10, "up"),
        weight(d, layer, 11, "down"),
        weight(d, layer, 12, "bias2"),
        arena(d, HIDDEN, "read", "hidden"),
        arena(d, INNER + shift, "write", "inner", 2 * UNIT),
        arena(d, RESIDUAL, "update", "residual"),
    )
    return qkv, attention, project, forward
