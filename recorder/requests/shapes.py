"""What the fields of a frame may hold: a writer puts nothing else there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from ...formats.requests.words import ANSWER_WORDS, BLOCK_ACTIONS, DECISION_KINDS, INPUT_KINDS
from .layout import ANSWER, BLOCK, DECISION, INPUT, INT_MAX, SCHEDULER

__all__ = ["fault_of_event", "fault_of_frame"]

Check = Callable[[Any], bool]
_WORD = re.compile(r"[A-Za-z0-9_.+,-]{0,120}")
_UNITS_MAX = 1 << 20
"""Units of one event."""


def fault_of_frame(frame: list[Any]) -> str:
    """Say what is wrong with a frame; empty if nothing is. Its events are checked one by one."""
    shape = _SHAPES.get(frame[0]) if type(frame[0]) is int else None
    if shape is None or len(frame) != len(shape):
        return "a frame of an unknown kind"
    if not all(what(value) for what, value in zip(shape, frame, strict=True)):
        return f"a frame of kind {frame[0]} with something else in a field"
    return ""


def fault_of_event(event: Any) -> str:
    """Say what is wrong with an event; empty if nothing is."""
    shape = _EVENTS.get(event[0]) if isinstance(event, list) and event and type(event[0]) is int else None
    if shape is None:
        return "an event of an unknown kind"
    if event[0] == BLOCK:
        good = len(shape) <= len(event) <= _UNITS_MAX and all(map(_count, event[len(shape) :]))
    else:
        good = len(event) == len(shape)
    if not good or not all(what(value) for what, value in zip(shape, event, strict=False)):
        return "an event with something else in a field"
    return ""


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT_MAX


def _small(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _int(value: Any) -> bool:
    return type(value) is int and -INT_MAX <= value <= INT_MAX


def _after(value: Any) -> bool:
    return type(value) is int and -1 <= value < 1 << 31


def _flag(value: Any) -> bool:
    return type(value) is bool


def _word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _or_none(what: Check) -> Check:
    return lambda value: value is None or what(value)


def _place(words: Sequence[str]) -> Check:
    return lambda value: type(value) is int and 0 <= value < len(words)


def _list(what: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(what, value))


def _fields(*shape: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(shape)
        and all(w(v) for w, v in zip(shape, value, strict=True))
    )


def _config(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _word(k) and (v is None or type(v) is bool or _int(v) or _finite(v) or _word(v))
        for k, v in value.items()
    )


def _finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _any(value: Any) -> bool:
    return True


_SHAPES: dict[int, tuple[Check, ...]] = {
    SCHEDULER: (
        _any, _small, _word, _word, _config, _list(_fields(_word, _count, _count, _or_none(_count))),
    ),
    INPUT: (
        _any, _small, _place(INPUT_KINDS), _count, _or_none(_small), _or_none(_list(_small)),
        _or_none(_count), _or_none(_count), _or_none(_flag), _or_none(_int), _or_none(_word), _or_none(_int),
        _list(
            _fields(
                _small, _or_none(_after), _or_none(_count), _or_none(_count), _or_none(_int),
                _or_none(_list(_word)), _or_none(_count), _or_none(_int),
            )
        ),
        _list(_fields(_small, _small, _count, _count)),
        lambda value: isinstance(value, list),
        _list(_fields(_small, _count, _count)),
    ),
}  # fmt: skip
_EVENTS: dict[int, tuple[Check, ...]] = {
    DECISION: (_any, _place(DECISION_KINDS), _small, _or_none(_count), _or_none(_count)),
    ANSWER: (_any, _small, _count, _or_none(_place(ANSWER_WORDS))),
    BLOCK: (_any, _place(BLOCK_ACTIONS), _small, _or_none(_small)),
}
