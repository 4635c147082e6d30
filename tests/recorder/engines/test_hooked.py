"""Hooks around methods: what they hear, and that a fault of theirs never reaches who calls the method."""

from __future__ import annotations

from typing import Any

import pytest

from tapedelay.recorder.engines.hooked import Guard, Hook, Unknown, either, wrap


class Listener:
    def __init__(self) -> None:
        self.faults: list[Exception] = []
        self.heard: list[Any] = []
        self.guard = Guard(self.faults.append)


def engine() -> type:
    class Engine:
        def __init__(self, listener: Listener | None) -> None:
            self.listener = listener
            self.calls = 0

        def work(self, value: int, *, twice: bool = False) -> int:
            """Double a value."""
            self.calls += 1
            if value < 0:
                raise ValueError("negative")
            return value * (2 + 2 * twice)

    return Engine


def find(made: Any) -> Listener | None:
    listener: Listener | None = made.listener
    return listener


def test_a_hook_hears_what_a_method_is_given_and_what_it_returns() -> None:
    cls, listener = engine(), Listener()
    hook = Hook(
        before=lambda listener, made, value, twice=False: ("before", value, twice),
        after=lambda listener, made, note, result, value, **named: listener.heard.append((note, result)),
        failed=lambda listener, made, note: listener.heard.append((note, "failed")),
    )
    wrap(cls, "work", hook, find)
    wrap(cls, "work", hook, find)  # once
    assert cls.work.__doc__ == "Double a value."  # type: ignore[attr-defined]
    made = cls(listener)
    assert made.work(3, twice=True) == 12
    with pytest.raises(ValueError, match="negative"):
        made.work(-1)
    assert listener.heard == [(("before", 3, True), 12), (("before", -1, False), "failed")]
    assert cls(None).work(3) == 6
    assert len(listener.heard) == 2
    assert not listener.faults


def test_either_hears_both_ends() -> None:
    cls, listener = engine(), Listener()
    over = either(lambda _, made, value: value, lambda listener, made, note: listener.heard.append(note))
    wrap(cls, "work", over, find)
    made = cls(listener)
    made.work(1)
    with pytest.raises(ValueError, match="negative"):
        made.work(-2)
    assert listener.heard == [1, -2]


def fails(listener: Listener, *_: Any, **__: Any) -> None:
    listener.heard.append("it")
    raise MemoryError("full")


@pytest.mark.parametrize("hook", [Hook(fails), Hook(after=fails), Hook(failed=fails)])
def test_a_fault_is_told_once_and_ends_what_is_heard(hook: Hook) -> None:
    cls, listener = engine(), Listener()
    wrap(cls, "work", hook, find)
    made = cls(listener)
    for _ in range(2):
        assert made.work(2) == 4
        with pytest.raises(ValueError, match="negative"):
            made.work(-1)
    assert made.calls == 4
    assert listener.heard == ["it"]
    assert [str(f) for f in listener.faults] == ["full"]
    assert not listener.guard.alive


def test_an_interruption_goes_through_and_ends_what_is_heard() -> None:
    listener = Listener()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        listener.guard.hear(interrupted)
    assert [str(f) for f in listener.faults] == ["interrupted by KeyboardInterrupt"]
    assert listener.guard.hear(len, "abc") is None


def test_what_telling_a_fault_raises_goes_through() -> None:
    def raises(fault: Exception) -> None:
        raise fault

    with pytest.raises(ZeroDivisionError):
        Guard(raises).hear(lambda: 1 // 0)


def test_a_method_that_is_not_there_is_named() -> None:
    with pytest.raises(Unknown, match="Engine has no rest"):
        wrap(engine(), "rest", Hook(), find)
