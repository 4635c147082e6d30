"""How an engine's methods are listened to: calls of ours beside its own, which never reach it when they fail.

The engine's own method is called always, once, with what it was given; its caller gets what it returns or
raises. Whoever listens has a `Guard`: the first fault of ours is told, and nothing is heard from then on.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ..requests.spool import said

__all__ = ["Guard", "Hook", "Hooks", "Listening", "Unknown", "either", "say", "wrap"]

_MARK = "_tapedelay_hooked"


class Unknown(Exception):
    """This version of an engine does not have what is recorded; says what."""


class Guard:
    """Lets no fault of the hooks of one scheduler reach its engine.

    Parameters
    ----------
    on_fault : callable
        Called once, with what went wrong in a hook. What it raises goes through to whoever called the engine.

    Attributes
    ----------
    alive : bool
        Whether the hooks still hear anything.
    """

    def __init__(self, on_fault: Callable[[Exception], None]) -> None:
        self.alive = True
        self._on_fault = on_fault

    def hear(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call one of ours beside the engine's call; None where it fails, or one before it has failed."""
        if not self.alive:
            return None
        try:
            return method(*args, **kwargs)
        except BaseException as e:
            self.caught(e)
            return None

    def caught(self, fault: BaseException) -> None:
        """Take what one of ours has raised; what is no fault, as Ctrl-C, is raised again."""
        if isinstance(fault, Exception):
            self.end(fault)
            return
        self.end(RuntimeError(f"interrupted by {type(fault).__name__}"))  # half of an input is told
        raise fault

    def end(self, fault: Exception) -> None:
        """Hear nothing any more, and tell why if nothing was told yet."""
        if self.alive:
            self.alive = False
            self._on_fault(fault)


class Listening(Protocol):
    """Who listens to an object of the engine."""

    guard: Guard


Find = Callable[[Any], Listening | None]
"""Returns who listens to an object, None for nobody. It must not raise."""


class Hook(NamedTuple):
    """What is called around one method; with who listens and the method's object first.

    Attributes
    ----------
    before : callable or None
        ``(listener, self, *args, **kwargs) -> note``.
    after : callable or None
        ``(listener, self, note, result, *args, **kwargs)``; after the method has returned.
    failed : callable or None
        ``(listener, self, note)``; after the method has raised.
    """

    before: Callable[..., Any] | None = None
    after: Callable[..., None] | None = None
    failed: Callable[..., None] | None = None


def either(before: Callable[..., Any], over: Callable[[Any, Any, Any], None]) -> Hook:
    """Return a hook that calls ``over(listener, self, note)`` whether the method has returned or raised."""

    def after(listener: Any, where: Any, note: Any, result: Any, *_: Any, **__: Any) -> None:
        over(listener, where, note)

    return Hook(before, after, over)


Hooks = Mapping[tuple[str, ...], tuple[Hook, Find]]
"""What listens at which methods; the last word of a key is the method's name, those before name its class."""


def wrap(owner: Any, name: str, hook: Hook, find: Find) -> None:
    """Put a hook around a method of a class, once.

    Parameters
    ----------
    owner : type
        The engine's class.
    name : str
        The method.
    hook : Hook
    find : Find

    Raises
    ------
    Unknown
        The class has no such method.
    """
    original = getattr(owner, name, None)
    if original is None:
        raise Unknown(f"{getattr(owner, '__name__', owner)} has no {name}")
    if getattr(original, _MARK, False):
        return
    before, after, failed = hook

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        listener = find(self)
        if listener is None:
            return original(self, *args, **kwargs)
        hear = listener.guard.hear
        note = None if before is None else hear(before, listener, self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            if failed is not None:
                hear(failed, listener, self, note)
            raise
        if after is not None:
            hear(after, listener, self, note, result, *args, **kwargs)
        return result

    setattr(method, _MARK, True)
    setattr(owner, name, method)


def say(whose: str, fault: Exception) -> None:
    """Say once that a scheduler is not recorded any more, and why; `whose`: ``vllm's``."""
    why = str(fault) if isinstance(fault, Unknown) else f"{type(fault).__name__}: {fault}"
    said(os.environ.get("TAPEDELAY_SPOOL", ""), f"{whose} scheduler is not recorded any more ({why})")
