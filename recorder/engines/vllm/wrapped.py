"""What stands in the place of a method that is listened to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

__all__ = ["Wrapped"]


class Wrapped:
    """Calls `call` where the method `original` of an object was.

    Of a copy of that object, or of one that went through pickle, it is the plain method: what happens to the
    copy happens to the copy, and is not heard.
    """

    __slots__ = ("__wrapped__", "_call")

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self.__wrapped__ = original
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # not there yet
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__wrapped__.__self__, self.__wrapped__.__name__)  # type: ignore[attr-defined]
