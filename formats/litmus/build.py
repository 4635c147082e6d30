"""From the lines of a litmus file to the tape of one variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..builder import TapeBuilder
from ..notation import MAX_ACCESSES, Spot, integer, shown, split
from ..schema import ACCESS_ORIGINS, EDGE_KINDS, SYNC_TARGETS, WAIT_STATES
from ..tape import Tape
from .generations import Buffers
from .lines import File, RowText, parse_accesses
from .names import choice
from .scene import Scene

__all__ = ["EXTRAS", "build", "rows_of"]

EXTRAS = {
    "label": "label",
    "name": "name",
    "parent": "parent",
    "sync": "sync",
    "value": "value",
    "of": "sync_of",
    "state": "wait_state",
    "target_kind": "target_kind",
    "target": "target",
    "set": "access_set",
    "arg": "arg",
    "list": "list",
    "issue": "issue_ns",
    "start": "start_after_issue_ns",
    "dur": "duration_ns",
    "step": "step",
    "split": "split",
    "bytes": "bytes",
    "origin": "origin",
}
"""Keys of the last field and the column of ``ops`` that each sets; ``units``, ``id`` come on top."""

_INT32 = ("split", "list", "set", "target")
_NUMBERS = ("value", "arg", "issue", "start", "dur", "step", "split", "bytes", "target", "set", "list")


def rows_of(file: File, variant: str) -> list[RowText]:
    """Return the rows of a variant."""
    dropped = "+" if variant == "buggy" else "-"
    return [r for r in file.rows if r.sign != dropped]


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
        self.buffers = Buffers(file, scene, self.rows, self.ops)

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
        for columns in self.buffers.rows:
            tape.add("buffers", **columns)
        self._lifetimes()
        for e in self.file.edges:
            if e.sign != ("+" if self.variant == "buggy" else "-"):
                tape.edge(
                    self.op(e.spot, e.src),
                    self.op(e.spot, e.dst),
                    choice(e.spot, e.kind, EDGE_KINDS, "edge kind"),
                    choice(e.spot, e.origin, ACCESS_ORIGINS, "origin"),
                )
        built = tape.build(scene.manifest, name=Path(self.file.name).name)
        built.where = self.file.name
        return built

    def _lifetimes(self) -> None:
        """Apply ``alloc=`` and ``free=`` of the header, which overrule what the rows say."""
        for (spot, given), buffer in zip(self.scene.buffer_spots, self.tape.rows("buffers"), strict=False):
            for key, written in given.items():
                buffer[f"{key}_op"] = None if written is None else self.op(spot, written)

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
            "op": self.ops[i],
            "kind": row.kind,
            "label": row.label,
            "queue": queue,
            "issuer": issuer,
        }
        columns["list"], units = self._units(row)
        self._target(i, row, columns)
        if row.kind == "wait" and values.get("of") is None:
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
