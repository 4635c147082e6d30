"""Generations and sub-allocations: which buffer row a written name means at a given row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from ..notation import Spot, integer, shown
from .lines import AccessText, File, RefText, RowText
from .scene import Scene, auto_name, target_of

__all__ = ["Buffers"]


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


class Buffers:
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
            "buffer": len(self.rows),
            "device": base["device"],
            "name": name,
            "bytes": size,
            "kind": base["kind"],
            "parent": parent,
            "parent_offset": offset,
            "generation": generation,
            "alloc_op": None,
            "free_op": None,
            "shared_key": None,
        }
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
            "buffer": None,
            "offset": ref.begin or 0,
            "bytes": 0,
            "offset_per_arg": ref.begin_per_arg,
            "bytes_per_arg": ref.end_per_arg - ref.begin_per_arg,
            "unit_bytes": ref.unit_bytes,
            "mode": access.mode,
            "origin": access.origin,
            "name": access.name,
        }
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
