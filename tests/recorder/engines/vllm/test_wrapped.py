"""A method that is listened to, of an object and of its copies."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

from tapedelay.recorder.engines.vllm.wrapped import Wrapped


class Pool:
    def __init__(self) -> None:
        self.free = 3

    def take(self, count: int) -> int:
        """Take some."""
        self.free -= count
        return self.free


def listened() -> tuple[Any, list[int]]:
    pool, heard = Pool(), list[int]()
    original = pool.take

    def take(*args: Any) -> int:
        heard.append(*args)
        return original(*args)

    pool.take = Wrapped(original, take)  # type: ignore[method-assign]
    return pool, heard


def test_the_object_is_heard_and_its_method_looks_as_before() -> None:
    pool, heard = listened()
    assert pool.take(1) == 2
    assert heard == [1]
    assert pool.take.__name__ == "take"
    assert inspect.signature(pool.take) == inspect.signature(Pool().take)


def test_what_happens_to_a_copy_happens_to_the_copy() -> None:
    pool, heard = listened()
    for copied in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert copied.take(2) == copied.free == 1
    assert pool.free == 3
    assert heard == []
