"""Events that are recorded more than once: a wait takes the record that was newest when it was issued."""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import Pattern
from .script import Pair, verdict_lines

__all__ = ["event_patterns", "event_pool", "newest_record"]

_HEAD = "device host host\ndevice gpu0 gpu\nhost H host\n"


def _head(*queues: str) -> str:
    return _HEAD + "".join(f"queue {q} gpu0\n" for q in queues)


def newest_record(records: int, waits_after: int, *, taken: bool = False, again: bool = False) -> Pattern:
    """Return one event, recorded behind each of several kernels; another queue waits once and reads all.

    Parameters
    ----------
    records : int
        Kernels, each with a record of the event behind it.
    waits_after : int
        How many of them were recorded when the wait is issued.
    taken : bool
        A third queue records the event before the wait.
    again : bool
        A third queue records it after the wait, which changes nothing.
    """
    rows: list[str] = []
    for i in range(records + 1):
        if i == waits_after:
            rows += ["t | record | idle | | | e"] if taken else []
            rows.append("w | wait | b | | | e")
            rows += ["g | record | idle | | | e"] if again else []
        if i < records:
            rows.append(f"k{i} | kernel | a | | A[{64 * i}:{64 * i + 64}]")
            rows.append(f"r{i} | record | a | | | e")
    rows.append(f"use | kernel | b | A[0:{64 * records}] | Y")
    bad = taken or waits_after < records
    pairs: list[Pair] = [(f"k{records - 1}", "use", "RAW", "A")] if bad else []
    variant = f"waits-after-{waits_after}" + ("-taken" if taken else "") + ("-again" if again else "")
    return Pattern(
        f"events/newest-of-{records}/{variant}",
        _head("a", "b", "idle") + "\n".join(rows) + "\n" + verdict_lines("race", pairs),
        pairs[0][0] if pairs else "",
    )


def event_pool(events: int, lag: int, rounds: int, producers: int) -> Pattern:
    """Return producers that take turns with a pool of events; the consumer waits some rounds behind.

    Round i uses event ``i % events``. Where the consumer lags by more rounds than there are events, its wait
    finds a later record, of another producer if the numbers are such: then the kernel that it needed is not
    covered, unless an earlier wait went far enough on that producer's queue.
    """
    rows: list[str] = []
    pairs: list[Pair] = []
    covered: dict[int, int] = {}

    def consume(i: int, made: int) -> None:
        rows.append(f"w{i} | wait | use | | | e{i % events}")
        rows.append(f"u{i} | kernel | use | A[{64 * i}:{64 * i + 64}] | Y[{64 * i}:{64 * i + 64}]")
        newest = made - 1 - (made - 1 - i) % events
        queue = newest % producers
        covered[queue] = max(covered.get(queue, -1), newest)
        if covered.get(i % producers, -1) < i:
            pairs.append((f"k{i}", f"u{i}", "RAW", "A"))

    for i in range(rounds):
        rows.append(f"k{i} | kernel | p{i % producers} | | A[{64 * i}:{64 * i + 64}]")
        rows.append(f"r{i} | record | p{i % producers} | | | e{i % events}")
        if i >= lag:
            consume(i - lag, i + 1)
    for i in range(max(rounds - lag, 0), rounds):
        consume(i, rounds)
    return Pattern(
        f"events/pool-of-{events}-lag-{lag}/{rounds}-rounds-{producers}-producers",
        _head(*(f"p{p}" for p in range(producers)), "use")
        + "\n".join(rows)
        + "\n"
        + verdict_lines("race", pairs),
        pairs[0][0] if pairs else "",
    )


def event_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of events that are recorded again."""
    for n in (1, 2, 5):
        for waits_after in range(n + 1):
            yield newest_record(n, waits_after)
        yield newest_record(n, n, taken=True)
        yield newest_record(n, n, again=True)
    pools = [(1, 0), (1, 1), (2, 1), (3, 2), (3, 3), (3, 4), (5, 7)]
    if full:
        pools += [(events, lag) for events in range(1, 6) for lag in range(11) if (events, lag) not in pools]
    for events, lag in pools:
        for producers in (1, 2, 3) if full else (1, 2):
            yield event_pool(events, lag, 8, producers)
