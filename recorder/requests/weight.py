"""What a piece of msgpack takes once it is unpacked, found without unpacking it.

One byte may become an empty list of 64 bytes, five may claim a list of four thousand million items. So a long
frame is walked through before: each item says how long it is, and what a list or map holds follows it.
"""

from __future__ import annotations

__all__ = ["weight_of"]

_SLOT, _NUMBER, _TEXT, _LIST, _MAP, _ENTRY = 8, 32, 56, 56, 64, 104
"""Bytes of an item's place in its list, and of the items; null, flags and the smallest numbers take none."""

_NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
"""First byte: bytes that follow."""
_EXTENSIONS = {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_TEXTS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""First byte: bytes that say how long what follows is. Of an extension one byte more does: its kind."""
_LISTS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
"""First byte: bytes that say how many items follow."""


def _known(first: int) -> tuple[int, int]:
    """Return the bytes and the weight of an item, by its first byte; (0, 0): the next ones say so."""
    if first < 0x80 or first >= 0xE0 or 0xC0 <= first <= 0xC3:
        return 1, 0
    if first < 0x90:
        return 1, _MAP + (first & 15) * _ENTRY
    if first < 0xA0:
        return 1, _LIST + (first & 15) * _SLOT
    if first < 0xC0:
        return 1 + (first & 31), _TEXT
    if first in _NUMBERS:
        return 1 + _NUMBERS[first], _NUMBER
    if first in _EXTENSIONS:
        return 1 + _EXTENSIONS[first], 2 * _TEXT
    return 0, 0


_KNOWN = [_known(first) for first in range(256)]


def weight_of(payload: bytes, most: int) -> int:
    """Return about how many bytes a piece of msgpack takes unpacked.

    Parameters
    ----------
    payload : bytes
        Need not be sound: what it claims counts.
    most : int
        From there on it is not looked at further.
    """
    at = weight = 0
    end = len(payload)
    while at < end and weight <= most:
        first = payload[at]
        step, takes = _KNOWN[first]
        if not step:
            step, takes = _counted(payload, at, first)
        at += step
        weight += takes
    return weight


def _counted(payload: bytes, at: int, first: int) -> tuple[int, int]:
    for kind, each, own in ((_LISTS, _SLOT, _LIST), (_MAPS, _ENTRY, _MAP)):
        if first in kind:
            many = int.from_bytes(payload[at + 1 : at + 1 + kind[first]])
            return 1 + kind[first], own + each * many
    length = _TEXTS[first]
    many = int.from_bytes(payload[at + 1 : at + 1 + length])
    return 1 + length + many + (0xC7 <= first <= 0xC9), _TEXT + many
