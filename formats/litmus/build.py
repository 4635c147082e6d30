"""From the lines of a litmus file to the tape of one variant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ..builder import TapeBuilder
from ..schema import ACCESS_ORIGINS, EDGE_KINDS, SYNC_TARGETS, WAIT_STATES
from ..tape import Tape
from .lines import AccessText, File, RefText, RowText, parse_accesses
from .scene import Scene, auto_name, choice, target_of
from .words import MAX_ACCESSES, Spot, integer, shown, split

__all__ = ["EXTRAS", "build", "rows_of"]

EXTRAS = {
    "label": "label", "name": "name", "parent": "parent", "sync": "sync", "value": "value", "of": "sync_of",
    "state": "wait_state", "target_kind": "target_kind", "target": "target", "set": "access_set", "arg": "arg",
    "list": "list", "issue": "issue_ns", "start": "start_after_issue_ns", "dur": "duration_ns", "step": "step",
    "split": "split", "bytes": "bytes", "origin": "origin",
}  # fmt: skip
"""Keys of the last field and the column of ``ops`` that each sets; ``units``, ``id`` come on top."""

_INT32 = ("split", "list", "set", "target")
_NUMBERS = ("value", "arg", "issue", "start", "dur", "step", "split", "bytes", "target", "set", "list")


def rows_of(file: File, variant: str) -> list[RowText]:
    """Return the rows of a variant."""
    dropped = "+" if variant == "buggy" else "-"
    return [r for r in file.rows if r.sign != dropped]


class _Painted:
    """Which unnamed sub-allocation a byte of a buffer belongs to; later ones cover earlier ones."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []
        self.owners: list[int] = []

    def paint(self, begin: int, end: int, owner: int) -> None:
        lo = bisect_right(self.ends, begin)
        hi = bisect_right(self.begins, end - 1)
        begins, ends, owners = [begin], [end], [owner]
        if lo < hi:
            if self.begins[lo] < begin:
                begins, ends, owners = [self.begins[lo], *begins], [begin, *ends], [self.owners[lo], *owners]
            if self.ends[hi - 1] > end:
                begins, ends, owners = (
                    [*begins, end],
                    [*ends, self.ends[hi - 1]],
                    [*owners, self.owners[hi - 1]],
                )
        self.begins[lo:hi], self.ends[lo:hi], self.owners[lo:hi] = begins, ends, owners

    def owner(self, at: int) -> int | None:
        i = bisect_right(self.begins, at) - 1
        return self.owners[i] if i >= 0 and at < self.ends[i] else None


class _Buffers:
    """The buffer rows of one variant and which of them a written name means at a given row."""

    def __init__(self, file: File, scene: Scene, rows: list[RowText], ops: list[int]) -> None:
        self.rows = [{**b, "alloc_op": None, "free_op": None} for b in scene.buffers]
        self.implied = not scene.buffers_declared
        self.file = file
        self.current: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.named: dict[tuple[str, int], int] = {}
        self.many: set[str] = set()
        self.uses: dict[tuple[int, int, int], int] = {}
        self.painted: dict[int, _Painted] = {}
        self.exact: dict[tuple[int, int, int], int] = {}
        self.steps: list[list[Callable[[], None]]] = [[] for _ in rows]
        self.targets: list[int | None] = [None] * len(rows)
        for b in self.rows:
            self._register(b)
        self._walk(rows, ops)
        self._rewind(scene)

    # --- rows ---

    def _register(self, row: dict[str, Any]) -> None:
        name, ident = row["name"], row["buffer"]
        if name in self.first:
            self.many.add(name)
        self.first.setdefault(name, ident)
        self.current.setdefault(name, ident)
        self.named.setdefault((name, row["generation"]), ident)
        if row["parent"] is not None and row["bytes"] is not None:
            key = (row["parent"], row["parent_offset"], row["bytes"])
            self.uses[key] = max(self.uses.get(key, -1), row["generation"])

    def _add(self, spot: Spot, name: str, parent: int, offset: int, size: int | None, **columns: Any) -> int:
        base = self.rows[parent]
        key = (parent, offset, -1 if size is None else size)
        self.uses[key] = generation = max(self.uses.get(key, -1) + 1, columns.pop("generation", 0))
        if (name, generation) in self.named:
            raise spot.error(
                f"a second buffer {name}#{generation}", "a name that is free", "choose another name"
            )
        row = {
            "buffer": len(self.rows), "device": base["device"], "name": name, "bytes": size, "kind": base["kind"],
            "parent": parent, "parent_offset": offset, "generation": generation, "alloc_op": None, "free_op": None,
            "shared_key": None,
        }  # fmt: skip
        self.rows.append(row)
        self.first.setdefault(name, row["buffer"])
        self.named[name, generation] = row["buffer"]
        return int(row["buffer"])

    # --- which generation begins and ends where ---

    def _walk(self, rows: list[RowText], ops: list[int]) -> None:
        plain: dict[str, tuple[Spot, list[str]]] = {}
        texts = [target_of(row) for row in rows]
        for row, (new, ref) in zip(rows, texts, strict=True):
            if ref is not None and new is None and ref.bare and ref.begin is None:
                plain.setdefault(ref.name, (row.spot, []))[1].append(row.kind)
        storage: dict[str, int] = {}
        started: set[str] = set()
        for name, (spot, kinds) in plain.items():
            root = self.first.get(name)
            if root is None or self.rows[root]["parent"] is not None or name in self.many:
                continue
            if kinds.count("alloc") + (kinds[0] == "free") > 1:
                storage[name] = root
                self.current[name] = self._add(spot, name, root, 0, self.rows[root]["bytes"], generation=1)
                if kinds[0] == "free":
                    started.add(name)
        for i, (row, (new, ref)) in enumerate(zip(rows, texts, strict=True)):
            if ref is None:
                continue
            if row.kind == "alloc":
                ident = self._alloc(i, row, new, ref, storage, started)
            else:
                ident = self._free(row, ref, started)
            self.targets[i] = ident
            column = "alloc_op" if row.kind == "alloc" else "free_op"
            if self.rows[ident][column] is None:
                self.rows[ident][column] = ops[i]

    def _alloc(
        self, i: int, row: RowText, new: str | None, ref: RefText, storage: dict[str, int], started: set[str]
    ) -> int:
        if ref.begin is not None:
            parent = self._base(row.spot, ref)
            self._inside(row.spot, ref, parent, ref.begin, ref.end)
            name = auto_name(ref) if new is None else new
            if new is not None and new in self.first:
                raise row.spot.error(f"a second buffer {shown(new)}", "a new name", "choose another name")
            ident = self._add(row.spot, name, parent, ref.begin, ref.end - ref.begin)
            self._switch(i, name, ident)
            if new is None:
                begin, end = ref.begin, ref.end
                self.exact[parent, begin, end] = ident
                if begin < end:
                    self.steps[i].append(
                        lambda: self.painted.setdefault(parent, _Painted()).paint(begin, end, ident)
                    )
            return ident
        if not ref.bare:
            return self._base(row.spot, ref)
        name = ref.name
        ident = self._base(row.spot, ref)
        again = name in started or self.rows[ident]["alloc_op"] is not None
        started.add(name)
        if not again:
            return ident
        old = self.rows[ident]
        if name in storage:
            ident = self._add(
                row.spot, name, storage[name], 0, old["bytes"], generation=old["generation"] + 1
            )
        else:
            if old["parent"] is None:
                raise row.spot.error(f"a second alloc of {name}", f"{name}#generation")
            ident = self._add(row.spot, name, old["parent"], old["parent_offset"], old["bytes"])
        self._switch(i, name, ident)
        return ident

    def _free(self, row: RowText, ref: RefText, started: set[str]) -> int:
        if ref.begin is None:
            if ref.bare:
                started.add(ref.name)
            return self._base(row.spot, ref)
        found = self.exact.get((self._base(row.spot, ref), ref.begin, ref.end))
        if found is None:
            raise row.spot.error(
                f"free of {ref.name}[{ref.begin}:{ref.end}]",
                "the range of an earlier `alloc`",
                "give the sub-allocation a name: alloc NAME=BUFFER[begin:end], free NAME",
            )
        return found

    def _switch(self, i: int, name: str, ident: int) -> None:
        self.current[name] = ident
        self.steps[i].append(lambda: self.current.__setitem__(name, ident))

    def _rewind(self, scene: Scene) -> None:
        """Go back to what each name means before the first row."""
        self.painted.clear()
        declared = len(scene.buffers)
        self.current = dict(self.first)
        for row in self.rows[declared:]:
            root = row["parent"]
            if (
                row["generation"] == 1
                and row["parent_offset"] == 0
                and self.rows[root]["name"] == row["name"]
            ):
                self.current[row["name"]] = row["buffer"]

    # --- what a reference means ---

    def _base(self, spot: Spot, ref: RefText) -> int:
        if ref.name.startswith("."):
            ident = integer(spot, ref.name[1:], "buffer id")
            if ident >= len(self.rows) or ref.generation is not None:
                raise spot.error(f"buffer {ref.name}", f"an id below {len(self.rows)}, without a generation")
            return ident
        if ref.generation is not None:
            found = self.named.get((ref.name, ref.generation))
        else:
            if ref.name in self.many:
                raise spot.error(f"{ref.name}, which has several generations", f"{ref.name}#generation")
            found = self.current.get(ref.name)
        if found is None:
            what = ref.name if ref.generation is None else f"{ref.name}#{ref.generation}"
            raise spot.error(
                f"buffer {shown(what)}",
                "a buffer that the rows name" if self.implied else "a buffer that the header declares",
                "" if self.implied else "add a `buffer` line: once one buffer is declared, all are",
            )
        return found

    def _inside(self, spot: Spot, ref: RefText, ident: int, begin: int, end: int) -> None:
        size = self.rows[ident]["bytes"]
        if not 0 <= begin <= end or end > (size if size is not None else (1 << 63) - 1):
            raise spot.error(
                f"bytes {begin} to {end} of {ref.name}",
                f"a range inside its {'?' if size is None else size} bytes",
            )

    def resolve(self, spot: Spot, access: AccessText, arg: int, units: tuple[int, ...]) -> dict[str, Any]:
        """Return the columns of an access."""
        ref = access.ref
        columns: dict[str, Any] = {
            "buffer": None, "offset": ref.begin or 0, "bytes": 0, "offset_per_arg": ref.begin_per_arg,
            "bytes_per_arg": ref.end_per_arg - ref.begin_per_arg, "unit_bytes": ref.unit_bytes,
            "mode": access.mode, "origin": access.origin, "name": access.name,
        }  # fmt: skip
        if ref.name == "?":
            return {**columns, "bytes": ref.end - (ref.begin or 0)}
        ident = self._base(spot, ref)
        if ref.begin is None:
            size = self.rows[ident]["bytes"]
            if size is None:
                raise spot.error(f"all of {ref.name}, whose size is not known", f"{ref.name}[begin:end]")
            return {**columns, "buffer": ident, "bytes": size}
        begin, end = ref.begin + ref.begin_per_arg * arg, ref.end + ref.end_per_arg * arg
        low, high = (min(units), max(units)) if ref.unit_bytes is not None and units else (0, 0)
        unit_bytes = ref.unit_bytes or 0
        if begin > end:
            raise spot.error(f"bytes {begin} to {end} of {ref.name}", "begin <= end")
        self._inside(spot, ref, ident, begin + low * unit_bytes, end + high * unit_bytes)
        offset = ref.begin
        if ref.bare and ident in self.painted and not ref.affine and ref.unit_bytes is None:
            owner = self.painted[ident].owner(begin)
            if owner is not None:
                sub = self.rows[owner]
                if end <= sub["parent_offset"] + sub["bytes"]:
                    ident, offset = owner, begin - sub["parent_offset"]
        return {**columns, "buffer": ident, "offset": offset, "bytes": ref.end - ref.begin}


class _Builder:
    """Builds the tape of one variant."""

    def __init__(self, file: File, scene: Scene, variant: str) -> None:
        self.file = file
        self.scene = scene
        self.rows = rows_of(file, variant)
        self.variant = variant
        self.tape = TapeBuilder()
        self.labels: dict[str, int] = {}
        self.ops: list[int] = []
        self._number()
        self.buffers = _Buffers(file, scene, self.rows, self.ops)

    def _number(self) -> None:
        last = -1
        for row in self.rows:
            ident = row.op if row.op is not None else last + 1
            if "id" in row.values:
                ident = integer(row.spot, row.values["id"], "id", low=0)
            if ident <= last:
                raise row.spot.error(f"op id {ident} after {last}", "ids that grow from row to row")
            if ident >= 1 << 63:
                raise row.spot.error(f"op id {ident}", "64 bits")
            last = ident
            self.ops.append(ident)
            if row.label is not None:
                if row.label in self.labels:
                    raise row.spot.error(
                        f"a second row {shown(row.label)} in the {self.variant} variant", "each label once"
                    )
                self.labels[row.label] = ident
            self.labels[f".{ident}"] = ident

    def op(self, spot: Spot, written: str) -> int:
        found = self.labels.get(written)
        if found is None:
            raise spot.error(f"row {shown(written)}", f"the label of a row of the {self.variant} variant")
        return found

    def build(self) -> Tape:
        scene, tape = self.scene, self.tape
        for sort in ("devices", "queues", "syncs"):
            for r in getattr(scene, sort).rows:
                tape.add(sort, **r)
        for ident, units in scene.lists:
            for u in units:
                tape.add("lists", list=ident, unit=u)
        self.lists = dict(scene.lists)
        self.next_list = max(self.lists, default=-1) + 1
        self.list_ids: dict[tuple[int, ...], int] = {}
        self.set_ids: dict[tuple[tuple[str, Any], ...] | tuple[Any, ...], int] = {}
        self.known_sets = {0}
        self._declared_sets()
        for i, row in enumerate(self.rows):
            self._row(i, row)
        for row in self.buffers.rows:
            tape.add("buffers", **row)
        self._lifetimes()
        for e in self.file.edges:
            if e.sign != ("+" if self.variant == "buggy" else "-"):
                tape.edge(
                    self.op(e.spot, e.src),
                    self.op(e.spot, e.dst),
                    choice(e.spot, e.kind, EDGE_KINDS, "edge kind"),
                    choice(e.spot, e.origin, ACCESS_ORIGINS, "origin"),
                )
        return tape.build(scene.manifest, name=self.file.name)

    def _lifetimes(self) -> None:
        """Apply ``alloc=`` and ``free=`` of the header, which overrule what the rows say."""
        for (spot, given), row in zip(self.scene.buffer_spots, self.tape.rows("buffers"), strict=False):
            for key, written in given.items():
                row[f"{key}_op"] = None if written is None else self.op(spot, written)

    def _declared_sets(self) -> None:
        self.next_set = 1
        for spot, ident, reads, writes in self.scene.set_lines:
            accesses = parse_accesses(spot, reads, writes)
            if not accesses:
                raise spot.error(
                    f"set {ident} without accesses", "at least one; nothing is set 0, unknown is `?`"
                )
            for seq, a in enumerate(accesses):
                self.tape.add("accesses", set=ident, seq=seq, **self.buffers.resolve(spot, a, 0, ()))
            self.known_sets.add(ident)
            self.next_set = max(self.next_set, ident + 1)

    def _list(self, units: tuple[int, ...]) -> int:
        found = self.list_ids.get(units)
        if found is None:
            found = self.list_ids[units] = self.next_list
            self.next_list += 1
            self.lists[found] = units
            for u in units:
                self.tape.add("lists", list=found, unit=u)
        return found

    def _access_set(self, row: RowText, arg: int, units: tuple[int, ...]) -> int | None:
        if row.accesses is None:
            return None
        if not row.accesses:
            return 0
        full = [self.buffers.resolve(row.spot, a, arg, units) for a in row.accesses]
        key = tuple(tuple(a.values()) for a in full)
        found = self.set_ids.get(key)
        if found is None:
            found = self.set_ids[key] = self.next_set
            self.next_set += 1
            for seq, a in enumerate(full):
                self.tape.add("accesses", set=found, seq=seq, **a)
        return found

    def _units(self, row: RowText) -> tuple[int | None, tuple[int, ...]]:
        spot, text = row.spot, row.values.get("units")
        if text is not None:
            units = tuple(integer(spot, u, "unit") for u in text.split(","))
            if len(units) > MAX_ACCESSES:
                raise spot.error(f"{len(units)} units", f"at most {MAX_ACCESSES}")
            return self._list(units), units
        if row.values.get("list") is not None:
            ident = integer(spot, row.values["list"], "list", bits=32)
            if ident not in self.lists:
                raise spot.error(f"list {ident}", "a list that the header declares, or units=3,5")
            return ident, self.lists[ident]
        return None, ()

    def _row(self, i: int, row: RowText) -> None:
        for step in self.buffers.steps[i]:
            step()
        scene, spot, values = self.scene, row.spot, row.values
        queue = scene.queues.get(spot, row.queue)
        issuer = scene.default_issuer(queue)
        if row.thread is not None:
            issuer = None if row.thread == "?" else scene.queues.get(spot, row.thread)
            if issuer is not None and not scene.is_host(issuer):
                raise spot.error(f"issuer {shown(row.thread)}", "a host thread")
        columns: dict[str, Any] = {
            "op": self.ops[i], "kind": row.kind, "label": row.label, "queue": queue, "issuer": issuer,
        }  # fmt: skip
        columns["list"], units = self._units(row)
        self._target(i, row, columns)
        if row.kind in ("wait", "wait_any") and values.get("of") is None:
            columns["wait_state"] = "contract"
        for key, text in values.items():
            if key in ("id", "units", "list"):
                continue
            if key not in EXTRAS:
                raise spot.error(f"{key}=", f"one of {', '.join((*EXTRAS, 'units', 'id'))}")
            columns[EXTRAS[key]] = self._value(spot, key, text)
        if "set" in values:
            if row.accesses:
                raise spot.error("accesses beside set=", "either of them")
        else:
            columns["access_set"] = self._access_set(row, columns.get("arg") or 0, units)
        self.tape.add("ops", **columns)

    def _value(self, spot: Spot, key: str, text: str | None) -> Any:
        if text is None:
            if key == "origin":
                raise spot.error("origin=-", f"one of {', '.join(ACCESS_ORIGINS)}")
            return None
        if key in _NUMBERS:
            value = integer(spot, text, key, bits=32 if key in _INT32 else 64)
            if key == "set" and value not in self.known_sets:
                raise spot.error(f"set {value}", "a set that the header declares")
            return value
        if key in ("parent", "of"):
            return self.op(spot, text)
        if key == "sync":
            return self.scene.syncs.get(spot, text)
        if key == "state":
            return choice(spot, text, WAIT_STATES, "state")
        if key == "target_kind":
            return choice(spot, text, SYNC_TARGETS, "target_kind")
        if key == "origin":
            return choice(spot, text, ACCESS_ORIGINS, "origin")
        return text

    def _target(self, i: int, row: RowText, columns: dict[str, Any]) -> None:
        """Read the sixth field by kind."""
        spot, text, scene = row.spot, row.target, self.scene
        if row.kind in ("alloc", "free"):
            columns["target"] = self.buffers.targets[i]
        elif not text:
            if row.kind == "sync" and "target_kind" not in row.values:
                raise spot.error("a sync without a target", "QUEUE, device:NAME or * in the sixth field")
            needs = ("record", "wait", "semsig", "semwait", "coll")
            if row.kind in needs and "sync" not in row.values:
                raise spot.error(
                    f"a {row.kind} without a name", "the event, semaphore or collective in the sixth field"
                )
            if row.kind == "wait_any" and columns["list"] is None and "list" not in row.values:
                raise spot.error("a wait_any without names", "events in the sixth field, as `e1,e2`")
        elif row.kind == "sync":
            if text == "*":
                columns["target_kind"] = "all"
            elif text.startswith("device:"):
                columns["target_kind"] = "device"
                columns["target"] = scene.devices.get(spot, text.removeprefix("device:").strip())
            else:
                columns["target_kind"] = "queue"
                columns["target"] = scene.queues.get(spot, text)
        elif row.kind == "wait_any":
            if "units" in row.values or "list" in row.values:
                raise spot.error("names beside units= or list=", "either of them")
            columns["list"] = self._list(tuple(scene.syncs.get(spot, n) for n in split(spot, text, ",")))
        elif row.kind in ("record", "wait", "semsig", "semwait", "coll", "destroy"):
            columns["sync"] = scene.syncs.get(spot, text)
        else:
            raise spot.error(f"{shown(text)} in the sixth field of a {row.kind}", "nothing there")


def build(file: File, scene: Scene, variant: str) -> tuple[Tape, dict[str, int]]:
    """Return the tape of one variant and the op id of each label (and of each ``.id``)."""
    builder = _Builder(file, scene, variant)
    return builder.build(), builder.labels
