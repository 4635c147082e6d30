"""The scene of a litmus file: devices, queues, syncs and root buffers, declared or implied by use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..schema import BUFFER_KINDS, COVERAGE, DEVICE_KINDS, QUEUE_KINDS, SYNC_KINDS
from ..tape import Coverage, Manifest, Process
from .lines import Declaration, File, RefText, RowText, parse_ref
from .words import NAME, Spot, integer, json_value, shown, split

__all__ = ["DEFAULT_BUFFER_BYTES", "Names", "Scene", "choice", "make_scene", "target_of"]

DEFAULT_BUFFER_BYTES = 4096
"""Size of an implied buffer that is nowhere given a range."""

_NEW = re.compile(rf"({NAME})\s*=\s*(.*)")
_BUFFER = re.compile(rf"(\.[0-9]{{1,10}}|{NAME})(?:#([0-9]{{1,10}}))?")
_HOST_LETTERS = ("H", "T")
_MOST = {"device": 1024, "queue": 4096, "sync": 1 << 20}


def choice(spot: Spot, word: str | None, words: tuple[str, ...], what: str) -> str:
    """Return a word of a vocabulary."""
    if word not in words:
        raise spot.error(f"{what} {shown(word or '-')}", f"one of {', '.join(words)}")
    return str(word)


class Names:
    """The ids of one sort of thing, by name or as ``.id``.

    Parameters
    ----------
    sort : str
        What is named, for messages.
    """

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.rows: list[dict[str, Any]] = []
        self.declared = False
        self._ids: dict[str, int] = {}

    def add(self, name: str, **columns: Any) -> int:
        """Append a row and return its id."""
        ident = len(self.rows)
        self._room(Spot("litmus", 0))
        self._ids.setdefault(name, ident)
        self.rows.append({**columns, "name": name, self.sort: ident})
        return ident

    def _room(self, spot: Spot) -> None:
        if len(self.rows) >= _MOST[self.sort]:
            raise spot.error(f"more {self.sort}s", f"at most {_MOST[self.sort]}")

    def declare(self, spot: Spot, written: str, options: dict[str, str | None], **columns: Any) -> int:
        """Append the row of a header line, which gives a name, or ``.id`` and ``name=``."""
        self.declared = True
        self._room(spot)
        name = written
        if written.startswith("."):
            if integer(spot, written[1:], f"{self.sort} id", bits=32) != len(self.rows):
                raise spot.error(f"{self.sort} {written}", f".{len(self.rows)}: ids count up from 0")
            given = options.pop("name", "")
            if given is None:
                raise spot.error("name=-", "a name")
            self.rows.append({**columns, "name": given, self.sort: len(self.rows)})
            return len(self.rows) - 1
        if not re.fullmatch(NAME, written):
            raise spot.error(f"{self.sort} {shown(written)}", 'a name, or .id with name="..."')
        if written in self._ids:
            raise spot.error(f"a second {self.sort} {shown(written)}", "each name once")
        return self.add(name, **columns)

    def find(self, spot: Spot, written: str) -> int | None:
        """Return the id of a name; None if it is not known."""
        if written.startswith("."):
            ident = integer(spot, written[1:], f"{self.sort} id", low=0)
            if ident >= len(self.rows):
                raise spot.error(f"{self.sort} {written}", f"an id below {len(self.rows)}")
            return ident
        return self._ids.get(written)

    def get(self, spot: Spot, written: str) -> int:
        """Return the id of a name that must be known."""
        found = self.find(spot, written)
        if found is None:
            raise spot.error(
                f"{self.sort} {shown(written)}",
                f"a {self.sort} that the header declares"
                if self.declared
                else f"a {self.sort} that the rows name",
                f"add a header line for it: once one {self.sort} is declared, all are"
                if self.declared
                else "",
            )
        return found


@dataclass
class Scene:
    """Everything that holds for both variants of a file."""

    devices: Names = field(default_factory=lambda: Names("device"))
    queues: Names = field(default_factory=lambda: Names("queue"))
    syncs: Names = field(default_factory=lambda: Names("sync"))
    buffers: list[dict[str, Any]] = field(default_factory=list)
    buffer_spots: list[tuple[Spot, dict[str, str | None]]] = field(default_factory=list)
    buffers_declared: bool = False
    lists: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    set_lines: list[tuple[Spot, int, str, str]] = field(default_factory=list)
    manifest: Manifest = field(default_factory=Manifest)
    issuers: dict[int, int | None] = field(default_factory=dict)

    def is_host(self, queue: int) -> bool:
        """Whether a queue is a host thread."""
        return bool(self.queues.rows[queue]["kind"] == "host_thread")

    def default_issuer(self, queue: int) -> int | None:
        """Return who issues a row that names no thread."""
        if queue not in self.issuers:
            if self.is_host(queue):
                return queue
            rows = self.queues.rows
            hosts = [q for q, r in enumerate(rows) if r["kind"] == "host_thread"]
            same = [q for q in hosts if rows[q]["process"] == rows[queue]["process"]]
            self.issuers[queue] = (same or hosts or [None])[0]  # type: ignore[list-item]
        return self.issuers[queue]


def target_of(row: RowText) -> tuple[str | None, RefText | None]:
    """Return the new name (or None) and the buffer of an alloc or free row (None: a bare one)."""
    if row.kind not in ("alloc", "free") or not row.target:
        return None, None
    new, text = None, row.target
    if m := _NEW.fullmatch(row.target):
        new, text = m[1], m[2]
    ref = parse_ref(row.spot, text)
    if ref.name == "?" or ref.affine or ref.unit_bytes is not None:
        raise row.spot.error(f"{row.kind} of {shown(text)}", "a buffer or a fixed range of one")
    if new is not None and (row.kind != "alloc" or ref.begin is None):
        raise row.spot.error(f"{shown(row.target)}", "alloc with NAME=BUFFER[begin:end]")
    return new, ref


class _Reader:
    """Reads the header lines into a scene."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.scene = Scene()
        self.processes: list[Process] = []
        self.coverage: list[Coverage] = []
        self.meta: dict[str, Any] = {}
        self.profiles: dict[str, dict[str, Any]] = {}

    def int_or_none(self, spot: Spot, values: dict[str, str | None], key: str, bits: int = 64) -> int | None:
        text = values.pop(key, None)
        return None if text is None else integer(spot, text, key, bits=bits)

    def int_or(
        self, spot: Spot, values: dict[str, str | None], key: str, default: int, bits: int = 32
    ) -> int:
        return integer(spot, values.pop(key), key, bits=bits) if key in values else default

    def name_or(self, spot: Spot, values: dict[str, str | None], key: str, default: str) -> str:
        text = values.pop(key, default)
        if text is None:
            raise spot.error(f"{key}=-", "a name")
        return text

    def args(self, d: Declaration, least: int, most: int, form: str) -> tuple[str, ...]:
        if not least <= len(d.options.args) <= most:
            raise d.spot.error(f"`{d.word} {d.rest[:60]}`", form)
        return d.options.args

    def finish(self, d: Declaration, values: dict[str, str | None], form: str) -> None:
        if values:
            raise d.spot.error(f"{next(iter(values))}=", form)

    def host_device(self, process: int) -> int:
        """Return the host device of a process, implied if no device is declared."""
        devices = self.scene.devices
        for row in devices.rows:
            if row["kind"] == "host" and row["process"] == process:
                return int(row["device"])
        if devices.declared:
            return next((int(r["device"]) for r in devices.rows if r["kind"] == "host"), -1)
        return devices.add(f"host{process or ''}", kind="host", profile="strict", process=process)

    def device(self, spot: Spot, name: str, process: int) -> int:
        devices = self.scene.devices
        found = devices.find(spot, name)
        if found is None and not devices.declared:
            self.host_device(process)
            found = devices.add(name, kind="gpu", profile="strict", process=process)
        return devices.get(spot, name) if found is None else found

    # --- one method per header word ---

    def do_process(self, d: Declaration) -> None:
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
        self._queue(
            d, "host NAME [DEVICE] [process=N] [clock=NAME] [clock_error=NS] [order=in|out]", "host_thread"
        )

    def do_queue(self, d: Declaration) -> None:
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
            device = self.device(d.spot, rest[0], process)
        elif kind == "host_thread":
            device = self.host_device(process)
            if device < 0:
                raise d.spot.error(
                    "a host thread without a host device", "a line `device NAME host` before it"
                )
        elif self.scene.devices.declared:
            raise d.spot.error(f"queue {shown(name)} without a device", form)
        else:
            device = self.device(d.spot, "device", process)
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
        if device is not None:
            ident = self.device(spot, device, 0)
        elif scene.devices.rows or not scene.devices.declared:
            ident = 0 if scene.devices.rows else self.host_device(0)
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
        ops = {k: v.pop(k) for k in ("alloc", "free") if k in v}
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
        form = "coverage QUEUE [accesses=W] [host_accesses=W] [waits=W] [times=W], W = full, partial or none"
        (name,) = self.args(d, 1, 1, form)
        for key, word in d.options.values.items():
            if key not in ("accesses", "host_accesses", "waits", "times"):
                raise d.spot.error(f"{key}=", form)
            choice(d.spot, word, COVERAGE, key)
        self._coverage_lines.append((d.spot, name, {k: str(w) for k, w in d.options.values.items()}))

    _coverage_lines: list[tuple[Spot, str, dict[str, str]]]

    def do_list(self, d: Declaration) -> None:
        number, _, units = d.rest.partition(" ")
        ident = integer(d.spot, number, "list id", bits=32, low=0)
        if ident in self._list_ids:
            raise d.spot.error(f"a second list {ident}", "each list once")
        self._list_ids.add(ident)
        cells = split(d.spot, units, ",") if units.strip() else []
        self.scene.lists.append((ident, tuple(integer(d.spot, c, "unit") for c in cells)))

    _list_ids: set[int]

    def do_set(self, d: Declaration) -> None:
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
        name, _, rest = d.rest.partition(" ")
        if name.startswith('"'):
            raise d.spot.error(f"profile {shown(name)}", "a plain name")
        value = json_value(d.spot, rest.strip(), "profile")
        if not name or not isinstance(value, dict) or name in self.profiles:
            raise d.spot.error(f"`profile {d.rest[:60]}`", 'profile NAME {"key": value, ...}, each name once')
        self.profiles[name] = value

    def do_meta(self, d: Declaration) -> None:
        kinds: dict[str, type] = {
            "engine": dict, "switches": dict, "notes": list, "complete": bool, "lost": int, "created_by": str,
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
                f"meta {key} {shown(rest)}", f"JSON: a {want.__name__}, with strings inside if any"
            )
        self.meta[key] = tuple(value) if isinstance(value, list) else value

    # --- what the rows imply ---

    def read(self) -> Scene:
        """Read the header, then imply what it leaves out."""
        self._names, self._generations, self._coverage_lines = {}, {}, []
        self._list_ids, self._set_ids = set(), set()
        for d in self.file.declarations:
            getattr(self, f"do_{d.word}")(d)
        self._imply_queues()
        self._imply_syncs()
        if not self.scene.buffers_declared:
            self._imply_buffers()
        queues = self.scene.queues
        self.coverage = [Coverage(queues.get(s, n), **words) for s, n, words in self._coverage_lines]
        self.scene.manifest = Manifest(
            profiles=self.profiles,
            processes=tuple(self.processes) or (Process(0),),
            coverage=tuple(self.coverage),
            **self.meta,
        )
        return self.scene

    def _imply_queues(self) -> None:
        queues = self.scene.queues
        devices = self.scene.devices
        if not devices.rows and not devices.declared:
            self.host_device(0)
        for row in self.file.rows:
            names = [row.queue]
            if row.thread not in (None, "?"):
                names.append(str(row.thread))
            elif row.thread is None and not row.queue.startswith(_HOST_LETTERS):
                names.append("H")
            if queues.declared:
                names = [n for n in (row.queue, row.thread) if n not in (None, "?")]  # type: ignore[misc]
            for name in names:
                if queues.declared or name.startswith("."):
                    queues.get(row.spot, name)
                elif queues.find(row.spot, name) is None:
                    host = name.startswith(_HOST_LETTERS)
                    if host:
                        device = self.host_device(0)
                        if device < 0:
                            raise row.spot.error(
                                "a host thread without a host device", "a line `device NAME host`"
                            )
                    elif devices.declared:
                        device = next((int(r["device"]) for r in devices.rows if r["kind"] != "host"), 0)
                    else:
                        device = self.device(row.spot, "device", 0)
                    queues.add(
                        name,
                        device=device,
                        kind="host_thread" if host else "queue",
                        in_order=True,
                        clock="host",
                        clock_error_ns=None,
                        process=0,
                    )
        if not queues.declared:
            self.scene.issuers.update(
                {
                    q: (q if r["kind"] == "host_thread" else queues.find(self._spot, "H"))
                    for q, r in enumerate(queues.rows)
                }
            )

    @property
    def _spot(self) -> Spot:
        return Spot(self.file.name, 0)

    def _imply_syncs(self) -> None:
        syncs = self.scene.syncs
        kinds = {"semsig": "semaphore", "semwait": "semaphore", "coll": "collective", "destroy": "event"}
        kinds |= {"record": "event", "wait": "event", "wait_any": "event"}
        for row in self.file.rows:
            if row.kind not in kinds or not row.target:
                continue
            for name in split(row.spot, row.target, ",") if row.kind == "wait_any" else [row.target]:
                if syncs.declared or name.startswith("."):
                    syncs.get(row.spot, name)
                elif syncs.find(row.spot, name) is None:
                    if not re.fullmatch(NAME, name):
                        raise row.spot.error(f"sync {shown(name)}", "a name")
                    syncs.add(name, kind=kinds[row.kind], device=None, process=0)
                elif (
                    syncs.rows[syncs.get(row.spot, name)]["kind"] != kinds[row.kind] and row.kind != "destroy"
                ):
                    raise row.spot.error(
                        f"`{row.kind}` of {shown(name)}, an {syncs.rows[syncs.get(row.spot, name)]['kind']} above",
                        "one name for one thing",
                    )

    def _imply_buffers(self) -> None:
        scene = self.scene
        made: set[str] = set()
        for row in self.file.rows:
            new, ref = target_of(row)
            if new is not None:
                made.add(new)
            elif ref is not None and ref.begin is not None and row.kind == "alloc":
                made.add(auto_name(ref))
        sizes: dict[str, int] = {}
        homes: dict[str, tuple[int, bool]] = {}
        order: dict[str, int] = {}
        for row in self.file.rows:
            arg = integer(row.spot, row.values["arg"], "arg") if row.values.get("arg") else 0
            refs = [a.ref for a in row.accesses or ()]
            alloc = target_of(row)[1]
            for ref in refs if alloc is None else [*refs, alloc]:
                if ref.name in made or ref.name == "?":
                    continue
                if ref.name.startswith("."):
                    raise row.spot.error(f"buffer {ref.name}", "a name, or a `buffer` line in the header")
                order.setdefault(ref.name, len(order))
                sizes[ref.name] = max(sizes.get(ref.name, 0), ref.end + ref.end_per_arg * arg)
                if ref is not alloc and ref.name not in homes:
                    queue = scene.queues.get(row.spot, row.queue)
                    homes[ref.name] = (int(scene.queues.rows[queue]["device"]), scene.is_host(queue))
        for name in order:
            device, host = homes.get(name, (0, True))
            size = sizes[name] or DEFAULT_BUFFER_BYTES
            if not size < 1 << 63:
                raise self._spot.error(f"buffer {name} of {size} bytes", "64 bits")
            scene.buffers.append(
                {
                    "buffer": len(scene.buffers), "device": device, "name": name, "bytes": size,
                    "kind": "host" if host else "device", "parent": None, "parent_offset": None, "generation": 0,
                    "shared_key": None,
                }
            )  # fmt: skip
            scene.buffer_spots.append((self._spot, {}))


def auto_name(ref: RefText) -> str:
    """Return the name of a sub-allocation that a row makes without naming it."""
    return f"{ref.name.lstrip('.')}.{ref.begin}-{ref.end}"


def make_scene(file: File) -> Scene:
    """Read the header of a file, or imply it."""
    return _Reader(file).read()
