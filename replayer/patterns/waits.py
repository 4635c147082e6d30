"""One hand-over between queues or to a host thread, by every means: right, missing, misplaced, foreign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .pattern import Pattern
from .script import aim

__all__ = ["HAZARDS", "MEANS", "Means", "handover", "wait_patterns"]

_HEAD = """device host host
device gpu0 gpu
device gpu1 gpu
host H host
host T host
queue a gpu0
queue b gpu1
queue c gpu1
"""

HAZARDS = {
    "raw": ("", "M", "M", "", "RAW"),
    "war": ("M", "", "", "M", "WAR"),
    "waw": ("", "M", "", "M", "WAW"),
    "update": ("", "M:update", "", "M:update", "RAW"),
    "reduced": ("", "M:reduce", "M", "", "RAW"),
    "scatter": ("", "M:may_write", "M", "", "RAW"),
    "part": ("", "M[0:96]", "M[64:160]", "", "RAW"),
}
"""What the first op reads and writes, what the second does, and the hazard without order."""


@dataclass(frozen=True)
class Means:
    """How the first op (``x``, on queue ``a``) may be made to come before the second (``y``).

    Attributes
    ----------
    host : bool
        The second op runs on host thread H, otherwise on queue ``b``.
    rows : dict of str to tuple of str
        Per variant, the rows in issue order, with ``x`` and ``y`` where the two ops stand. ``clean`` is the
        right one.
    """

    host: bool
    rows: dict[str, tuple[str, ...]]


def _sync(host_target: str, wrong: str) -> dict[str, tuple[str, ...]]:
    sync = f"s | sync | H | | | {host_target}"
    return {
        "clean": ("x", sync, "y"),
        "missing": ("x", "y"),
        "too-early": (sync, "x", "y"),
        "too-late": ("x", "y", sync),
        "other-target": ("x", f"s | sync | H | | | {wrong}", "y"),
        "other-thread": ("x", f"s | sync | T | | | {host_target}", "y"),
    }


def _event(waiter: str) -> dict[str, tuple[str, ...]]:
    record, wait = "r | record | a | | | e", f"w | wait | {waiter} | | | e"
    return {
        "clean": ("x", record, wait, "y"),
        "missing": ("x", "y"),
        "unrecorded": ("x", wait, "y"),
        "recorded-too-late": ("x", wait, record, "y"),
        "recorded-too-early": (record, "x", wait, "y"),
        "waited-too-late": ("x", record, "y", wait),
        "foreign": ("x", record, f"{wait} | state=foreign", "y"),
        "never-recorded": ("x", record, f"{wait} | state=none", "y"),
        "other-queue-records": ("x", "r | record | c | | | e", wait, "y"),
        "other-queue-waits": ("x", record, "w | wait | c | | | e", "y"),
        "other-event": ("x", record, f"w | wait | {waiter} | | | f", "y"),
        "recorded-again": ("x", record, "g | record | c | | | e", wait, "y"),
        "older-record": ("g | record | a | | | e", "x", record, f"{wait} | of=g", "y"),
    }


def _semaphore(waiter: str, value: str) -> dict[str, tuple[str, ...]]:
    more = f" | value={value}" if value else ""
    signal, wait = f"r | semsig | a | | | s{more}", f"w | semwait | {waiter} | | | s{more}"
    rows = {
        "clean": ("x", signal, wait, "y"),
        "missing": ("x", "y"),
        "signalled-too-early": (signal, "x", wait, "y"),
        "waited-too-late": ("x", signal, "y", wait),
        "other-queue-signals": ("x", f"r | semsig | c | | | s{more}", wait, "y"),
        "other-queue-waits": ("x", signal, f"w | semwait | c | | | s{more}", "y"),
        "never-signalled": ("x", wait, "y"),
    }
    if value:
        rows["smaller-value"] = (
            "g | semsig | a | | | s | value=1", "x", signal, f"w | semwait | {waiter} | | | s | value=1", "y",
        )  # fmt: skip
        rows["too-great-a-value"] = ("x", signal, f"w | semwait | {waiter} | | | s | value=9", "y")
    return rows


def _any(waiter: str) -> dict[str, tuple[str, ...]]:
    first, second = "r | record | a | | | e", "g | record | a | | | f"
    wait = f"w | wait_any | {waiter} | | | e,f"
    return {
        "clean": ("x", first, second, wait, "y"),
        "one-elsewhere": ("x", first, "g | record | c | | | f", wait, "y"),
        "one-too-early": (first, "x", second, wait, "y"),
        "one-unrecorded": ("x", first, wait, "y"),
    }


_COLLECTIVE = {
    "clean": ("x", "j | coll | a | | | j", "k | coll | b | | | j", "y"),
    "missing": ("x", "y"),
    "one-too-early": ("j | coll | a | | | j", "x", "k | coll | b | | | j", "y"),
    "one-too-late": ("x", "j | coll | a | | | j", "y", "k | coll | b | | | j"),
    "two-of-them": ("x", "j | coll | a | | | j", "k | coll | b | | | k", "y"),
    "other-queue": ("x", "j | coll | a | | | j", "k | coll | c | | | j", "y"),
}

_EDGE = {
    "clean": ("x", "y", "edge x -> y data"),
    "missing": ("x", "y"),
    "other-op": ("x", "z | kernel | c | | Z", "y", "edge x -> z data"),
}

MEANS = {
    "event": Means(False, _event("b")),
    "host-event": Means(True, _event("H")),
    "sync-queue": Means(True, _sync("a", "b")),
    "sync-device": Means(True, _sync("device:gpu0", "device:gpu1")),
    "semaphore": Means(False, _semaphore("b", "")),
    "timeline": Means(False, _semaphore("b", "2")),
    "host-semaphore": Means(True, _semaphore("H", "")),
    "wait-any": Means(False, _any("b")),
    "collective": Means(False, _COLLECTIVE),
    "edge": Means(False, _EDGE),
}
"""By which means; every variant but ``clean`` leaves the two ops unordered."""

_STUCK = ("never-signalled", "too-great-a-value")


def handover(means: str, variant: str, hazard: str) -> Pattern:
    """Return the hand-over by one of `MEANS`, in one of its variants, with one of `HAZARDS`."""
    how = MEANS[means]
    reads, writes, then_reads, then_writes, name = HAZARDS[hazard]
    first, second = ("copy", "a"), ("host" if how.host else "kernel", "H" if how.host else "b")
    rows = [
        {
            "x": f"x | {first[0]} | {first[1]} | {reads} | {writes}",
            "y": f"y | {second[0]} | {second[1]} | {then_reads} | {then_writes}",
        }.get(row, row)
        for row in how.rows[variant]
    ]
    if variant == "clean":
        verdict, held = "clean", ("", "")
    elif variant in _STUCK:
        verdict, held = "deadlock: w", ("", "")
    else:
        verdict = f"{'possible' if hazard == 'scatter' else 'race'}: x x y {name} M"
        held = aim(("x", "y", name, "M"))
    return Pattern(f"waits/{means}-{hazard}/{variant}", _HEAD + "\n".join(rows) + f"\n{verdict}\n", *held)


def wait_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of hand-overs: every means and variant, hazards in turn or all of them."""
    for turn, (means, how) in enumerate(MEANS.items()):
        for i, variant in enumerate(how.rows):
            names = list(HAZARDS)
            chosen = names if full or variant == "clean" else [names[(turn + i) % len(names)]]
            for hazard in chosen:
                yield handover(means, variant, hazard)
