"""Values with identity in host memory; `kernels.cl` says the same for device memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["MASK", "Bytes", "digest", "first_of", "fold", "lost", "mark_of", "mix", "pattern", "stamp_of"]

Bytes = npt.NDArray[np.uint8]

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """Return splitmix64 of a 64-bit number."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def _mix_all(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def stamp_of(op: int, seq: int, seen: int) -> int:
    """Return what access `seq` of an op writes once the op has seen `seen`."""
    return mix(mix((mix(op ^ 0x5354414D50) + seq) & MASK) ^ seen)


def mark_of(op: int) -> int:
    """Return what stands in a range while an op is at it."""
    return mix(op ^ 0x4D41524B)


def first_of(root: int) -> int:
    """Return the content of a root buffer before the first op."""
    return mix(root ^ 0x4649525354)


def fold(reads: Iterable[tuple[int, int, int]]) -> int:
    """Return what an op has seen, from its reads: (seq, digest as it began, digest as it ended)."""
    return sum(mix((b + mix(seq) + (mix(a) if a != b else 0)) & MASK) for seq, b, a in reads) & MASK


def digest(content: Bytes, nominal: int) -> int:
    """Return the digest of bytes that begin at address `nominal`; it adds up over neighbouring ranges."""
    if not len(content):
        return 0
    weight = _mix_all(np.arange(nominal, nominal + len(content), dtype=np.uint64))
    return int(((content.astype(np.uint64) + np.uint64(1)) * weight).sum(dtype=np.uint64))


def pattern(value: int, nominal: int, count: int) -> Bytes:
    """Return `count` bytes of a value that begin at address `nominal`."""
    eight = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
    return np.resize(np.roll(eight, -(nominal % 8)), count)


def lost(content: Bytes, nominal: int, mark: int) -> npt.NDArray[np.bool_]:
    """Return which bytes, in whole words, do not hold a mark any more."""
    differs = content != pattern(mark, nominal, len(content))
    word = (np.arange(nominal, nominal + len(content)) // 8) - nominal // 8
    found: npt.NDArray[np.bool_] = np.bincount(word, differs)[word] > 0 if len(content) else differs
    return found
