"""Read the header lines of a litmus file into its scene."""

from __future__ import annotations

import re
from typing import Any

from ..notation import NAME, Spot, integer, json_value, shown, split
from ..schema import BUFFER_KINDS, COVERAGE, DEVICE_KINDS, QUEUE_KINDS, SYNC_KINDS
from ..switches import TABLE
from ..tape import Coverage, Manifest, Process
from .implied import imply_buffers, imply_queues, imply_syncs
from .lines import Declaration, File, parse_ref
from .names import choice
from .scene import Scene

__all__ = ["make_scene"]

_BUFFER = re.compile(rf"(\.[0-9]{{1,10}}|{NAME})(?:#([0-9]{{1,10}}))?")


class HeaderReader:
    """Reads the header lines into a scene."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.scene = Scene()
        self.processes: list[Process] = []
        self.coverage: list[Coverage] = []
        self.meta: dict[str, Any] = {}
        self.profiles: dict[str, dict[str, Any]] = {}
        self.switches: dict[str, str] = {}

    def int_or_none(self, spot: Spot, values: dict[str, str | None], key: str, bits: int = 64) -> int | None:
        """Take a number out of the options; None where it is missing or null."""
        text = values.pop(key, None)
        return None if text is None else integer(spot, text, key, bits=bits)

    def int_or(
        self, spot: Spot, values: dict[str, str | None], key: str, default: int, bits: int = 32
    ) -> int:
        """Take a number out of the options, or return the default."""
        return integer(spot, values.pop(key), key, bits=bits) if key in values else default

    def name_or(self, spot: Spot, values: dict[str, str | None], key: str, default: str) -> str:
        """Take a name out of the options, or return the default."""
        text = values.pop(key, default)
        if text is None:
            raise spot.error(f"{key}=-", "a name")
        return text

    def args(self, d: Declaration, least: int, most: int, form: str) -> tuple[str, ...]:
        """Return the plain words of a line, so many as its form has."""
        if not least <= len(d.options.args) <= most:
            raise d.spot.error(f"`{d.word} {d.rest[:60]}`", form)
        return d.options.args

    def finish(self, d: Declaration, values: dict[str, str | None], form: str) -> None:
        """Refuse options that nothing has taken."""
        if values:
            raise d.spot.error(f"{next(iter(values))}=", form)

    # --- one method per header word ---

    def do_process(self, d: Declaration) -> None:
        """Read a ``process`` line."""
        form = "process N [complete=no] [records=N] [lost=N] [wall_offset=NS]"
        (number,) = self.args(d, 1, 1, form)
        v = dict(d.options.values)
        complete = choice(d.spot, v.pop("complete", "yes"), ("yes", "no"), "complete") == "yes"
        self.processes.append(
            Process(
                integer(d.spot, number, "process", bits=32, low=0),
                complete,
                self.int_or(d.spot, v, "records", 0, 64),
                self.int_or(d.spot, v, "lost", 0, 64),
                self.int_or_none(d.spot, v, "wall_offset"),
            )
        )
        self.finish(d, v, form)

    def do_device(self, d: Declaration) -> None:
        """Read a ``device`` line."""
        form = "device NAME KIND [profile=NAME] [process=N]"
        name, kind = self.args(d, 2, 2, form)
        v = dict(d.options.values)
        process = self.int_or(d.spot, v, "process", 0)
        profile = self.name_or(d.spot, v, "profile", "strict")
        self.scene.devices.declare(
            d.spot,
            name,
            v,
            kind=choice(d.spot, kind, DEVICE_KINDS, "device kind"),
            profile=profile,
            process=process,
        )
        self.finish(d, v, form)

    def do_host(self, d: Declaration) -> None:
        """Read a ``host`` line."""
        self._queue(
            d, "host NAME [DEVICE] [process=N] [clock=NAME] [clock_error=NS] [order=in|out]", "host_thread"
        )

    def do_queue(self, d: Declaration) -> None:
        """Read a ``queue`` line."""
        self._queue(
            d,
            "queue NAME [DEVICE] [kind=KIND] [order=in|out] [process=N] [clock=NAME] [clock_error=NS]",
            "queue",
        )

    def _queue(self, d: Declaration, form: str, kind: str) -> None:
        name, *rest = self.args(d, 1, 2, form)
        v = dict(d.options.values)
        process = self.int_or(d.spot, v, "process", 0)
        if d.word == "queue":
            kind = choice(d.spot, v.pop("kind", kind), QUEUE_KINDS, "queue kind")
        if rest:
            device = self.scene.device(d.spot, rest[0], process)
        elif kind == "host_thread":
            host = self.scene.host_device(process)
            if host is None:
                raise d.spot.error(
                    "a host thread without a host device", "a line `device NAME host` before it"
                )
            device = host
        elif self.scene.devices.declared:
            raise d.spot.error(f"queue {shown(name)} without a device", form)
        else:
            device = self.scene.device(d.spot, "device", process)
        self.scene.queues.declare(
            d.spot,
            name,
            v,
            device=device,
            kind=kind,
            in_order=choice(d.spot, v.pop("order", "in"), ("in", "out"), "order") == "in",
            clock=self.name_or(d.spot, v, "clock", "host"),
            clock_error_ns=self.int_or_none(d.spot, v, "clock_error"),
            process=process,
        )
        self.finish(d, v, form)

    def do_sync(self, d: Declaration) -> None:
        """Read a ``sync`` line."""
        form = "sync NAME KIND [device=NAME] [process=N, - if shared by several]"
        name, kind = self.args(d, 2, 2, form)
        v = dict(d.options.values)
        device = v.pop("device", None)
        process = self.int_or_none(d.spot, v, "process", 32) if "process" in v else 0
        self.scene.syncs.declare(
            d.spot,
            name,
            v,
            kind=choice(d.spot, kind, SYNC_KINDS, "sync kind"),
            device=None if device is None else self.scene.devices.get(d.spot, device),
            process=process,
        )
        self.finish(d, v, form)

    def do_buffer(self, d: Declaration) -> None:
        """Read a ``buffer`` line."""
        form = (
            "buffer NAME[#generation] [BYTES] [device=NAME] [kind=KIND] [parent=BUFFER offset=N] [shared=KEY]"
            " [alloc=ROW] [free=ROW]"
        )
        written, *rest = self.args(d, 1, 2, form)
        scene, v, spot = self.scene, dict(d.options.values), d.spot
        scene.buffers_declared = True
        m = _BUFFER.fullmatch(written)
        if m is None:
            raise spot.error(f"buffer {shown(written)}", 'a name, NAME#generation, or .id with name="..."')
        name, generation = m[1], integer(spot, m[2] or "0", "generation", bits=32)
        if name.startswith("."):
            if integer(spot, name[1:], "buffer id", bits=32) != len(scene.buffers):
                raise spot.error(f"buffer {name}", f".{len(scene.buffers)}: ids count up from 0")
            name = self.name_or(spot, v, "name", "")
        elif (name, generation) in self._generations:
            raise spot.error(f"a second buffer {name}#{generation}", "each generation once")
        device = v.pop("device", None)
        if not scene.devices.rows:
            scene.host_device(0)
        ident = 0 if device is None else scene.device(spot, device, 0)
        host = scene.devices.rows[ident]["kind"] == "host"
        parent = v.pop("parent", None)
        row = {
            "buffer": len(scene.buffers),
            "device": ident,
            "name": name,
            "bytes": integer(spot, rest[0], "bytes", low=0) if rest else None,
            "kind": choice(spot, v.pop("kind", "host" if host else "device"), BUFFER_KINDS, "buffer kind"),
            "parent": None if parent is None else self.declared_buffer(spot, parent),
            "parent_offset": self.int_or_none(spot, v, "offset"),
            "generation": generation,
            "shared_key": self.int_or_none(spot, v, "shared", 32),
        }
        if (parent is None) != (row["parent_offset"] is None):
            raise spot.error("parent= or offset= alone", "both, or none")
        self._check_inside(spot, row)
        ops: dict[str, str | None] = {k: v.pop(k) for k in ("alloc", "free") if k in v}
        self._names.setdefault(name, []).append(row)
        self._generations.setdefault((name, generation), len(scene.buffers))
        scene.buffers.append(row)
        scene.buffer_spots.append((spot, ops))
        self.finish(d, v, form)

    _names: dict[str, list[dict[str, Any]]]
    _generations: dict[tuple[str, int], int]

    def _check_inside(self, spot: Spot, row: dict[str, Any]) -> None:
        if row["parent"] is None or row["bytes"] is None:
            return
        size = self.scene.buffers[row["parent"]]["bytes"]
        end = row["parent_offset"] + row["bytes"]
        if row["parent_offset"] < 0 or (size is not None and end > size):
            raise spot.error(
                f"bytes {row['parent_offset']} to {end} of a parent of {size} bytes", "a range inside it"
            )

    def declared_buffer(self, spot: Spot, text: str) -> int:
        """Return the id of a buffer that is declared already."""
        ref = parse_ref(spot, text)
        if ref.name.startswith("."):
            ident = integer(spot, ref.name[1:], "buffer id")
            if 0 <= ident < len(self.scene.buffers):
                return ident
        rows = self._names.get(ref.name, [])
        ident = int(rows[0]["buffer"]) if len(rows) == 1 else -1
        if ref.generation is not None:
            ident = self._generations.get((ref.name, ref.generation), -1)
        if ident < 0 or ref.begin is not None:
            raise spot.error(f"parent {shown(text)}", "one buffer that an earlier line declares")
        return ident

    def do_coverage(self, d: Declaration) -> None:
        """Read a ``coverage`` line."""
        form = "coverage QUEUE [accesses=W] [host_accesses=W] [waits=W] [times=W], W = full, partial or none"
        (name,) = self.args(d, 1, 1, form)
        for key, word in d.options.values.items():
            if key not in ("accesses", "host_accesses", "waits", "times"):
                raise d.spot.error(f"{key}=", form)
            choice(d.spot, word, COVERAGE, key)
        self._coverage_lines.append((d.spot, name, {k: str(w) for k, w in d.options.values.items()}))

    _coverage_lines: list[tuple[Spot, str, dict[str, str]]]

    def do_list(self, d: Declaration) -> None:
        """Read a ``list`` line."""
        number, _, units = d.rest.partition(" ")
        ident = integer(d.spot, number, "list id", bits=32, low=0)
        if ident in self._list_ids:
            raise d.spot.error(f"a second list {ident}", "each list once")
        self._list_ids.add(ident)
        cells = split(d.spot, units, ",") if units.strip() else []
        self.scene.lists.append((ident, tuple(integer(d.spot, c, "unit") for c in cells)))

    _list_ids: set[int]

    def do_set(self, d: Declaration) -> None:
        """Read a ``set`` line."""
        cells = split(d.spot, d.rest, "|")
        if len(cells) != 3:
            raise d.spot.error(f"`set {d.rest[:60]}`", "set N | reads | writes")
        ident = integer(d.spot, cells[0], "set id", bits=32, low=1)
        if ident in self._set_ids:
            raise d.spot.error(f"a second set {ident}", "each set once")
        self._set_ids.add(ident)
        self.scene.set_lines.append((d.spot, ident, cells[1], cells[2]))

    _set_ids: set[int]

    def do_profile(self, d: Declaration) -> None:
        """Read a ``profile`` line."""
        name, _, rest = d.rest.partition(" ")
        if name.startswith('"'):
            raise d.spot.error(f"profile {shown(name)}", "a plain name")
        value = json_value(d.spot, rest.strip(), "profile")
        if not name or not isinstance(value, dict) or name in self.profiles:
            raise d.spot.error(f"`profile {d.rest[:60]}`", 'profile NAME {"key": value, ...}, each name once')
        self.profiles[name] = value

    def do_switch(self, d: Declaration) -> None:
        """Read a ``switch`` line."""
        form = "switch NAME STATE"
        name, state = self.args(d, 2, 2, form)
        self.finish(d, dict(d.options.values), form)
        if name in self.switches:
            raise d.spot.error(f"a second switch {shown(name)}", "each switch once")
        if name in TABLE:
            choice(d.spot, state, TABLE[name].states, "state")
        self.switches[name] = state

    def do_meta(self, d: Declaration) -> None:
        """Read a ``meta`` line."""
        kinds: dict[str, type] = {
            "engine": dict, "switches": dict, "notes": list, "complete": bool, "lost": int, "dropped": int,
            "created_by": str,
        }  # fmt: skip
        key, _, rest = d.rest.partition(" ")
        want = kinds.get(key)
        if want is None or key in self.meta:
            raise d.spot.error(f"meta {shown(key)}", f"one of {', '.join(kinds)}, each once")
        value = json_value(d.spot, rest.strip(), f"meta {key}")
        inner = (
            value.values()
            if isinstance(value, dict) and key == "switches"
            else value
            if key == "notes"
            else ()
        )
        if type(value) is not want or not all(isinstance(x, str) for x in inner):  # type: ignore[attr-defined]
            raise d.spot.error(
                f"meta {key} {shown(rest)}", f"JSON of type {want.__name__}, with strings inside if any"
            )
        self.meta[key] = tuple(value) if isinstance(value, list) else value

    # --- what the rows imply ---

    def read(self) -> Scene:
        """Read the header, then imply what it leaves out."""
        self._names, self._generations, self._coverage_lines = {}, {}, []
        self._list_ids, self._set_ids = set(), set()
        for d in self.file.declarations:
            getattr(self, f"do_{d.word}")(d)
        imply_queues(self.file, self.scene)
        imply_syncs(self.file, self.scene)
        if not self.scene.buffers_declared:
            imply_buffers(self.file, self.scene)
        queues = self.scene.queues
        self.coverage = [Coverage(queues.get(s, n), **words) for s, n, words in self._coverage_lines]
        processes = tuple(self.processes) or self._implied_processes()
        # the whole is no better than its parts
        if self.switches:
            self.meta["switches"] = {**self.meta.get("switches", {}), **self.switches}
        self.meta.setdefault("complete", all(p.complete for p in processes))
        self.meta.setdefault("lost", sum(p.lost for p in processes))
        self.scene.manifest = Manifest(
            profiles=self.profiles,
            processes=processes,
            coverage=tuple(self.coverage),
            **self.meta,
        )
        return self.scene

    def _implied_processes(self) -> tuple[Process, ...]:
        rows = [*self.scene.devices.rows, *self.scene.queues.rows]
        last = max((int(r["process"]) for r in rows), default=0)
        return tuple(Process(p) for p in range(min(max(last, 0), 1023) + 1))


def make_scene(file: File) -> Scene:
    """Read the header of a file, or imply it."""
    return HeaderReader(file).read()
