"""A second checker for tapes of up to about twelve ops: every pair, a boolean matrix of what reaches what.

It shares no code with the package but the table reader: the edges are written down again, straight from the
rows, as a relation over all pairs. Slow and plain on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tapedelay.formats.profiles import BUILTIN
from tapedelay.formats.tape import Tape

__all__ = ["MAX_OPS", "BruteForce", "Found"]

MAX_OPS = 12
Row = dict[str, Any]
Race = tuple[int, int, str, str]
READ_LIKE = ("read", "update", "reduce")
WRITE_LIKE = ("write", "update", "may_write", "reduce")
USERS = ("record", "wait", "wait_any", "semsig", "semwait", "coll", "compute", "kernel")


@dataclass
class Found:
    """What there is: races with verdict and bytes, lifetime faults with verdict, deadlocks as sets of ops."""

    races: dict[Race, tuple[str, int, int]] = field(default_factory=dict)
    lifetimes: dict[Race, str] = field(default_factory=dict)
    deadlocks: list[tuple[int, ...]] = field(default_factory=list)


def surer(one: str | None, other: str) -> str:
    """Return the more certain of two verdicts, the first of equal ones."""
    order = [None, "unknown", "possible", "race"]
    return other if one is None or order.index(other) > order.index(one) else one


class BruteForce:
    """The rows of a tape, a matrix over the starts and ends of its ops, and the pairs."""

    def __init__(self, tape: Tape, max_ops: int = MAX_OPS) -> None:
        rows = {
            n: tape.table(n).to_pylist()
            for n in ("devices", "queues", "syncs", "buffers", "accesses", "ops", "edges", "lists")
        }
        self.devices, self.queues, self.syncs = rows["devices"], rows["queues"], rows["syncs"]
        self.buffers, self.accesses, self.ops = rows["buffers"], rows["accesses"], rows["ops"]
        self.edges, self.lists = rows["edges"], rows["lists"]
        assert len(self.ops) <= max_ops
        self.n = len(self.ops)
        self.row_of = {o["op"]: i for i, o in enumerate(self.ops)}
        self.waits_seen = {c.queue: c.waits for c in tape.manifest.coverage}
        self.profile = [BUILTIN[d["profile"]] for d in self.devices]
        # A joint node per collective: every row has the last row of its collective as group.
        self.group = []
        for i, o in enumerate(self.ops):
            same = [
                j
                for j, p in enumerate(self.ops)
                if o["kind"] == p["kind"] == "coll" and o["sync"] == p["sync"] and o["sync"] is not None
            ]
            self.group.append(max(same) if same else i)
        self.groups = sorted(set(self.group))
        self.parents: dict[int, set[int]] = {g: set() for g in self.groups}
        for i, o in enumerate(self.ops):
            if o["parent"] is not None and self.group[self.row_of[o["parent"]]] != self.group[i]:
                self.parents[self.group[i]].add(self.group[self.row_of[o["parent"]]])
        self.any_of: dict[int, set[int]] = {}
        self.never: list[int] = []
        self.unresolved: list[int] = []
        self.before = self.direct()

    # --- the relation ---

    def refused(self) -> bool:
        """Whether an op is part of itself."""
        return any(g in self.ancestors(g) for g in self.groups)

    def ancestors(self, g: int) -> set[int]:
        found: set[int] = set()
        while True:
            more = {p for x in found | {g} for p in self.parents[x]} - found
            if not more:
                return found
            found |= more

    def host(self, q: int | None) -> bool:
        return q is not None and self.queues[q]["kind"] == "host_thread"

    def device(self, i: int) -> int:
        return int(self.queues[self.ops[i]["queue"]]["device"])

    def records_before(self, i: int, sync: int) -> list[int]:
        return [j for j in range(i) if self.ops[j]["kind"] == "record" and self.ops[j]["sync"] == sync]

    def blocks_issuer(self, i: int) -> bool:
        o = self.ops[i]
        if not self.host(o["issuer"]) or o["issuer"] == o["queue"]:
            return False
        if o["kind"] in ("free", "alloc") and o["target"] is not None:
            p = self.profile[self.buffers[o["target"]]["device"]]
            return bool(p.free_synchronises if o["kind"] == "free" else p.alloc_synchronises)
        if o["kind"] != "copy":
            return False

        def side(a: Row) -> str:
            if a["buffer"] is None:
                return "h"
            b = self.buffers[a["buffer"]]
            if b["kind"] == "pinned":
                return "-"
            return "h" if self.devices[b["device"]]["kind"] == "host" else "d"

        touched = [a for a in self.accesses if a["set"] == o["access_set"]]
        directions = {
            f"{side(a)}2{side(b)}"
            for a in touched
            if a["mode"] == "read"
            for b in touched
            if b["mode"] != "read"
        }
        return bool(directions & set(self.profile[self.device(i)].blocking_copies))

    def orders(self, a: int, b: int) -> bool:
        """Whether row a, which stands before row b, comes before it by a rule that follows row order."""
        x, y = self.ops[a], self.ops[b]
        qa, qb = x["queue"], y["queue"]
        if qa == qb and (self.queues[qa]["in_order"] or self.host(qa)):
            return True
        if self.host(y["issuer"]) and qa == y["issuer"]:
            return True
        if self.blocks_issuer(a) and x["issuer"] in (qb, y["issuer"]):
            return True
        if (
            qa != qb
            and self.device(a) == self.device(b)
            and self.profile[self.device(a)].default_queue_blocks
            and "default" in (self.queues[qa]["kind"], self.queues[qb]["kind"])
        ):
            return True
        if y["kind"] == "sync":
            if y["target_kind"] == "all":
                return not self.host(qa)
            return bool((qa if y["target_kind"] == "queue" else self.device(a)) == y["target"])
        if y["kind"] in ("free", "alloc") and y["target"] is not None:
            d = self.buffers[y["target"]]["device"]
            p = self.profile[d]
            if p.free_synchronises if y["kind"] == "free" else p.alloc_synchronises:
                return bool(self.device(a) == d)
        return False

    def sources(self, i: int) -> list[int]:
        """Rows that row i waits for by name."""
        o = self.ops[i]
        found = []
        if o["kind"] in ("wait", "wait_any"):
            if o["sync_of"] is not None:
                found.append(self.row_of[o["sync_of"]])
            elif o["wait_state"] == "unresolved":
                self.unresolved.append(i)
            elif o["wait_state"] in ("none", "foreign"):
                pass
            elif o["kind"] == "wait":
                found += self.records_before(i, o["sync"])[-1:]
            else:
                names = [u["unit"] for u in self.lists if u["list"] == o["list"]]
                newest = [self.records_before(i, s)[-1:] for s in names]
                if newest and all(newest):
                    self.any_of[self.group[i]] = {self.group[r[0]] for r in newest}
        if o["kind"] == "semwait":
            signals = [j for j, p in enumerate(self.ops) if p["kind"] == "semsig" and p["sync"] == o["sync"]]
            if o["value"] is None:
                signals = [j for j in signals if self.ops[j]["value"] is None]
                turn = len(
                    [
                        j
                        for j in range(i)
                        if self.ops[j]["kind"] == "semwait"
                        and self.ops[j]["sync"] == o["sync"]
                        and self.ops[j]["value"] is None
                    ]
                )
                signals = signals[turn : turn + 1]
            else:
                signals = [
                    j
                    for j in signals
                    if self.ops[j]["value"] is not None and self.ops[j]["value"] >= o["value"]
                ]
            if o["sync_of"] is not None:
                found.append(self.row_of[o["sync_of"]])
            elif o["wait_state"] == "unresolved":
                self.unresolved.append(i)
            elif signals:
                found.append(signals[0])
            else:
                self.never.append(i)
        return found

    def direct(self) -> set[tuple[int, int]]:
        """Return (a, b): group a ends before group b starts."""
        pairs = [(a, b) for b in range(self.n) for a in range(b) if self.orders(a, b)]
        pairs += [(a, b) for b in range(self.n) for a in self.sources(b)]
        pairs += [(self.row_of[e["src"]], self.row_of[e["dst"]]) for e in self.edges]
        grouped = {(self.group[a], self.group[b]) for a, b in pairs}
        return {(a, b) for a, b in grouped if a != b and a not in self.ancestors(b)}

    def order(self) -> None:
        """Play the tape: always the lowest group that nothing holds back."""
        self.started: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.fired: dict[int, set[int]] = {}
        clock = 0

        def may(g: int, any_ready: bool) -> bool:
            records = self.any_of.get(g, set())
            done = {r for r in records if r in self.ended}
            return (
                g not in self.started
                and not any(self.group[i] == g for i in self.never)
                and all(a in self.ended for a, b in self.before if b == g)
                and all(p in self.started for p in self.parents[g])
                and (done == records or (any_ready and bool(done)))
            )

        while True:
            ready = [g for g in self.groups if may(g, False)] or [g for g in self.groups if may(g, True)]
            if not ready:
                break
            g = ready[0]
            self.fired[g] = {r for r in self.any_of.get(g, set()) if r in self.ended}
            self.started[g] = clock = clock + 1
            changed = True
            while changed:
                changed = False
                for x in self.groups:
                    inside = [c for c in self.groups if x in self.parents[c]]
                    if x in self.started and x not in self.ended and all(c in self.ended for c in inside):
                        self.ended[x] = clock = clock + 1
                        changed = True

    def matrix(self, more: set[tuple[int, int]]) -> list[list[bool]]:
        """Return what reaches what: node 2g is the start of group g, 2g+1 its end."""
        size = 2 * self.n
        reach = [[False] * size for _ in range(size)]

        def close() -> None:
            for k in range(size):
                for i in range(size):
                    if reach[i][k]:
                        for j in range(size):
                            if reach[k][j]:
                                reach[i][j] = True

        for g in self.groups:
            reach[2 * g][2 * g + 1] = True
            for p in self.parents[g]:
                reach[2 * p][2 * g] = True
                reach[2 * g + 1][2 * p + 1] = True
        for a, b in self.before | more:
            reach[2 * a + 1][2 * b] = True
        close()
        while True:  # what all records of a wait for any share, comes before the wait
            added = False
            for w, records in self.any_of.items():
                known = self.fired.get(w, set()) if w in self.started else set()
                for x in self.groups:
                    shared = known and all(x == r or reach[2 * x + 1][2 * r + 1] for r in known)
                    if shared and not reach[2 * x + 1][2 * w]:
                        reach[2 * x + 1][2 * w] = added = True
                if w not in self.started:
                    for r in records - set(self.ended):
                        if not reach[2 * r + 1][2 * w]:
                            reach[2 * r + 1][2 * w] = added = True
            if not added:
                return reach
            close()

    def assumed(self) -> set[tuple[int, int]]:
        """Return what may be ordered by something that was not seen."""
        found = set()
        for w in range(self.n):
            if self.group[w] not in self.started:
                continue
            for x in range(w):
                gx, gw = self.group[x], self.group[w]
                if gx not in self.ended or self.ended[gx] > self.started[gw]:
                    continue
                qx = self.ops[x]["queue"]
                meets = self.host(qx) and any(
                    thread is not None
                    and self.host(thread)
                    and thread != qx
                    and self.waits_seen.get(thread, "full") != "full"
                    and (
                        self.queues[qx]["process"] == self.queues[thread]["process"]
                        or self.waits_seen.get(qx, "full") != "full"
                    )
                    for thread in (self.ops[w]["queue"], self.ops[w]["issuer"])
                )
                queue = self.ops[w]["queue"]
                blind = not self.host(queue) and self.waits_seen.get(queue, "full") != "full"
                if w in self.unresolved or meets or blind:
                    found.add((gx, gw))
        return found

    # --- bytes ---

    def root(self, buffer: int) -> tuple[int, int]:
        """Return (root buffer, offset in it)."""
        offset = 0
        while self.buffers[buffer]["parent"] is not None:
            offset += self.buffers[buffer]["parent_offset"] or 0
            buffer = self.buffers[buffer]["parent"]
        key = self.buffers[buffer]["shared_key"]
        if key is not None:
            buffer = min(b["buffer"] for b in self.buffers if b["parent"] is None and b["shared_key"] == key)
        return buffer, offset

    def touched(self, i: int) -> list[tuple[int, set[int], Row]]:
        """Return (root, set of bytes, access) for each access of a row."""
        o = self.ops[i]
        found = []
        for a in self.accesses:
            if a["set"] != o["access_set"] or a["buffer"] is None:
                continue
            root, offset = self.root(a["buffer"])
            arg = o["arg"] or 0
            begin = offset + a["offset"] + a["offset_per_arg"] * arg
            size = a["bytes"] + a["bytes_per_arg"] * arg
            units = (
                [0] if a["unit_bytes"] is None else [u["unit"] for u in self.lists if u["list"] == o["list"]]
            )
            step = a["unit_bytes"] or 0
            spread = {x for u in units for x in range(begin + u * step, begin + u * step + size)}
            if spread:
                found.append((root, spread, a))
        return found

    @staticmethod
    def definite(a: Row) -> bool:
        return bool(a["origin"] == "observed" and a["mode"] != "may_write")

    # --- the faults ---

    def run(self) -> Found:
        self.order()
        self.sure = self.matrix(set())
        self.hoped = self.matrix(self.assumed())
        self.place = sorted(
            (i for i in range(self.n) if self.group[i] in self.started),
            key=lambda i: (self.started[self.group[i]], i),
        )
        found = Found()
        # thinned by the pair rule
        self.races(found)
        self.all_lifetimes(found)
        self.deadlocks(found)
        return found

    def comes_before(self, a: int, b: int, matrix: list[list[bool]]) -> bool:
        return matrix[2 * self.group[a] + 1][2 * self.group[b]]

    def kin(self, a: int, b: int) -> bool:
        ga, gb = self.group[a], self.group[b]
        return ga == gb or ga in self.ancestors(gb) or gb in self.ancestors(ga)

    def races(self, found: Found) -> None:
        for at, b in enumerate(self.place):
            for root, spread, x in self.touched(b):
                behind: dict[tuple[int, str], str] = {}
                for a in reversed(self.place[:at]):
                    if self.kin(a, b) or self.comes_before(a, b, self.sure):
                        continue
                    # Of one queue and mode, the latest counts, and then what is more certain than all later.
                    best: dict[str, str] = {}
                    for other, bytes_, y in self.touched(a):
                        if other == root and bytes_ & spread and self.conflict(y["mode"], x["mode"]):
                            best[y["mode"]] = surer(best.get(y["mode"]), self.verdict(a, b, x, y))
                    for mode, verdict in best.items():
                        key = (self.ops[a]["queue"], mode)
                        if surer(behind.get(key), verdict) == behind.get(key):
                            continue
                        behind[key] = verdict
                        for other, bytes_, y in self.touched(a):
                            common = bytes_ & spread
                            if other == root and common and y["mode"] == mode:
                                self.add_race(found, a, b, root, common, x, y)

    @staticmethod
    def conflict(earlier: str, later: str) -> bool:
        if (earlier, later) in (("read", "read"), ("reduce", "reduce")):
            return False
        return earlier in WRITE_LIKE or later in WRITE_LIKE

    def verdict(self, a: int, b: int, x: Row, y: Row) -> str:
        if self.comes_before(a, b, self.hoped):
            return "unknown"
        sure = self.definite(x) and self.definite(y)
        sure = sure and "inferred" not in (self.ops[a]["origin"], self.ops[b]["origin"])
        return "race" if sure else "possible"

    def add_race(self, found: Found, a: int, b: int, root: int, common: set[int], x: Row, y: Row) -> None:
        if y["mode"] in WRITE_LIKE and x["mode"] in READ_LIKE:
            hazard = "RAW"
        elif y["mode"] in WRITE_LIKE:
            hazard = "WAW"
        else:
            hazard = "WAR"
        verdict = self.verdict(a, b, x, y)
        key = (self.ops[a]["op"], self.ops[b]["op"], hazard, self.buffers[root]["name"])
        known = found.races.get(key, ("possible", min(common), max(common) + 1))
        if verdict == "possible":
            verdict = known[0]
        found.races[key] = (verdict, min(known[1], min(common)), max(known[2], max(common) + 1))

    def all_lifetimes(self, found: Found) -> None:
        for buffer in self.buffers:
            uses = [
                (i, a["mode"], self.definite(a))
                for i in self.place
                for _, _, a in self.touched(i)
                if self.within(a["buffer"], buffer["buffer"])
            ]
            rows = {
                kind: [
                    i for i, o in enumerate(self.ops) if o["kind"] == kind and o["target"] == buffer["buffer"]
                ]
                for kind in ("alloc", "free")
            }
            parent = buffer["parent"]
            whole = True
            b = buffer
            while parent is not None:
                whole = whole and not b["parent_offset"] and b["bytes"] == self.buffers[parent]["bytes"]
                b, parent = self.buffers[parent], self.buffers[parent]["parent"]
            name = self.buffers[self.root(buffer["buffer"])[0]]["name"]
            frees = [i for i in self.place if i in rows["free"]]
            for later in frees[1:]:
                if not self.kin(frees[0], later):
                    self.add_lifetime(found, frees[0], later, "double-free", name, True, False)
            if rows["free"] and rows["free"][0] in self.place:
                self.ends(found, rows["free"][0], uses, name, whole, ("use-after-free", "free-in-flight"))
            if rows["alloc"] and rows["alloc"][0] in self.place:
                self.begins(found, rows["alloc"][0], uses, name)
        for sync in self.syncs:
            destroys = [
                i for i, o in enumerate(self.ops) if o["kind"] == "destroy" and o["sync"] == sync["sync"]
            ]
            if not destroys or destroys[0] not in self.place:
                continue
            uses = []
            for i in self.place:
                o = self.ops[i]
                named = (
                    {u["unit"] for u in self.lists if u["list"] == o["list"]}
                    if o["kind"] == "wait_any"
                    else {o["sync"]}
                )
                if o["kind"] in USERS and sync["sync"] in named:
                    uses.append((i, "", True))
            self.ends(found, destroys[0], uses, sync["name"], True, ("use-after-destroy", "destroy-pending"))

    def within(self, buffer: int | None, outer: int) -> bool:
        while buffer is not None:
            if buffer == outer:
                return True
            buffer = self.buffers[buffer]["parent"]
        return False

    def ends(
        self,
        found: Found,
        end: int,
        uses: list[tuple[int, str, bool]],
        name: str,
        whole: bool,
        faults: tuple[str, str],
    ) -> None:
        """Compare uses with the op that ends a thing."""
        earlier: list[tuple[tuple[int, str, str], int, bool, bool]] = []
        for i, mode, definite in uses:
            if self.kin(i, end) or self.comes_before(i, end, self.sure):
                continue
            after = self.comes_before(end, i, self.sure) or i > end
            if not after and not whole:
                continue
            fault = faults[0] if after else faults[1]
            if self.place.index(i) > self.place.index(end):
                self.add_lifetime(found, end, i, fault, name, definite, False)
            else:
                hoped = self.comes_before(i, end, self.hoped)
                earlier.append(((self.ops[i]["queue"], mode, fault), i, definite, hoped))
        self.thinned(found, end, name, earlier)

    def begins(self, found: Found, begin: int, uses: list[tuple[int, str, bool]], name: str) -> None:
        """Compare uses with the op that begins a thing."""
        earlier: list[tuple[tuple[int, str, str], int, bool, bool]] = []
        for i, mode, definite in uses:
            if self.kin(i, begin) or self.comes_before(begin, i, self.sure):
                continue
            if not (self.comes_before(i, begin, self.sure) or i < begin):
                continue
            if self.place.index(i) > self.place.index(begin):
                hoped = self.comes_before(begin, i, self.hoped)
                self.add_lifetime(found, begin, i, "use-before-alloc", name, definite, hoped)
            else:
                earlier.append(((self.ops[i]["queue"], mode, "use-before-alloc"), i, definite, False))
        self.thinned(found, begin, name, earlier)

    def thinned(
        self,
        found: Found,
        at: int,
        name: str,
        earlier: list[tuple[tuple[int, str, str], int, bool, bool]],
    ) -> None:
        """Add the latest of each key, and then what is more certain than all later ones."""
        behind: dict[tuple[int, str, str], str] = {}
        earlier.sort(key=lambda e: (-self.place.index(e[1]), not e[2]))
        for key, i, definite, hoped in earlier:
            sure = definite and "inferred" not in (self.ops[i]["origin"], self.ops[at]["origin"])
            verdict = "unknown" if hoped else "race" if sure else "possible"
            if surer(behind.get(key), verdict) != behind.get(key):
                behind[key] = verdict
                self.add_lifetime(found, i, at, key[2], name, definite, hoped)

    def add_lifetime(
        self, found: Found, a: int, b: int, fault: str, name: str, definite: bool, hoped: bool
    ) -> None:
        definite = definite and "inferred" not in (self.ops[a]["origin"], self.ops[b]["origin"])
        verdict = "unknown" if hoped else "lifetime" if definite else "possible"
        key = (self.ops[a]["op"], self.ops[b]["op"], fault, name)
        if found.lifetimes.get(key) not in ("lifetime", "unknown"):
            found.lifetimes[key] = verdict

    def deadlocks(self, found: Found) -> None:
        found.deadlocks += [(self.ops[i]["op"],) for i in self.never if self.group[i] not in self.started]
        seen: set[int] = set()
        for node in range(2 * self.n):
            if node in seen or not self.sure[node][node]:
                continue
            ring = {m for m in range(2 * self.n) if self.sure[node][m] and self.sure[m][node]}
            seen |= ring
            members = {m // 2 for m in ring}
            found.deadlocks.append(
                tuple(self.ops[i]["op"] for i in range(self.n) if self.group[i] in members)
            )
        found.deadlocks.sort()
