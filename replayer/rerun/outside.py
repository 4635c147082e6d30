"""The invariants that can be seen from outside, on the state between two calls.

Standard library only. Each finding is an invariant, the kind of break, and the facts in words.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from .protocol import Pool, PoolState, RequestState, State

__all__ = ["HELD_WHILE_PREEMPTED", "Finding", "at_idle", "between_calls", "fits"]

Finding = tuple[str, str, str]
"""Invariant, kind of break, words."""

HELD_WHILE_PREEMPTED = frozenset({"encoder"})
"""Pools whose units a preempted request may keep."""

_SHOWN = 6


def between_calls(state: State, pools: Mapping[str, Pool], in_flight: int) -> Iterator[Finding]:
    """Yield what is wrong with a scheduler between two calls.

    Parameters
    ----------
    state : State
        What is visible of it.
    pools : mapping of str to Pool
        Its pools.
    in_flight : int
        Steps whose output is outstanding.
    """
    yield from ((invariant, words, words) for invariant, words in state.faults)
    for name, count in state.counters.items():
        if count < 0:
            yield "I7", f"the counter {name} is negative", f"the counter {name} is {count}"
    owned = _owned(state)
    for name, seen in state.pools.items():
        pool = pools.get(name)
        if pool is not None:
            owners = Counter(owned.get(name, ()))
            if not _sound(seen, pool, owners):
                yield from _pool(name, seen, pool, owners, in_flight)
    alive = 0
    for number, request in state.requests.items():
        alive += request.phase != "finished"
        if request.computed_tokens < 0 or request.known_tokens < 0:
            yield (
                "I7",
                "a count of tokens is negative",
                f"R{number} has {request.computed_tokens} computed and {request.known_tokens} known tokens",
            )
        if request.phase == "preempted":
            held = {p: u for p, u in request.units.items() if u and p not in HELD_WHILE_PREEMPTED}
            for p, units in held.items():
                words = f"R{number} is preempted and holds {_units(p, units)}"
                yield "I3", f"a preempted request holds units of {p}", words
        if request.phase in ("prefill", "decode"):
            for p, units in request.units.items():
                size = pools[p].tokens_per_unit if p in pools else None
                if size and request.computed_tokens > len(units) * size:
                    words = f"R{number} has {request.computed_tokens} tokens computed in {len(units)} units"
                    yield "I4", f"more tokens are computed than units of {p} hold", f"{words} of {size}"
        if not request.queue and request.phase in ("waiting", "prefill", "decode", "preempted"):
            words = f"R{number} ({request.phase}) stands in no queue"
            yield "I5", "an unfinished request stands in no queue", words
    if state.unfinished != alive:
        words = f"the scheduler says {state.unfinished} unfinished requests, there are {alive}"
        more = "more" if state.unfinished > alive else "less"
        yield "I7", f"the count of unfinished requests says {more} than there are", words


def at_idle(state: State, pools: Mapping[str, Pool]) -> Iterator[Finding]:
    """Yield what is held though everything has ended.

    Parameters
    ----------
    state : State
        What is visible of the scheduler.
    pools : mapping of str to Pool
        Its pools.
    """
    for number, request in state.requests.items():
        for p, units in request.units.items():
            if units:
                words = f"R{number}, which has ended, still holds {_units(p, units)}"
                yield "I3", f"units of {p} are held when idle", words
    for name, seen in state.pools.items():
        pool = pools.get(name)
        if pool is not None and seen.free != pool.units - pool.reserved:
            missing = pool.units - pool.reserved - seen.free
            words = f"{seen.free} of {pool.units - pool.reserved} units of {name} are free"
            if missing > 0:
                yield "I3", f"units of {name} are held when idle", words
            else:
                yield "I1", f"more units of {name} are free than there are", words


def _owned(state: State) -> dict[str, list[int]]:
    """Return the units of each pool that requests own, one entry for each owner."""
    found: dict[str, list[int]] = {}
    for request in state.requests.values():
        for p, units in request.units.items():
            if p in found:
                found[p] += units
            else:
                found[p] = [*units]
    return found


@functools.lru_cache(maxsize=64)
def _every(reserved: int, units: int) -> frozenset[int]:
    return frozenset(range(reserved, units))


def _sound(seen: PoolState, pool: Pool, owners: Counter[int]) -> bool:
    """Return whether each unit is either free, once, or owned and referenced as often as it has owners.

    So it is after nearly every call; `_pool`, which finds what is wrong where it is not so, costs much more.
    """
    free = seen.free_units
    if free is None or len(free) != seen.free:
        return False
    if seen.references is not None and seen.references != dict(owners):
        return False
    walked, every = frozenset(free), _every(pool.reserved, pool.units)
    whole = len(walked) == len(free) and len(free) + len(owners) == len(every)
    return whole and walked.union(owners) == every


def _pool(name: str, seen: PoolState, pool: Pool, owners: Counter[int], in_flight: int) -> Iterator[Finding]:
    if seen.free < 0:
        yield "I7", f"the free count of {name} is negative", f"{name} has {seen.free} free units"
    free = seen.free_units
    reserved = range(pool.reserved)
    if free is not None:
        walked = Counter(free)
        twice = [u for u, n in walked.items() if n > 1]
        if twice:
            yield "I1", f"a unit of {name} is free twice", f"{_units(name, twice)}: listed twice"
        if len(free) != seen.free:
            words = f"the counter of free {name} units says {seen.free}, the list has {len(free)}"
            yield "I7", f"counter and list of free {name} units disagree", words
        both = [u for u in owners if u in walked and u not in reserved]
        if both:
            yield "I1", f"a unit of {name} is free and owned", f"{_units(name, both)}: free, and owned"
    if seen.references is not None:
        counts = seen.references
        fewer = [u for u, n in owners.items() if u not in reserved and counts.get(u, 0) < n]
        more = [u for u, n in counts.items() if u not in reserved and n > owners.get(u, 0)]
        if fewer:
            words = f"{_units(name, fewer)}: fewer references than owners"
            yield "I1", f"a unit of {name} has fewer references than owners", words
        if more and not in_flight:
            words = f"{_units(name, more)}: referenced by nobody that the scheduler knows"
            yield "I3", f"units of {name} are held by nobody", words
        if free is not None:
            held = [u for u, n in counts.items() if n > 0 and u in walked and u not in reserved]
            if held and not both:
                yield "I1", f"a unit of {name} is free and owned", f"{_units(name, held)}: free, and in use"
    if not in_flight and (seen.references is None or free is not None):
        yield from _lost(name, seen, pool, owners)


def _lost(name: str, seen: PoolState, pool: Pool, owners: Counter[int]) -> Iterator[Finding]:
    """Yield units that are neither free nor owned."""
    what = f"units of {name} are held by nobody"
    owned = {u for u in owners if u >= pool.reserved}
    if seen.free_units is None:
        lost = pool.units - pool.reserved - seen.free - len(owned)
        if lost > 0:
            yield "I3", what, f"{lost} units of {name} are neither free nor owned"
        return
    referenced = seen.references or {}
    known = owned.union(seen.free_units)
    gone = [u for u in range(pool.reserved, pool.units) if u not in known and not referenced.get(u)]
    if gone:
        yield "I3", what, f"{_units(name, gone)}: neither free nor owned"


def _units(pool: str, units: tuple[int, ...] | list[int]) -> str:
    shown = " ".join(f"{pool}{u}" for u in sorted(units)[:_SHOWN])
    return shown + (f" and {len(units) - _SHOWN} more" if len(units) > _SHOWN else "")


def fits(state: State, pools: Iterable[Pool], ask: Callable[[int], bool] | None = None) -> bool:
    """Return whether the free units would do for some request that waits.

    Parameters
    ----------
    state : State
        What is visible of the scheduler.
    pools : iterable of Pool
        Its pools.
    ask : callable, optional
        Says so of a request, where a pool has units of several kinds, or pools share their memory; None: each
        pool has one table of units for each request.
    """
    sizes = [(p.name, p.tokens_per_unit) for p in pools if p.name not in HELD_WHILE_PREEMPTED]
    for number, request in state.requests.items():
        if request.phase not in ("waiting", "prefill", "decode", "preempted"):
            continue
        if ask(number) if ask is not None else _fits(request, state, sizes):
            return True
    return False


def _fits(request: RequestState, state: State, sizes: Iterable[tuple[str, int | None]]) -> bool:
    return all(
        (-(-(request.known_tokens + 1) // size) if size else 1) - len(request.units.get(name, ()))
        <= state.pools[name].free
        for name, size in sizes
        if name in state.pools
    )
