"""Watches the cache and scheduler of transformers' continuous batching: which unit goes to whom, who ends.

Hooks around methods of the engine's own classes tell a `Sink` what they did. An object without a sink pays
one look-up. The recorder and the rerun watch through the same hooks, so what one writes is what the other
compares.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import Any, Protocol

from ..hooked import Guard, Hook, Hooks, Unknown, either, wrap

__all__ = [
    "HOOKS",
    "PACKAGE",
    "Guard",
    "Sink",
    "Unknown",
    "attach",
    "detach",
    "free_count",
    "free_units",
    "module",
    "patch",
    "pools",
    "put",
    "tell_new",
]

PACKAGE = "transformers.generation.continuous_batching"
"""Where the engine's classes are."""

POOLS = {"full_attention": "kv", "sliding_attention": "window"}
"""Name of the pool of each attention type."""

ATTRIBUTE = "_tapedelay_sink"
"""Name under which a watched object keeps its sink."""


class Sink(Protocol):
    """Who is told.

    Attributes
    ----------
    guard : Guard
        Takes what goes wrong in a hook or in a sink.
    offloading : bool
        Set while the engine takes requests off the cache: it finishes each and queues it anew.
    told : dict
        By pool and request: how many of its units have been told.
    """

    guard: Guard
    offloading: bool
    told: dict[int, dict[str, int]]

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


def patch() -> None:
    """Put the hooks around the methods of the cache and the scheduler. A second call does nothing.

    Raises
    ------
    Unknown
        A class or method is missing.
    """
    put(HOOKS)


def put(hooks: Hooks) -> None:
    """Put hooks around methods of the engine's classes, by module, class and method.

    Raises
    ------
    Unknown
        A class or method is missing.
    """
    for (where, owner, name), (hook, find) in hooks.items():
        wrap(_class(where, owner), name, hook, find)


def _class(where: str, name: str) -> Any:
    owner = getattr(module(where), name, None)
    if owner is None:
        raise Unknown(f"{PACKAGE}.{where} has no {name}")
    return owner


def _sink(watched: Any) -> Sink | None:
    sink: Sink | None = getattr(watched, ATTRIBUTE, None)
    return sink


def tell_new(cache: Any, sink: Sink) -> None:
    """Tell the units that requests have got since: at the end of each step.

    The engine asks for units for each request in each step, and mostly gets none: to listen there would cost
    more than all else. What a request gives back is told to be its own before.
    """
    for allocator in cache.cache_allocators.values():
        tables, told = allocator.block_table, sink.told.setdefault(allocator.index, {})
        sizes = list(map(len, tables.values()))
        known = list(map(told.get, tables))
        if sizes != known:
            for request_id in list(compress(tables, map(ne, sizes, known))):
                _tell_new(sink, allocator, request_id)


def _tell_new(sink: Sink, allocator: Any, request_id: str) -> None:
    table, told = allocator.block_table.get(request_id, ()), sink.told.setdefault(allocator.index, {})
    before = told.get(request_id, 0)
    if len(table) > before:
        sink.blocks("alloc", allocator.index, table[before:], request_id)
    told[request_id] = len(table)


_NOTHING: dict[str, int] = {}


def _acquired(
    sink: Sink, allocator: Any, note: None, result: Any, request_id: str, *_: Any, **__: Any
) -> None:
    shared = list(allocator.block_table[request_id])
    sink.blocks("share", allocator.index, shared, request_id)
    sink.told.setdefault(allocator.index, {})[request_id] = len(shared)


def _units(sink: Sink, allocator: Any, request_id: str, *_: Any, **__: Any) -> list[int]:
    """Return the units that a request has now, all of them told."""
    table = allocator.block_table.get(request_id)
    if table is None:
        return []
    if sink.told.get(allocator.index, _NOTHING).get(request_id) != len(table):
        _tell_new(sink, allocator, request_id)
    return table[:]  # type: ignore[no-any-return]


def _freed(
    sink: Sink, allocator: Any, units: list[int], result: Any, request_id: str, *_: Any, **__: Any
) -> None:
    sink.told.get(allocator.index, {}).pop(request_id, None)
    if units:
        sink.blocks("free", allocator.index, units, request_id)


def _completed(
    sink: Sink, allocator: Any, before: list[int], result: Any, request_id: str, *_: Any, **__: Any
) -> None:
    now = allocator.block_table[request_id]
    if now != before:
        for old, new in zip(before, now, strict=True):
            if old != new:
                sink.blocks("share", allocator.index, (new,), request_id)
                sink.blocks("free", allocator.index, (old,), request_id)
    sink.complete(allocator.index, allocator, request_id)


def _finished(
    sink: Sink, scheduler: Any, note: None, result: Any, request_id: str, *_: Any, **__: Any
) -> None:
    if not sink.offloading:
        sink.ended(request_id)


def _offloads(sink: Sink, manager: Any, *_: Any, **__: Any) -> list[str]:
    sink.offloading = True
    return list(manager.scheduler.active_requests)


def _offloaded(sink: Sink, manager: Any, active: list[str]) -> None:
    sink.offloading = False
    for request_id in active:
        if request_id not in manager.scheduler.active_requests:
            sink.preempted(request_id)


_BASE = ("cache_allocators.cache_allocator", "CacheAllocator")
HOOKS: Hooks = {
    (*_BASE, "acquire_prefix_blocks"): (Hook(after=_acquired), _sink),
    (*_BASE, "free_blocks"): (Hook(_units, _freed), _sink),
    (*_BASE, "mark_complete_blocks"): (Hook(_units, _completed), _sink),
    ("scheduler", "Scheduler", "finish_request"): (Hook(after=_finished), _sink),
    ("offloading_manager", "OffloadingManager", "offload_requests"): (either(_offloads, _offloaded), _sink),
}
"""By module, class and method."""


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
