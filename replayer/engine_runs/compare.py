"""How two values differ, in words: exactly, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...formats.errors import UsageError

__all__ = ["Compare", "difference"]

Compare = Callable[[Any, Any], "bool | str | None"]
"""Takes the reference and another value. Returns True or None where they agree, False or words where not."""

_SHOWN = 80
_AROUND = 24


def difference(
    reference: Any,
    value: Any,
    compare: Compare | None = None,
    runs: tuple[str, str] = ("on synchronous devices", "under the plan"),
) -> str:
    """Return where a value differs from the reference first; empty: nowhere.

    Parameters
    ----------
    reference, value : Any
        What two runs gave.
    compare : callable, optional
        Decides in place of exact equality.
    runs : (str, str)
        Where each of the two comes from, in words.

    Raises
    ------
    UsageError
        The function of the user failed, or returned something else.
    """

    def exact() -> str:
        found = _difference(reference, value, "")
        return "" if found is None else found.text(runs)

    if compare is None:
        return exact()
    name = getattr(compare, "__qualname__", "compare")
    try:
        said = compare(reference, value)
        if said is True or said is None:
            return ""
        if said is False:
            return exact() or f"{name} tells them apart"
        if isinstance(said, str):
            return said
        said = bool(said)  # numpy's
    except Exception as e:
        raise UsageError(
            f"the comparison failed: {type(e).__name__}: {e}",
            expected="True or None where the values agree, else False or a text",
            where=name,
        ) from e
    return "" if said else exact() or f"{name} tells them apart"


@dataclass(frozen=True)
class _Found:
    """Where two values differ first, how they are shown there, and more about it."""

    where: str
    a: str
    b: str
    more: str = ""

    def text(self, runs: tuple[str, str]) -> str:
        return f"{self.where or 'value'}: {self.a} {runs[0]}, {self.b} {runs[1]}".strip() + self.more


def _difference(a: Any, b: Any, where: str) -> _Found | None:
    if type(a) is not type(b):
        return _Found(where, f"{_short(a)} ({type(a).__name__})", f"{_short(b)} ({type(b).__name__})")
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return _Found(f"{where} keys", _short(sorted(a, key=repr)), _short(sorted(b, key=repr)))
        return next((d for k in a if (d := _difference(a[k], b[k], f"{where}[{k!r}]"))), None)
    if isinstance(a, list | tuple):
        pairs = enumerate(zip(a, b, strict=False))
        found = next((d for i, (x, y) in pairs if (d := _difference(x, y, f"{where}[{i}]"))), None)
        return found or (None if len(a) == len(b) else _Found(f"{where} length", str(len(a)), str(len(b))))
    if isinstance(a, bytes | str):
        return None if a == b else _first(a, b, where)
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        return _arrays(a, b, where)
    return None if repr(a) == repr(b) else _Found(where, _short(a), _short(b))  # NaN equals NaN, -0.0 not 0.0


def _first(a: bytes | str, b: bytes | str, where: str) -> _Found:
    """Return where two texts part."""
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    begin = max(0, at - _AROUND)
    unit = "byte" if isinstance(a, bytes) else "character"
    cut = [repr(t[begin : at + _AROUND]) for t in (a, b)]
    return _Found(f"{where} from {unit} {at:,} on".strip(), f"...{cut[0]}" if begin else cut[0], cut[1])


def _arrays(a: Any, b: Any, where: str) -> _Found | None:
    import numpy as np

    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return _Found(f"{where} array", f"{a.dtype} {a.shape}", f"{b.dtype} {b.shape}")
    if a.tobytes() == b.tobytes():
        return None
    one, two = np.atleast_1d(a), np.atleast_1d(b)
    size = one.dtype.itemsize
    parts = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) for x in (one, two)]
    differ = (parts[0] != parts[1]).any(axis=1)
    first = int(np.argmax(differ))
    index = ", ".join(str(int(i)) for i in np.unravel_index(first, one.shape))
    more = f"; {int(differ.sum()):,} of {one.size:,} elements differ"
    if one.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            most = np.nanmax(np.abs(one.astype(float) - two.astype(float)))
        more += f", by {most:.6g} at most"
    return _Found(f"{where}[{index}]", _short(one.flat[first]), _short(two.flat[first]), more)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
