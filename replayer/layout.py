"""Where the bytes of a tape lie in real memory: as recorded, or scaled down with every overlap kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..formats.errors import Unsupported

__all__ = ["FEWER", "FULL_LIMIT_BYTES", "SCALE_DOWN", "WORD_BYTES", "Layout"]

WORD_BYTES = 8
"""Values in memory are as long as that; a scaled-down range is made of whole words."""

FULL_LIMIT_BYTES = 2 << 30
"""More real memory than that is refused."""

FEWER = "replay fewer ops (--ops a:b), or on the virtual backend"
SCALE_DOWN = f"scale memory down (--compact; Options(compact=True)), {FEWER}"

_ROOT_ALIGN = 64
_MAX_BYTE = 1 << 60

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Real memory for the root buffers that are touched.

    Scaled down (`compact`), the borders of all ranges cut each root into segments; a segment keeps its length
    in words, at least one and at most `words` of them; what nothing touches between them keeps one. So two
    ranges have the same in common as recorded: nothing, a part, or all of one; no two segments share a word.
    As recorded, a byte keeps its place in its 8-byte word, and its distance to all others of its root.

    Attributes
    ----------
    compact : bool
        Scaled down.
    bytes : int
        Size of it all; a multiple of 64.
    begin, end : numpy.ndarray of int64, shape (n,)
        Where each range that was given lies now, in bytes.
    root : numpy.ndarray of int32, shape (roots,)
        Roots that are touched, ascending.
    root_begin, root_end : numpy.ndarray of int64, shape (roots,)
        Where they lie now, in bytes: multiples of 8.
    border_key : numpy.ndarray of int64, shape (borders,)
        Index of the root of each border, ascending.
    border_recorded, border_real : numpy.ndarray of int64, shape (borders,)
        Borders of the ranges, in recorded bytes of the root and in real bytes; ascending within a root.
    """

    compact: bool
    bytes: int
    begin: Int64s
    end: Int64s
    root: npt.NDArray[np.int32]
    root_begin: Int64s
    root_end: Int64s
    border_key: Int64s
    border_recorded: Int64s
    border_real: Int64s

    @staticmethod
    def of(
        root: npt.ArrayLike,
        begin: npt.ArrayLike,
        end: npt.ArrayLike,
        *,
        compact: bool = True,
        words: int = 4,
        limit_bytes: int = FULL_LIMIT_BYTES,
        where: str = "",
    ) -> Layout:
        """Lay out what some ranges touch.

        Parameters
        ----------
        root : array of int, shape (n,)
            Root buffer of each range.
        begin, end : array of int, shape (n,)
            Bytes of the root; ``begin < end``.
        compact : bool
            Scale down.
        words : int
            Longest segment when scaled down, in words.
        limit_bytes : int
            More is refused.
        where : str
            Name of the tape, for the message.

        Raises
        ------
        Unsupported
            It needs more than `limit_bytes`.
        """
        roots = np.asarray(root, np.int64)
        begins, ends = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        if not (roots.shape == begins.shape == ends.shape and roots.ndim == 1):
            raise ValueError("root, begin and end are not of one length")
        if (begins >= ends).any():
            raise ValueError("a range is empty")
        if len(ends) and max(int(ends.max()), -int(begins.min())) > _MAX_BYTE:
            raise _too_much(int(ends.max()), limit_bytes, compact, where)
        names, keys = _numbered(roots)
        border_key, recorded, low, high = _borders(keys, begins, ends)
        length = _lengths(border_key, recorded)
        if compact:
            length = _scaled_down(length, low, high, words)
        count = len(names)
        total = float(length.sum(dtype=np.float64)) + count * _ROOT_ALIGN
        if total > limit_bytes:
            raise _too_much(int(total), limit_bytes, compact, where)
        # As if all roots stood one behind the other; then each root goes to its own place.
        offset = np.cumsum(length) - length
        first = np.searchsorted(border_key, np.arange(count))
        last = np.append(first[1:], len(border_key))[:count] - 1
        shift = np.zeros(count, np.int64) if compact else recorded[first] % WORD_BYTES
        size = _rounded(offset[last] - offset[first] + shift, WORD_BYTES)
        space = _rounded(size, _ROOT_ALIGN)
        root_begin = np.cumsum(space) - space
        real = offset + (root_begin + shift - offset[first])[border_key]
        return Layout(
            compact,
            int(space.sum()),
            real[low],
            real[high],
            names.astype(np.int32),
            root_begin,
            root_begin + size,
            border_key,
            recorded,
            real,
        )

    def place(self, root: int) -> int:
        """Return the index of a root in `root`, or -1 where nothing touches it."""
        at = int(np.searchsorted(self.root, root))
        return at if at < len(self.root) and self.root[at] == root else -1

    def recorded(self, root: int, begin: int, end: int) -> tuple[int, int]:
        """Return the bytes of a root, as recorded, for some of its real bytes.

        Parts of a segment that was scaled down stand for all of it; what no range holds is left out.
        """
        low, high = np.searchsorted(self.border_key, [self.place(root), self.place(root) + 1])
        real, recorded = self.border_real[low:high], self.border_recorded[low:high]
        if not self.compact:
            move = int(recorded[0] - real[0])
            return max(begin + move, int(recorded[0])), min(end + move, int(recorded[-1]))
        left = int(np.searchsorted(real, begin, side="right")) - 1
        right = int(np.searchsorted(real, end, side="left"))
        return int(recorded[left]), int(recorded[right])


def _numbered(roots: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct roots, ascending, and the place of each one among them."""
    if not len(roots) or int(roots.min()) < 0 or int(roots.max()) > 10_000_000:
        return np.unique(roots, return_inverse=True)
    there = np.zeros(int(roots.max()) + 1, bool)
    there[roots] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[roots]


def _borders(keys: Int64s, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Return the distinct borders (index of the root, byte), and those of each range."""
    key, at = np.concatenate((keys, keys)), np.concatenate((begins, ends))
    if not len(key):
        return key, at, key, key
    low, high = int(at.min()), int(at.max())
    span = high - low + 1
    if (int(key.max()) + 1) * span < 1 << 63:  # both in one number, which sorts faster
        at -= low
        at += key * span
        both = np.unique(at)
        index = np.searchsorted(both, at)
        key, at = both // span, both % span + low
    else:
        by = np.lexsort((at, key))
        key, at = key[by], at[by]
        new = np.ones(len(key), bool)
        new[1:] = (key[1:] != key[:-1]) | (at[1:] != at[:-1])
        index = np.empty(len(key), np.int64)
        index[by] = np.cumsum(new) - 1
        key, at = key[new], at[new]
    return key, at, index[: len(keys)], index[len(keys) :]


def _lengths(key: Int64s, recorded: Int64s) -> Int64s:
    """Return the bytes from each border to the next of the same root; none after the last."""
    length = np.zeros(len(key), np.int64)
    if len(key):
        length[:-1] = np.where(key[1:] == key[:-1], recorded[1:] - recorded[:-1], 0)
    return length


def _scaled_down(length: Int64s, low: Int64s, high: Int64s, words: int) -> Int64s:
    """Return the bytes that segments keep; what no range covers keeps one word."""
    count = len(length)
    covered = np.cumsum(np.bincount(low, minlength=count) - np.bincount(high, minlength=count))
    kept = np.clip(-(-length // WORD_BYTES), 1, np.where(covered > 0, words, 1)) * WORD_BYTES
    return np.where(length > 0, kept, 0)


def _rounded(size: Int64s, unit: int) -> Int64s:
    return -(-size // unit) * unit


def _too_much(needed: int, limit: int, compact: bool, where: str) -> Unsupported:
    return Unsupported(
        f"the buffers need {needed:,} bytes of real memory" + (", even scaled down" if compact else ""),
        expected=f"at most {limit:,}",
        where=where,
        next_step=FEWER if compact else SCALE_DOWN,
    )
