"""Watches the cache and scheduler of transformers' continuous batching: which unit goes to whom, who ends.

Wrappers around methods of the engine's own classes; they call the method first and tell a `Sink` what it did.
An object without a sink pays one look-up. The recorder and the rerun watch through the same wrappers, so what
one writes is what the other compares.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = [
    "PACKAGE",
    "Sink",
    "Unknown",
    "attach",
    "detach",
    "free_count",
    "free_units",
    "module",
    "patch",
    "pools",
]

PACKAGE = "transformers.generation.continuous_batching"
"""Where the engine's classes are."""

POOLS = {"full_attention": "kv", "sliding_attention": "window"}
"""Name of the pool of each attention type."""

ATTRIBUTE = "_tapedelay_sink"
"""Name under which a watched object keeps its sink."""


class Unknown(Exception):
    """This version of transformers does not have what is watched; says which."""


class Sink(Protocol):
    """Who is told."""

    def blocks(self, action: str, pool: int, units: Sequence[int], request_id: str) -> None:
        """Units changed hands: ``alloc``, ``share`` (found by their content, owned or kept), ``free``."""

    def complete(self, pool: int, allocator: Any, request_id: str) -> None:
        """Whole units of a request have become known by their content."""

    def ended(self, request_id: str) -> None:
        """A request was finished."""

    def preempted(self, request_id: str) -> None:
        """A request was taken off the cache, to be computed again."""


def module(name: str) -> Any:
    """Return one of the engine's modules.

    Raises
    ------
    Unknown
        There is none of this name.
    """
    try:
        return importlib.import_module(f"{PACKAGE}.{name}")
    except ImportError as e:
        raise Unknown(f"{PACKAGE}.{name} cannot be imported ({e})") from None


def attach(cache: Any, scheduler: Any, offloading: Any, sink: Sink) -> None:
    """Let `sink` be told what happens to these objects."""
    for watched in (*cache.cache_allocators.values(), scheduler, offloading):
        setattr(watched, ATTRIBUTE, sink)


def detach(cache: Any, scheduler: Any, offloading: Any) -> None:
    """Tell nobody any more."""
    for watched in (*cache.cache_allocators.values(), scheduler, offloading):
        if hasattr(watched, ATTRIBUTE):
            delattr(watched, ATTRIBUTE)


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method by ``around(method, self, *args, **kwargs)``, once.

    Raises
    ------
    Unknown
        The class has no such method.
    """
    method = owner.__dict__.get(name)
    if method is None:
        raise Unknown(f"{owner.__name__} has no {name}")
    if getattr(method, ATTRIBUTE, False):
        return

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(method, self, *args, **kwargs)

    setattr(wrapper, ATTRIBUTE, True)
    setattr(owner, name, wrapper)


def patch() -> None:
    """Put the wrappers around the methods of the cache and the scheduler. A second call does nothing.

    Raises
    ------
    Unknown
        A class or method is missing.
    """
    base = module("cache_allocators.cache_allocator").CacheAllocator
    full = module("cache_allocators.full_attention").FullAttentionCacheAllocator
    wrap(full, "allocate_cache_to_request", _allocate)
    wrap(base, "acquire_prefix_blocks", _acquire)
    wrap(base, "free_blocks", _free)
    wrap(base, "mark_complete_blocks", _complete)
    wrap(module("scheduler").Scheduler, "finish_request", _finish)
    wrap(module("offloading_manager").OffloadingManager, "offload_requests", _offload)


def _allocate(method: Any, self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    if sink is None:
        return method(self, request_id, *args, **kwargs)
    before = len(self.block_table.get(request_id, ()))
    result = method(self, request_id, *args, **kwargs)
    table = self.block_table[request_id]
    if len(table) > before:
        sink.blocks("alloc", self.index, table[before:], request_id)
    return result


def _acquire(method: Any, self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    if sink is None:
        return method(self, request_id, *args, **kwargs)
    result = method(self, request_id, *args, **kwargs)
    sink.blocks("share", self.index, list(self.block_table[request_id]), request_id)
    return result


def _free(method: Any, self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    units = list(self.block_table.get(request_id, ())) if sink is not None else ()
    result = method(self, request_id, *args, **kwargs)
    if units and sink is not None:
        sink.blocks("free", self.index, units, request_id)
    return result


def _complete(method: Any, self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    if sink is None:
        return method(self, request_id, *args, **kwargs)
    before = list(self.block_table.get(request_id, ()))
    result = method(self, request_id, *args, **kwargs)
    for old, new in zip(before, self.block_table[request_id], strict=True):
        if old != new:
            sink.blocks("share", self.index, (new,), request_id)
            sink.blocks("free", self.index, (old,), request_id)
    sink.complete(self.index, self, request_id)
    return result


def _finish(method: Any, self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    result = method(self, request_id, *args, **kwargs)
    if sink is not None:
        sink.ended(request_id)
    return result


def _offload(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    sink = self.__dict__.get(ATTRIBUTE)
    if sink is None:
        return method(self, *args, **kwargs)
    scheduler = self.scheduler
    active = list(scheduler.active_requests)
    # A request that is taken off is finished and queued anew by this call: that is a preemption.
    saved = scheduler.__dict__.pop(ATTRIBUTE, None)
    try:
        return method(self, *args, **kwargs)
    finally:
        if saved is not None:
            setattr(scheduler, ATTRIBUTE, saved)
        for request_id in active:
            if request_id not in scheduler.active_requests:
                sink.preempted(request_id)


def pools(cache: Any) -> list[tuple[str, int, int, int | None]]:
    """Return the pools of a cache, in the order of its allocators: name, units, reserved, tokens of a unit.

    A pool's units are the blocks of one attention type. Its first two sectors are never handed out. Where a
    window slides, a block is used again and again, so it holds no fixed number of tokens.
    """
    rows: list[tuple[str, int, int, int | None]] = []
    for name, allocator in cache.cache_allocators.items():
        reserved = cache.pool.num_reserved_sectors * allocator.blocks_per_sector
        units = reserved + cache.num_sectors * allocator.blocks_per_sector
        tokens = None if hasattr(allocator, "sliding_window") else int(allocator.tokens_per_page)
        rows.append((POOLS.get(name, name), units, reserved, tokens))
    return rows


def free_count(cache: Any, allocator: Any) -> int:
    """Return how many units of an allocator belong to no request, by the engine's own counters.

    Free blocks of its sectors, free sectors, and blocks kept for their content. With several attention types
    also the sectors that another one holds: they come back as soon as they are empty.
    """
    pool = cache.pool
    per = allocator.blocks_per_sector
    count = pool.count_free_blocks(allocator.index) + len(allocator.ledger.cached_blocks)
    if len(cache.cache_allocators) > 1:
        return int(count + (cache.num_sectors - len(sectors(cache, allocator))) * per)
    return int(count + pool.num_free_sectors * per)


def sectors(cache: Any, allocator: Any) -> set[int]:
    """Return the sectors that an allocator holds: those of its free, its owned and its kept blocks."""
    per = allocator.blocks_per_sector
    held = {root for root, blocks in cache.pool._free_blocks[allocator.index].trees.items() if blocks}
    held.update(unit // per for table in allocator.block_table.values() for unit in table)
    held.update(unit // per for unit in allocator.ledger.cached_blocks)
    return held


def free_units(cache: Any, allocator: Any) -> list[int]:
    """Return the units that `free_count` counts, as a walk along the engine's lists finds them."""
    pool, per = cache.pool, allocator.blocks_per_sector
    units = [unit for blocks in pool._free_blocks[allocator.index].trees.values() for unit in blocks]
    units += allocator.ledger.cached_blocks
    whole = list(pool.free_sectors)
    for other in cache.cache_allocators.values():
        if other is not allocator:
            whole += sectors(cache, other)
    units += [sector * per + i for sector in whole for i in range(per)]
    return units
