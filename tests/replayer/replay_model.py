"""A second virtual replay, for tapes of up to about twelve ops: times by recursion, a value for every byte.

It shares no code with the package but the table reader; edges and reference order are those of the
brute-force checker. Slow and plain on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tapedelay.formats.tape import Tape

from .brute_force import USERS, BruteForce

__all__ = ["Model", "Run", "Wrong"]

Row = dict[str, Any]
Where = tuple[int, str]
"""Row and place of a delay."""

WORK = ("host", "kernel", "compute", "copy", "memset", "rdma", "coll")
JUDGED = ("read", "update")
OLD = ("read", "update", "may_write")
WRITING = ("write", "update", "may_write", "reduce")
AT_END = -1


@dataclass(frozen=True)
class Cell:
    """What stands in a byte: who wrote it, and what came of it."""

    version: Any
    value: Any
    writer: int
    torn: bool = False


@dataclass
class Wrong:
    """A wrong read, as `WrongRead` has it; what differs, as (begin, end, writer, state)."""

    row: int
    access: int
    kind: str
    root: int
    begin: int
    end: int
    at_ns: int
    saw: list[tuple[int, int, int, str]] = field(default_factory=list)
    expected: list[tuple[int, int, int, str]] = field(default_factory=list)
    derived: bool = False


@dataclass
class Run:
    """Times by row (-1: never), and wrong reads in the order of the facts."""

    issue: list[int]
    start: list[int]
    end: list[int]
    wrong: list[Wrong]
    events: list[int]
    memory: Memory


class Model(BruteForce):
    """The tape, played."""

    def __init__(self, tape: Tape, max_ops: int = 12) -> None:
        super().__init__(tape, max_ops)
        self.order()
        self.members = {g: [i for i in range(self.n) if self.group[i] == g] for g in self.groups}
        self.inside = {g: [c for c in self.groups if g in self.parents[c]] for g in self.groups}
        times = [o["issue_ns"] for o in self.ops if o["issue_ns"] is not None]
        self.origin = min(times, default=0)

    def replay(self, delays: Mapping[Where, int] | None = None) -> Run:
        """Play the tape with delays."""
        self.delays = dict(delays or {})
        self.memo: dict[tuple[str, int], int | None] = {}
        issue = [self.issue(i) for i in range(self.n)]
        start = [self.start(self.group[i]) for i in range(self.n)]
        end = [self.end(self.group[i]) for i in range(self.n)]
        events = self.events()
        memory = Memory(self, events)
        wrong = memory.play()
        never = [[-1 if t is None else t for t in found] for found in (issue, start, end)]
        return Run(never[0], never[1], never[2], wrong, events, memory)

    def late(self, i: int, place: str) -> int:
        return self.delays.get((i, place), 0)

    # --- times ---

    def issuing(self, i: int) -> int | None:
        """Return the host thread that issues a row."""
        o = self.ops[i]
        if self.host(o["issuer"]):
            return int(o["issuer"])
        return int(o["queue"]) if self.host(o["queue"]) else None

    def within_or_same(self, g: int, outer: int) -> bool:
        return g == outer or outer in self.ancestors(g)

    def items_before(self, i: int) -> list[int]:
        """Return what a row's thread did before it, but for what follows something that it is part of."""
        thread, g = self.issuing(i), self.group[i]
        items = [
            j for j in range(i) if thread is not None and thread in (self.issuing(j), self.ops[j]["queue"])
        ]
        around = [
            j for j in items if self.ops[j]["queue"] == thread and self.within_or_same(g, self.group[j])
        ]
        return [
            j
            for j in items
            if not any(p < j and not self.within_or_same(self.group[j], self.group[p]) for p in around)
        ]

    def gap(self, i: int) -> int:
        o = self.ops[i]
        thread = self.issuing(i)
        if o["issue_ns"] is None:
            return 0
        recorded = self.origin
        for j in self.items_before(i):
            p = self.ops[j]
            if p["issue_ns"] is None or self.issuing(j) != thread:
                continue
            at = p["issue_ns"]
            if p["queue"] == thread:
                at += p["start_after_issue_ns"] or 0
                open_ = self.within_or_same(self.group[i], self.group[j]) and self.inside[self.group[j]]
                at += 0 if open_ else p["duration_ns"] or 0
            recorded = max(recorded, at)
        return max(0, int(o["issue_ns"]) - recorded)

    def issue(self, i: int) -> int | None:
        key = ("issue", i)
        if key not in self.memo:
            thread, found = self.issuing(i), [0]
            for j in self.items_before(i):
                if self.issuing(j) == thread:
                    found.append(self.issue(j))  # type: ignore[arg-type]
                g = self.group[j]
                if self.ops[j]["queue"] == thread and g != self.group[i]:
                    if not self.within_or_same(self.group[i], g):
                        found.append(self.end(g))  # type: ignore[arg-type]
                    elif len(self.members[g]) == 1:
                        found.append(self.start(g))  # type: ignore[arg-type]
            unknown = any(t is None for t in found)
            self.memo[key] = None if unknown else max(found) + self.gap(i) + self.late(i, "before_issue")
        return self.memo[key]

    def start(self, g: int) -> int | None:
        key = ("start", g)
        if g not in self.started:
            return None
        if key not in self.memo:
            ready = [self.end(a) for a, b in self.before if b == g]
            ready += [self.start(p) for p in self.parents[g]]
            if g in self.any_of:
                ready.append(min((self.end(r) for r in self.fired[g]), default=0))  # type: ignore[type-var]
            self.memo[key] = max(
                max([self.issue(i), *ready]) + self.late(i, "before_start")  # type: ignore[type-var, operator]
                for i in self.members[g]
            )
        return self.memo[key]

    def takes(self, i: int) -> int:
        o = self.ops[i]
        if o["kind"] not in WORK:
            return 0
        return 1000 if o["duration_ns"] is None else int(o["duration_ns"])

    def done(self, g: int) -> int | None:
        start = self.start(g)
        if start is None or g not in self.ended:
            return None
        if self.inside[g]:
            ends = [self.end(c) for c in self.inside[g]]
            return max(start, *(t for t in ends if t is not None))
        return start + max(self.takes(i) for i in self.members[g])

    def end(self, g: int) -> int | None:
        key = ("end", g)
        if key not in self.memo:
            done = self.done(g)
            late = max(self.late(i, "after_end") for i in self.members[g])
            self.memo[key] = None if done is None else done + late
        return self.memo[key]

    def events(self) -> list[int]:
        """Return g where a group starts and ~g where it ends, in the order of the written rule."""
        found: list[tuple[int, int, int, int]] = []
        for g in self.groups:
            start, done = self.start(g), self.done(g)
            if start is not None:
                found.append((start, 1, self.started[g], g))
            if start is not None and done is not None:
                earlier = not self.inside[g] and done > start
                found.append((done, 0 if earlier else 1, self.ended[g], ~g))
        return [code for _, _, _, code in sorted(found)]


class Memory:
    """All bytes, while events happen."""

    def __init__(self, model: Model, events: list[int]) -> None:
        self.m = model
        self.events = events
        self.at = {code: n for n, code in enumerate(events)}
        self.spread = [model.touched(i) for i in range(model.n)]
        self.size = {(r, x) for t in self.spread for r, spread, _ in t for x in spread}

    def reference(self) -> tuple[dict[Any, dict[Any, Cell]], dict[Any, Cell]]:
        """Return what each read sees where groups run one by one in the reference order, and what is left."""
        m = self.m
        codes = sorted(
            [(m.started[g], g) for g in m.groups if g in m.started]
            + [(m.ended[g], ~g) for g in m.groups if g in m.ended]
        )
        seen: dict[Any, dict[Any, Cell]] = {}
        cells = self.begin()
        for _, code in codes:
            if code >= 0:
                self.look(code, cells, seen)
            else:
                self.write(~code, cells, seen, set(), [])
        return seen, cells

    def begin(self) -> dict[Any, Cell]:
        return {b: Cell(("begin", b[0]), ("begin", b[0]), -1) for b in self.size}

    def reads(self, g: int, modes: tuple[str, ...]) -> list[tuple[int, int, int, set[int], Row]]:
        return [
            (i, k, root, spread, a)
            for i in self.m.members[g]
            for k, (root, spread, a) in enumerate(self.spread[i])
            if a["mode"] in modes
        ]

    def look(self, g: int, cells: dict[Any, Cell], seen: dict[Any, dict[Any, Cell]]) -> None:
        for i, k, root, spread, _ in self.reads(g, OLD):
            seen[i, k] = {(root, x): cells[root, x] for x in spread}

    def overlaps(self, g: int, h: int) -> bool:
        """Whether two groups that are no kin are in flight at once."""
        if self.m.kin(g, h):
            return False
        forever = len(self.events)
        first, last = self.at.get(g, forever), self.at.get(~g, forever)
        other, until = self.at.get(h, forever), self.at.get(~h, forever)
        return first < until and other < last

    def write(
        self,
        g: int,
        cells: dict[Any, Cell],
        seen: dict[Any, dict[Any, Cell]],
        torn_reads: set[Any],
        beside: list[int],
    ) -> None:
        """Let what a group writes stand there; `beside`: groups in flight at the same time."""
        m = self.m
        what = tuple(
            (i, k, tuple((b, c.value) for b, c in sorted(seen[i, k].items())))
            for i, k, _, _, _ in self.reads(g, OLD)
        )
        broken = any((i, k) in torn_reads for i, k, *_ in self.reads(g, OLD))
        base = hash((what, broken))
        kept = tuple(
            (i, k, tuple((b, c.version) for b, c in sorted(seen[i, k].items())))
            for i, k, _, _, _ in self.reads(g, ("may_write",))
        )
        for i, k, root, spread, a in self.reads(g, WRITING):
            stamp = (m.ops[i]["op"], k, base)
            for x in spread:
                if a["mode"] == "reduce":
                    old = cells[root, x]
                    reducers = old.version[2] if old.version[0] == "reduced" else frozenset()
                    below = old.version[1] if old.version[0] == "reduced" else old.version
                    values = old.value[2] if old.value[0] == "reduced" else frozenset()
                    bottom = old.value[1] if old.value[0] == "reduced" else old.value
                    writer = (
                        max(i, old.writer) if old.version[0] in ("reduced", "kept") and not old.torn else i
                    )
                    cells[root, x] = Cell(
                        ("reduced", below, reducers ^ {(i, k)}),
                        ("reduced", bottom, values ^ {stamp}),
                        writer,
                        old.torn,
                    )
                elif a["mode"] == "may_write":
                    cells[root, x] = Cell(("kept", i, k, kept), stamp, i)
                else:
                    cells[root, x] = Cell(("plain", i, k), stamp, i)
        for h in beside:
            for _, _, root, spread, a in self.reads(g, WRITING):
                for _, _, root2, spread2, a2 in self.reads(h, WRITING):
                    if root != root2 or (a["mode"] == "reduce" and a2["mode"] == "reduce"):
                        continue
                    for x in spread & spread2:
                        both = ("torn", frozenset((g, h)))
                        cells[root, x] = Cell(both, both, g, True)

    # --- the run ---

    def play(self) -> list[Wrong]:
        """Return the wrong reads in the order of the facts."""
        m = self.m
        expected, last = self.reference()
        cells, seen = self.begin(), dict[Any, dict[Any, Cell]]()
        facts: list[tuple[int, int, int, Wrong, Any]] = []
        torn_reads = self.torn_reads(facts)
        times: dict[Any, Any] = {}
        for n, code in enumerate(self.events):
            if code < 0:
                g = ~code
                self.write(g, cells, seen, torn_reads, [h for h in m.groups if self.overlaps(g, h)])
                continue
            self.look(code, cells, seen)
            for i, k, root, spread, a in self.reads(code, JUDGED):
                times[i, k] = dict(seen[i, k])
                differs = any(self.unlike(seen[i, k][b], expected[i, k][b]) for b in seen[i, k])
                if differs and not any(f[0] <= n and f[4] == (i, k) for f in facts):
                    facts = [f for f in facts if f[4] != (i, k)]
                    wrong = self.wrong(i, a, "stale", root, spread, n)
                    facts.append((n, 0, self.mark(i, k), wrong, (i, k)))
        self.lifetimes(facts)
        facts.sort(key=lambda f: f[:3])
        for n, _, _, wrong, at in facts:
            if wrong.kind in ("stale", "torn"):
                self.tell(wrong, self.overlaid(at, times[at], n), expected[at])
        wrongs = [f[3] for f in facts]
        ended = max((t for g in m.groups if (t := m.end(g)) is not None), default=0)
        for root in self.roots():
            if not self.alive(root):
                continue
            spread = {x for r, x in self.size if r == root}
            if any(self.unlike(cells[root, x], last[root, x]) for x in spread):
                wrong = Wrong(AT_END, -1, "stale", root, min(spread), max(spread) + 1, ended)
                self.tell(wrong, {(root, x): cells[root, x] for x in spread}, last)
                wrongs.append(wrong)
        self.wrongs, self.facts = wrongs, facts
        return wrongs

    def roots(self) -> list[int]:
        """Return the roots in the order in which rows first name them."""
        return list(dict.fromkeys(root for touched in self.spread for root, _, _ in touched))

    @staticmethod
    def unlike(one: Cell, other: Cell) -> bool:
        return one.torn or one.value != other.value

    def mark(self, i: int, k: int) -> int:
        """Return the place of an access among those of its group."""
        before = [j for j in self.m.members[self.m.group[i]] if j < i]
        return sum(len(self.spread[j]) for j in before) + k

    def wrong(self, i: int, a: Row, kind: str, root: int, spread: set[int], n: int) -> Wrong:
        code = self.events[n]
        at = self.m.start(code) if code >= 0 else self.m.done(~code)
        assert at is not None
        row = next(r for r, x in enumerate(self.m.accesses) if x is a)
        return Wrong(i, row, kind, root, min(spread), max(spread) + 1, at)

    def torn_reads(self, facts: list[tuple[int, int, int, Wrong, Any]]) -> set[Any]:
        """Find the reads during which a write goes on."""
        m, found = self.m, set()
        for g in m.groups:
            for i, k, root, spread, a in self.reads(g, OLD):
                met = [
                    max(self.at[g], self.at[h])
                    for h in m.groups
                    if g in self.at and h in self.at and self.overlaps(g, h)
                    for _, _, root2, spread2, _ in self.reads(h, WRITING)
                    if root == root2 and spread & spread2
                ]
                if met:
                    found.add((i, k))
                    if a["mode"] in JUDGED:
                        wrong = self.wrong(i, a, "torn", root, spread, min(met))
                        facts.append((min(met), 0, self.mark(i, k), wrong, (i, k)))
        return found

    def overlaid(self, at: tuple[int, int], saw: dict[Any, Cell], n: int) -> dict[Any, Cell]:
        """Return what a read saw with what was being written up to its becoming a fact."""
        g, out = self.m.group[at[0]], dict(saw)
        for b in saw:
            writers = [
                j
                for h in self.m.groups
                if h in self.at and self.at[h] <= n and self.overlaps(g, h) and self.at.get(~h, n + 1) > n
                for j, _, root, spread, _ in self.reads(h, WRITING)
                if root == b[0] and b[1] in spread
            ]
            if writers:
                out[b] = Cell(None, None, min(writers), True)
        return out

    def tell(self, wrong: Wrong, saw: dict[Any, Cell], expected: dict[Any, Cell]) -> None:
        """Fill in where what was seen differs."""
        different = False
        for b in sorted(saw):
            one, other = saw[b], expected[b]
            if not self.unlike(one, other):
                continue
            derived = not one.torn and one.version == other.version
            different = different or not derived
            if one.torn:
                wrong.kind = "torn"
            state = "torn" if one.torn else "derived" if derived else "version"
            add(wrong.saw, b[1], one.writer, state)
            add(wrong.expected, b[1], other.writer, "version")
        wrong.derived = not different

    # --- lifetimes ---

    def lifetimes(self, facts: list[tuple[int, int, int, Wrong, Any]]) -> None:
        m = self.m

        def whole(b: int) -> bool:
            row = m.buffers[b]
            parent = row["parent"]
            if parent is None:
                return True
            same = not row["parent_offset"] and row["bytes"] == m.buffers[parent]["bytes"]
            return same and whole(parent)

        def first(kind: str, column: str, value: int) -> int | None:
            rows = [i for i, o in enumerate(m.ops) if o["kind"] == kind and o[column] == value]
            return rows[0] if rows and m.group[rows[0]] in m.started else None

        for i in range(m.n):
            g = m.group[i]
            if g not in self.at:
                continue
            for k, (root, spread, a) in enumerate(self.spread[i]):
                when = []
                for b in range(len(m.buffers)):
                    if not m.within(a["buffer"], b):
                        continue
                    alloc, free = first("alloc", "target", b), first("free", "target", b)
                    # releasing a part in flight is bookkeeping
                    if free is not None and (whole(b) or i > free) and not m.kin(free, i):
                        ended = self.at.get(~m.group[free], len(self.events))
                        if ended < self.at.get(~g, len(self.events)):
                            when.append(max(ended, self.at[g]))
                    if (
                        alloc is not None
                        and alloc > i
                        and not m.kin(alloc, i)
                        and self.at.get(~m.group[alloc], len(self.events)) > self.at[g]
                    ):
                        when.append(self.at[g])
                if when:
                    wrong = self.wrong(i, a, "freed", root, spread, min(when))
                    facts.append((min(when), 1, self.order_at(min(when), g, self.mark(i, k)), wrong, None))
            o = m.ops[i]
            named = [o["sync"]] if o["kind"] in USERS and o["kind"] != "wait_any" else []
            if o["kind"] == "wait_any":
                named = list(dict.fromkeys(u["unit"] for u in m.lists if u["list"] == o["list"]))
            for s in named:
                end = None if s is None else first("destroy", "sync", s)
                if end is None or m.kin(end, i):
                    continue
                ended = self.at.get(~m.group[end], len(self.events))
                if ended < self.at.get(~g, len(self.events)):
                    n = max(ended, self.at[g])
                    code = self.events[n]
                    at = m.start(code) if code >= 0 else m.done(~code)
                    assert at is not None
                    facts.append(
                        (n, 2, self.order_at(n, g, i), Wrong(i, -1, "destroyed", -1, 0, 0, at), None)
                    )

    def order_at(self, n: int, g: int, mark: int) -> int:
        """Facts of several groups at one event (something ends) have no order of their own."""
        return mark if self.events[n] == g else 1000 * g + mark

    def alive(self, root: int) -> bool:
        """Return whether some memory of a root is there after all ops."""
        m = self.m
        freed, lives = False, False
        named = {a["buffer"] for t in self.spread for _, _, a in t}

        def ended(b: int) -> bool:
            rows = [i for i, o in enumerate(m.ops) if o["kind"] == "free" and o["target"] == b]
            return bool(rows) and m.group[rows[0]] in m.started and self.whole(b)

        def begun(b: int) -> bool:
            rows = [i for i, o in enumerate(m.ops) if o["kind"] == "alloc" and o["target"] == b]
            return bool(rows) and m.group[rows[0]] in m.started and self.whole(b)

        for b in range(len(m.buffers)):
            if m.root(b)[0] != root:
                continue
            if ended(b):
                freed = True
            elif (b in named or begun(b)) and not any(
                ended(p) and m.within(b, p) for p in range(len(m.buffers))
            ):
                lives = True
        return lives or not freed

    def whole(self, b: int) -> bool:
        row = self.m.buffers[b]
        if row["parent"] is None:
            return True
        same = not row["parent_offset"] and row["bytes"] == self.m.buffers[row["parent"]]["bytes"]
        return same and self.whole(row["parent"])

    # --- the chain ---

    def chain(self, one: Wrong) -> tuple[int, ...]:
        """Return rows from a wrong read to a read of the host, each having read what the one before wrote."""
        m = self.m
        if one.kind in ("freed", "destroyed"):
            return ()
        if one.row == AT_END:
            return (AT_END,)
        if m.host(m.ops[one.row]["queue"]):
            return (one.row,)
        begin = next(n for n, _, _, w, _ in self.facts if w is one)
        came: dict[int, int] = {m.group[one.row]: -1}
        bad: dict[Any, int] = {}

        def path(row: int, writer: int) -> tuple[int, ...]:
            rows = [row]
            while came[m.group[writer]] >= 0:
                rows.append(writer)
                writer = came[m.group[writer]]
            return tuple(reversed([*rows, one.row] if rows[-1] != one.row else rows))

        for n, code in enumerate(self.events):
            if n < begin:
                continue
            if code < 0:
                self.spoil(~code, came, bad)
                continue
            for i, _, root, spread, a in self.reads(code, OLD):
                hit = [bad[root, x] for x in sorted(spread) if (root, x) in bad]
                if hit:
                    came.setdefault(code, hit[0])
                    if a["mode"] in JUDGED and m.host(m.ops[i]["queue"]):
                        return path(i, hit[0])
        for w in self.wrongs:
            hit = [bad[b] for b in sorted(bad) if w.row == AT_END and b[0] == w.root]
            if hit:
                return path(AT_END, hit[0])
        return ()

    def spoil(self, g: int, came: dict[int, int], bad: dict[Any, int]) -> None:
        """Note what a group writes, if it has read something spoilt."""
        written = self.reads(g, WRITING)
        for i, _, root, spread, a in written:
            for x in spread:
                if g in came:
                    bad[root, x] = i
                elif a["mode"] != "reduce":
                    bad.pop((root, x), None)
        for h in self.m.groups:
            if not self.overlaps(g, h):
                continue
            for _, _, root, spread, a in written:
                for _, _, root2, spread2, a2 in self.reads(h, WRITING):
                    if root == root2 and not a["mode"] == a2["mode"] == "reduce":
                        bad.update({(root, x): u for x in spread & spread2 for u in (g, h) if u in came})


def add(parts: list[tuple[int, int, int, str]], x: int, writer: int, state: str) -> None:
    """Append a byte to a list of parts."""
    if parts and parts[-1][1] == x and parts[-1][2:] == (writer, state):
        parts[-1] = (parts[-1][0], x + 1, writer, state)
    elif len(parts) < 16:
        parts.append((x, x + 1, writer, state))
