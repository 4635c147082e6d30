"""A second judge of replays of tiny tapes: bytes in a list, every pair of accesses compared.

It takes the times of a run as given and says which reads saw something else than in the reference order. Like
`brute_force`, whose relations it uses, it shares no code with the package but the table reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tapedelay.formats.tape import Tape

from .brute_force import READ_LIKE, USERS, WRITE_LIKE, BruteForce

__all__ = ["BruteReplay", "Judged"]

Value = Any
"""What stands in one byte; equal values are equal objects to compare."""


@dataclass
class Judged:
    """What is wrong in a run.

    Attributes
    ----------
    reads : set of (int, int)
        Row and row of `accesses`.
    torn : set of (int, int)
        Those during which a write went on.
    at_end : set of int
        Root buffers whose content at the end is wrong.
    freed : set of (int, int)
        Row and row of `accesses`: used before its alloc or after its free.
    destroyed : set of int
        Rows that use a sync object that is destroyed.
    """

    reads: set[tuple[int, int]] = field(default_factory=set)
    torn: set[tuple[int, int]] = field(default_factory=set)
    at_end: set[int] = field(default_factory=set)
    freed: set[tuple[int, int]] = field(default_factory=set)
    destroyed: set[int] = field(default_factory=set)


@dataclass
class Use:
    """One access of a unit that runs."""

    row: int
    seq: int
    access: int
    root: int
    spread: set[int]
    mode: str
    saw: tuple[Value, ...] = ()
    torn: bool = False
    torn_bytes: set[int] = field(default_factory=set)


Code = int
"""A group that starts, or ``~group`` where it ends."""


class BruteReplay:
    """The accesses of a tape, and its reference order."""

    def __init__(self, tape: Tape, max_ops: int = 40) -> None:
        self.rules = BruteForce(tape, max_ops)
        self.rules.order()
        clock = {t: g for g, t in self.rules.started.items()} | {t: ~g for g, t in self.rules.ended.items()}
        self.reference: list[Code] = [clock[t] for t in sorted(clock)]
        self.rows_of: dict[int, list[int]] = {}
        for row, group in enumerate(self.rules.group):
            self.rows_of.setdefault(group, []).append(row)
        number = {id(a): i for i, a in enumerate(self.rules.accesses)}
        self.touched = {
            row: [
                Use(row, a["seq"], number[id(a)], root, spread, a["mode"])
                for root, spread, a in self.rules.touched(row)
            ]
            for row in range(self.rules.n)
        }
        self.expected, self.final = self.play(self.reference, False)

    def inside(self, one: int, other: int) -> bool:
        """Whether two groups are the same, or one is part of the other."""
        return one == other or one in self.rules.ancestors(other) or other in self.rules.ancestors(one)

    def events(self, start_ns: Sequence[int], done_ns: Sequence[int]) -> list[Code]:
        """Return starts and ends by time; of one instant, first the ends of what began before."""
        place = {code: i for i, code in enumerate(self.reference)}

        def key(code: Code) -> tuple[int, bool, int]:
            group = code if code >= 0 else ~code
            row = self.rows_of[group][0]
            if code >= 0:
                return int(start_ns[row]), True, place[code]
            whole = any(group in self.rules.parents[g] for g in self.rules.groups)
            return int(done_ns[row]), whole or done_ns[row] == start_ns[row], place[code]

        return sorted(self.reference, key=key)

    def play(
        self, events: Sequence[Code], overlaps: bool
    ) -> tuple[dict[tuple[int, int], Use], dict[tuple[int, int], Value]]:
        """Execute the events; return what each access saw and what stands in each byte at the end."""
        memory: dict[tuple[int, int], Value] = {}
        active: dict[int, list[Use]] = {}
        seen: dict[tuple[int, int], Use] = {}
        for code in events:
            if code >= 0:
                mine = [
                    Use(u.row, u.seq, u.access, u.root, u.spread, u.mode)
                    for row in self.rows_of[code]
                    for u in self.touched[row]
                ]
                for u in mine:
                    if u.mode != "write":
                        u.saw = tuple(memory.get((u.root, b), "initial") for b in sorted(u.spread))
                    seen[u.row, u.access] = u
                for group, others in active.items() if overlaps else ():
                    if not self.inside(group, code):
                        for u in mine:
                            for v in others:
                                self.overlap(u, v)
                active[code] = mine
                continue
            ends = active.pop(~code)
            # what any member of a collective reads goes into what all of them write
            digest = tuple(
                ("torn", x.row, x.access) if x.torn else x.saw for x in ends if x.mode != "reduce" and x.saw
            )
            for u in ends:
                for b in sorted(u.spread) if u.mode != "read" else ():
                    at = (u.root, b)
                    if b in u.torn_bytes:
                        memory[at] = ("torn bytes", u.row, u.access)
                    elif u.mode == "reduce":
                        base, parts = _reduced(memory.get(at, "initial"))
                        memory[at] = ("reduced", base, parts ^ {(u.row, u.seq, _short(digest))})
                    else:
                        memory[at] = ("written", u.row, u.seq, _short(digest))
        return seen, memory

    @staticmethod
    def overlap(one: Use, other: Use) -> None:
        """Mark what two accesses in flight at once do to each other."""
        common = one.spread & other.spread
        if one.root != other.root or not common:
            return
        both = (one.mode, other.mode)
        for u, v in ((one, other), (other, one)):
            if u.mode in ("read", "update", "may_write") and v.mode in WRITE_LIKE:
                u.torn = True
        if all(m in WRITE_LIKE for m in both) and both != ("reduce", "reduce"):
            one.torn_bytes |= common
            other.torn_bytes |= common

    def judge(self, start_ns: Sequence[int], done_ns: Sequence[int]) -> Judged:
        """Compare a run with the reference order."""
        events = self.events(start_ns, done_ns)
        seen, final = self.play(events, True)
        judged = Judged()
        for key, u in seen.items():
            if u.mode in ("read", "update"):
                if u.torn:
                    judged.torn.add(key)
                if u.torn or u.saw != self.expected[key].saw:
                    judged.reads.add(key)
        for at in final.keys() | self.final.keys():
            if final.get(at) != self.final.get(at):
                judged.at_end.add(at[0])
        self.lives(events, judged)
        return judged

    def whole(self, buffer: int) -> bool:
        """Whether a buffer is a root or covers, by way of its parents, all of one."""
        b = self.rules.buffers[buffer]
        if b["parent"] is None:
            return True
        parent = self.rules.buffers[b["parent"]]
        return not b["parent_offset"] and b["bytes"] == parent["bytes"] and self.whole(b["parent"])

    def lives(self, events: Sequence[Code], judged: Judged) -> None:
        """Find uses outside of the life of memory and sync objects."""
        at = {code: i for i, code in enumerate(events)}
        group = self.rules.group
        for g in self.rules.started:
            at.setdefault(~g, len(events))
        first: dict[tuple[str, int], int] = {}
        for i, o in enumerate(self.rules.ops):
            what = o["sync"] if o["kind"] == "destroy" else o["target"]
            if o["kind"] in ("alloc", "free", "destroy") and what is not None:
                first.setdefault((o["kind"], what), i)
        runs = {k: i for k, i in first.items() if group[i] in self.rules.ended}
        for i, o in enumerate(self.rules.ops):
            if group[i] not in at:
                continue
            for u in self.touched[i]:
                buffer = self.rules.accesses[u.access]["buffer"]
                while buffer is not None:
                    alloc, free = runs.get(("alloc", buffer)), runs.get(("free", buffer))
                    if self.whole(buffer) and (
                        # an op that stands behind the alloc cannot be meant to come before it
                        (
                            alloc is not None
                            and alloc > i
                            and self.later(at[~group[alloc]], at[group[i]], alloc, i)
                        )
                        or (free is not None and self.later(at[~group[i]], at[~group[free]], free, i))
                    ):
                        judged.freed.add((i, u.access))
                    buffer = self.rules.buffers[buffer]["parent"]
            named = [u["unit"] for u in self.rules.lists if u["list"] == o["list"]]
            for sync in named if o["kind"] == "wait_any" else [o["sync"]] if o["kind"] in USERS else []:
                destroy = runs.get(("destroy", sync)) if sync is not None else None
                if destroy is not None and self.later(at[~group[i]], at[~group[destroy]], destroy, i):
                    judged.destroyed.add(i)

    def later(self, one: int, other: int, a: int, b: int) -> bool:
        """Whether one place comes behind another, and the two rows are no kin."""
        return one > other and not self.inside(self.rules.group[a], self.rules.group[b])


def _reduced(value: Value) -> tuple[Value, frozenset[Any]]:
    return (
        (value[1], value[2]) if isinstance(value, tuple) and value[0] == "reduced" else (value, frozenset())
    )


def _short(digest: tuple[Any, ...]) -> int:
    return hash(digest)


assert "read" in READ_LIKE
