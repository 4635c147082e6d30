"""What an engine adapter says of inputs that its engine does not have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from .protocol import Unsupported

__all__ = ["Refusing"]


class Refusing:
    """Refuses every input that not all engines have: an adapter's engine overrides those that it has.

    It leaves out those that every engine has: `submit`, `abort`, `step`, `output` and `state`.

    Attributes
    ----------
    engine : str
        What the refusals call the engine.
    lacks : mapping of str to str
        Why an input is refused, by the method's name, where the engine's users would expect it.
    """

    engine: ClassVar[str] = "the engine"
    lacks: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def set_schedulable(self, request: int) -> Any:
        """Refuse: see `Engine`.

        Raises
        ------
        Unsupported
            Always, as the others here.
        """
        self._refuse("set_schedulable", "requests that become schedulable later")

    def next_chunk(self, request: int, tokens: int, last: bool) -> Any:
        """Refuse."""
        self._refuse("next_chunk", "sessions whose prompt goes on")

    def pause(self, word: str) -> Any:
        """Refuse."""
        self._refuse("pause", "pause of its scheduler")

    def resume(self) -> Any:
        """Refuse."""
        self._refuse("resume", "pause of its scheduler")

    def cache_reset(self, word: str) -> Any:
        """Refuse."""
        self._refuse("cache_reset", "cache that is kept for its content")

    def priority(self, request: int, value: int) -> Any:
        """Refuse."""
        self._refuse("priority", "priorities that change")

    def close(self) -> None:
        """Let go of nothing."""

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise Unsupported(f"{self.engine} has no {self.lacks.get(name, what)}")
