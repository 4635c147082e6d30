"""What an engine program returned, as bytes and back: exactly, whatever process it comes from.

A value is made of None, bool, int, float, str, bytes, numpy arrays, lists, tuples (they become lists) and
dicts with plain keys. Stands alone, since it also runs in the engine's process: standard library only, and
numpy where a value holds an array.

The form: 8 bytes, the length of a JSON document (little-endian); the document; the bytes that it points to.
In the document a list is a list, a dict ``{"dict": [[key, value], ...]}``, bytes ``{"bytes": [begin, end]}``
and an array ``{"npy": [begin, end]}``, as `numpy.save` writes it.
"""

from __future__ import annotations

import io
import json
import os
from typing import Any

__all__ = ["NotAValue", "decode", "encode", "is_empty"]

_PLAIN = (bool, int, float, str)
_EXPECTED = "numbers, text, bytes, numpy arrays, and lists and dicts of them"


class NotAValue(ValueError):
    """It cannot be carried from one process to another and compared, or is damaged."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; equal bytes mean equal values, to the last bit.

    Raises
    ------
    NotAValue
        Something in it is none of what a value is made of.
    """
    blobs = bytearray()
    try:
        tree = _packed(value, "the value", blobs)
        document = json.dumps(tree).encode()
    except RecursionError:
        raise NotAValue(f"it is nested too deeply (expected {_EXPECTED})") from None
    return b"".join([len(document).to_bytes(8, "little"), document, blobs])


def decode(data: bytes) -> Any:
    """Return the value again.

    Raises
    ------
    NotAValue
        The bytes are no whole value.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        if len(data) < 8 + length:
            raise ValueError
        return _unpacked(json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :])
    except Exception:  # numpy, too, has many words for it
        raise NotAValue("a damaged value") from None


def is_empty(value: Any) -> bool:
    """Whether there is nothing in it that could differ."""
    if value is None:
        return True
    size = getattr(value, "size", None)
    if isinstance(size, int):
        return size == 0
    return isinstance(value, str | bytes | list | tuple | dict) and not value


def _packed(value: Any, where: str, blobs: bytearray) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, str):  # an enumeration, and such
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):  # numpy's float64
        return float.__float__(value)
    if isinstance(value, list | tuple):
        return [_packed(v, f"{where}[{i}]", blobs) for i, v in enumerate(value)]
    if isinstance(value, dict):
        wrong = [k for k in value if k is not None and not isinstance(k, _PLAIN)]
        if wrong:
            raise NotAValue(f"{where}: a key of type {type(wrong[0]).__name__} (expected text or a number)")
        keys = sorted(value, key=lambda k: (type(k).__name__, repr(k)))  # their order is no difference
        return {
            "dict": [[_packed(k, where, blobs), _packed(value[k], f"{where}[{k!r}]", blobs)] for k in keys]
        }
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": _stored(bytes(value), blobs)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__array__"):
        return {"npy": _stored(_saved(value, where), blobs)}
    raise NotAValue(f"{where} is of type {type(value).__name__} (expected {_EXPECTED})")


def _saved(value: Any, where: str) -> bytes:
    import numpy as np

    try:
        array = np.asarray(value)
        out = io.BytesIO()
        np.save(out, array, allow_pickle=False)
    except Exception as e:  # a tensor on a device, an array of objects
        raise NotAValue(f"{where} is no plain array: {e}") from None
    return out.getvalue()


def _stored(data: bytes, blobs: bytearray) -> list[int]:
    begin = len(blobs)
    blobs += data
    return [begin, len(blobs)]


def _unpacked(tree: Any, blobs: memoryview) -> Any:
    if isinstance(tree, list):
        return [_unpacked(v, blobs) for v in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items()
    if kind == "dict":
        return {_unpacked(k, blobs): _unpacked(v, blobs) for k, v in inner}
    begin, end = inner
    if not 0 <= begin <= end <= len(blobs):
        raise ValueError
    if kind == "bytes":
        return bytes(blobs[begin:end])
    if kind != "npy":
        raise ValueError
    import numpy as np

    return np.load(io.BytesIO(blobs[begin:end]), allow_pickle=False)
