"""How two values differ, in words: exactly, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...formats.errors import UsageError

__all__ = ["Compare", "difference"]

Compare = Callable[[Any, Any], "bool | str | None"]
"""Takes the reference and another value. Returns True or None where they agree, False or words where not."""

_SHOWN = 80
_AROUND = 24


def difference(reference: Any, value: Any, compare: Compare | None = None) -> str:
    """Return where a value differs from the reference first; empty: nowhere.

    Parameters
    ----------
    reference, value : Any
        What two runs gave.
    compare : callable, optional
        Decides in place of exact equality.

    Raises
    ------
    UsageError
        The function of the user failed, or returned something else.
    """
    if compare is None:
        return _difference(reference, value, "")
    name = getattr(compare, "__qualname__", "compare")
    try:
        said = compare(reference, value)
        if said is True or said is None:
            return ""
        if said is False:
            return _difference(reference, value, "") or f"{name} tells them apart"
        if isinstance(said, str):
            return said
        said = bool(said)  # numpy's
    except Exception as e:
        raise UsageError(
            f"the comparison failed: {type(e).__name__}: {e}",
            expected="True or None where the values agree, else False or a text",
            where=name,
        ) from e
    return "" if said else _difference(reference, value, "") or f"{name} tells them apart"


def _difference(a: Any, b: Any, where: str) -> str:
    if type(a) is not type(b):
        return _words(where, f"{_short(a)} ({type(a).__name__})", f"{_short(b)} ({type(b).__name__})")
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return _words(f"{where} keys", _short(sorted(a, key=repr)), _short(sorted(b, key=repr)))
        return next((d for k in a if (d := _difference(a[k], b[k], f"{where}[{k!r}]"))), "")
    if isinstance(a, list | tuple):
        pairs = enumerate(zip(a, b, strict=False))
        found = next((d for i, (x, y) in pairs if (d := _difference(x, y, f"{where}[{i}]"))), "")
        return found or ("" if len(a) == len(b) else _words(f"{where} length", str(len(a)), str(len(b))))
    if isinstance(a, bytes | str):
        return "" if a == b else _first(a, b, where)
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        return _arrays(a, b, where)
    return "" if repr(a) == repr(b) else _words(where, _short(a), _short(b))  # NaN equals NaN, -0.0 not 0.0


def _first(a: bytes | str, b: bytes | str, where: str) -> str:
    """Return where two texts part."""
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    begin = max(0, at - _AROUND)
    unit = "byte" if isinstance(a, bytes) else "character"
    cut = [repr(t[begin : at + _AROUND]) for t in (a, b)]
    return _words(f"{where} from {unit} {at:,} on".strip(), f"...{cut[0]}" if begin else cut[0], cut[1])


def _arrays(a: Any, b: Any, where: str) -> str:
    import numpy as np

    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return _words(f"{where} array", f"{a.dtype} {a.shape}", f"{b.dtype} {b.shape}")
    if a.tobytes() == b.tobytes():
        return ""
    one, two = np.atleast_1d(a), np.atleast_1d(b)
    size = one.dtype.itemsize
    parts = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) for x in (one, two)]
    differ = (parts[0] != parts[1]).any(axis=1)
    first = int(np.argmax(differ))
    index = ", ".join(str(int(i)) for i in np.unravel_index(first, one.shape))
    told = _words(f"{where}[{index}]", _short(one.flat[first]), _short(two.flat[first]))
    more = f"; {int(differ.sum()):,} of {one.size:,} elements differ"
    if one.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            most = np.nanmax(np.abs(one.astype(float) - two.astype(float)))
        more += f", by {most:.6g} at most"
    return told + more


def _words(where: str, a: str, b: str) -> str:
    return f"{where or 'value'}: {a} on synchronous devices, {b} under the plan".strip()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
