"""Print a small tape as litmus text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..errors import InvalidTape, UsageError
from ..notation import LABEL, NAME, quote
from ..tape import Coverage, Manifest, Process, Tape
from .build import EXTRAS

__all__ = ["MAX_PRINTED_OPS", "print_litmus"]

MAX_PRINTED_OPS = 10_000
_PRINTED = ("devices", "queues", "syncs", "buffers", "accesses", "ops", "edges", "lists")
_SYNC_KINDS = ("record", "wait", "semsig", "semwait", "coll", "destroy")
_COLUMNS = {column: key for key, column in EXTRAS.items()}


def _rows(tape: Tape, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tape.table(table).to_pylist()
    return rows


def _word(text: str) -> str:
    """Return an option's value."""
    return quote(text)


def _names(rows: list[dict[str, Any]], key: str) -> list[str]:
    """Return how each row of a table is written: its name if that is plain and unique, else ``.id``."""
    out: list[str] = []
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row[key] != i:
            raise InvalidTape(
                f"{key} {row[key]} in row {i}",
                expected="ids that count up from 0",
                where=f"table {key}s",
                next_step="run `tapedelay info --validate` on the tape",
            )
        name = row["name"]
        plain = re.fullmatch(NAME, name) is not None and name not in seen
        seen.add(name)
        out.append(name if plain else f".{i}")
    return out


def _ref(names: list[str], ident: int | None) -> str:
    if ident is None:
        return "-"
    if not 0 <= ident < len(names):
        raise InvalidTape(
            f"id {ident} without a row",
            expected=f"an id below {len(names)}",
            next_step="run `tapedelay info --validate` on the tape",
        )
    return names[ident]


def _options(pairs: Iterable[tuple[str, Any, Any]]) -> str:
    """Return the options whose value differs from the default: (key, value, default)."""
    parts = [f"{k}={'-' if v is None else v}" for k, v, default in pairs if v != default]
    return "".join(" " + p for p in parts)


def _expression(base: int, per_arg: int) -> str:
    return f"{base}{per_arg:+d}*arg" if per_arg else str(base)


class _Printer:
    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.out: list[str] = []
        self.tables = {name: _rows(tape, name) for name in _PRINTED}
        self.devices = _names(self.tables["devices"], "device")
        self.queues = _names(self.tables["queues"], "queue")
        self.syncs = _names(self.tables["syncs"], "sync")
        self.buffers = self._buffer_names()

    def _buffer_names(self) -> list[str]:
        """Return how each buffer is written in an access."""
        rows = self.tables["buffers"]
        out = _names(rows, "buffer")
        count: dict[str, int] = {}
        for r in rows:
            count[r["name"]] = count.get(r["name"], 0) + 1
        seen: set[tuple[str, int]] = set()
        for i, r in enumerate(rows):
            key = (r["name"], r["generation"])
            if not re.fullmatch(NAME, r["name"]) or key in seen:
                out[i] = f".{i}"
            else:
                out[i] = r["name"] if count[r["name"]] == 1 else f"{r['name']}#{r['generation']}"
            seen.add(key)
        return out

    # --- header ---

    def header(self) -> None:
        m = self.tape.manifest
        implied = Manifest(
            complete=all(p.complete for p in m.processes), lost=sum(p.lost for p in m.processes)
        )
        for key in ("engine", "switches", "notes", "complete", "lost", "dropped", "created_by"):
            value, default = getattr(m, key), getattr(implied, key)
            if key == "switches":
                plain = {n: w for n, w in value.items() if re.fullmatch(NAME, n) and re.fullmatch(NAME, w)}
                self.out += [f"switch {name} {word}" for name, word in plain.items()]
                value = {n: w for n, w in value.items() if n not in plain}
            if value != default:
                self.out.append(f"meta {key} {json.dumps(value)}")
        for name, data in m.profiles.items():
            self.out.append(f"profile {name} {json.dumps(data)}")
        if m.processes != (Process(0),):
            for p in m.processes:
                opts = [
                    ("complete", "yes" if p.complete else "no", "yes"),
                    ("records", p.records, 0),
                    ("lost", p.lost, 0),
                    ("wall_offset", p.wall_offset_ns, None),
                ]
                self.out.append(f"process {p.process}{_options(opts)}")
        for word, d in zip(self.devices, self.tables["devices"], strict=True):
            opts = [
                *self._name(word, d),
                ("profile", _word(d["profile"]), "strict"),
                ("process", d["process"], 0),
            ]
            self.out.append(f"device {word} {d['kind']}{_options(opts)}")
        for word, q in zip(self.queues, self.tables["queues"], strict=True):
            kind = q["kind"]
            opts = [
                *self._name(word, q),
                ("kind", kind, "host_thread" if kind == "host_thread" else "queue"),
                ("order", "in" if q["in_order"] else "out", "in"),
                ("process", q["process"], 0),
                ("clock", _word(q["clock"]), "host"),
                ("clock_error", q["clock_error_ns"], None),
            ]
            head = "host" if kind == "host_thread" else "queue"
            self.out.append(f"{head} {word} {_ref(self.devices, q['device'])}{_options(opts)}")
        for c in m.coverage:
            parts = asdict(c)
            del parts["queue"]
            opts = [(k, v, getattr(Coverage(0), k)) for k, v in parts.items()]
            if said := _options(opts):  # a queue without an entry is seen in full
                self.out.append(f"coverage {_ref(self.queues, c.queue)}{said}")
        for word, s in zip(self.syncs, self.tables["syncs"], strict=True):
            device = None if s["device"] is None else _ref(self.devices, s["device"])
            opts = [*self._name(word, s), ("device", device, None), ("process", s["process"], 0)]
            self.out.append(f"sync {word} {s['kind']}{_options(opts)}")
        self._buffer_lines()

    @staticmethod
    def _name(word: str, row: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        return [("name", json.dumps(row["name"]), None)] if word.startswith(".") else []

    def _buffer_lines(self) -> None:
        hosts = [d["kind"] == "host" for d in self.tables["devices"]]
        first: dict[tuple[str, int], int] = {}
        for op in self.tables["ops"]:
            if op["kind"] in ("alloc", "free") and op["target"] is not None:
                first.setdefault((op["kind"], op["target"]), op["op"])
        for i, b in enumerate(self.tables["buffers"]):
            word = self.buffers[i]
            device = _ref(self.devices, b["device"])
            parent = None if b["parent"] is None else _ref(self.buffers[:i], b["parent"])
            opts = [
                *self._name(word, b),
                ("device", device, self.devices[0]),
                ("kind", b["kind"], "host" if hosts[b["device"]] else "device"),
                ("parent", parent, None),
                ("offset", b["parent_offset"], None),
                ("shared", b["shared_key"], None),
            ]
            for kind in ("alloc", "free"):
                op = b[f"{kind}_op"]
                opts.append((kind, None if op is None else f".{op}", self._dot(first.get((kind, i)))))
            if b["generation"] and "#" not in word:
                word = f"{word}#{b['generation']}"
            size = "" if b["bytes"] is None else f" {b['bytes']}"
            self.out.append(f"buffer {word}{size}{_options(opts)}")

    @staticmethod
    def _dot(op: int | None) -> str | None:
        return None if op is None else f".{op}"

    # --- sets and lists ---

    def sets(self) -> None:
        """Find out whether access sets and lists can be written inside the rows."""
        self.access_sets: dict[int, list[dict[str, Any]]] = {}
        for a in self.tables["accesses"]:
            rows = self.access_sets.setdefault(a["set"], [])
            if a["seq"] != len(rows) or next(reversed(self.access_sets)) != a["set"]:
                raise self._untidy(
                    "accesses", f"set {a['set']}, seq {a['seq']}", "sets in one piece, seq from 0"
                )
            rows.append(a)
        self.units: dict[int, list[int]] = {}
        for u in self.tables["lists"]:
            rows_ = self.units.setdefault(u["list"], [])
            if next(reversed(self.units)) != u["list"]:
                raise self._untidy("lists", f"list {u['list']}", "lists in one piece")
            rows_.append(u["unit"])
        used_sets = [o["access_set"] for o in self.tables["ops"] if o["access_set"]]
        used_lists = [o["list"] for o in self.tables["ops"] if o["list"] is not None]
        contents = {
            s: tuple(tuple(x for k, x in a.items() if k != "set") for a in rows)
            for s, rows in self.access_sets.items()
        }
        self.sets_inline = self._first_seen(used_sets, contents, 1)
        lists = {k: tuple(v) for k, v in self.units.items()}
        self.lists_inline = self._first_seen(used_lists, lists, 0)
        if not self.lists_inline:
            for ident in dict.fromkeys([*self.units, *used_lists]):
                units = ",".join(map(str, self.units.get(ident, [])))
                self.out.append(f"list {ident} {units}".rstrip())
        if not self.sets_inline:
            for ident, rows in self.access_sets.items():
                self.out.append(f"set {ident} | {' | '.join(self._cells(rows))}")
            for ident in dict.fromkeys(used_sets):
                if ident not in self.access_sets:
                    raise self._untidy(
                        "ops", f"access set {ident} without rows", "a set of the table accesses"
                    )

    @staticmethod
    def _untidy(table: str, found: str, expected: str) -> InvalidTape:
        return InvalidTape(
            found,
            expected=expected,
            where=f"table {table}",
            next_step="run `tapedelay info --validate` on the tape",
        )

    @staticmethod
    def _first_seen(used: list[int], contents: dict[int, Any], start: int) -> bool:
        """Return whether ids are those that reading the rows in order would give."""
        order = list(dict.fromkeys(used))
        ids = list(range(start, start + len(order)))
        return order == ids == list(contents) and len(set(contents.values())) == len(contents)

    def _cells(self, accesses: list[dict[str, Any]]) -> tuple[str, str]:
        """Return the two access cells; reads stand in the first only if all of them come first."""
        split = 0
        while split < len(accesses) and accesses[split]["mode"] == "read":
            split += 1
        reads = ", ".join(self._access(a, "read") for a in accesses[:split])
        return reads, ", ".join(self._access(a, "write") for a in accesses[split:])

    def _access(self, a: dict[str, Any], mode: str) -> str:
        offset, size, grow, more = a["offset"], a["bytes"], a["offset_per_arg"], a["bytes_per_arg"]
        whole = False
        name = "?"
        if a["buffer"] is not None:
            name = _ref(self.buffers, a["buffer"])
            whole = offset == 0 and size == self.tables["buffers"][a["buffer"]]["bytes"]
        if not whole or grow or more or a["unit_bytes"] is not None:
            unit = "" if a["unit_bytes"] is None else f"/{a['unit_bytes']}"
            name += f"[{_expression(offset, grow)}:{_expression(offset + size, grow + more)}{unit}]"
        if a["mode"] != mode:
            name += f":{a['mode']}"
        if a["origin"] != "observed":
            name += f":{a['origin']}"
        if a["name"] is not None:
            name += f":name={quote(a['name'])}"
        return name

    # --- rows ---

    def rows(self) -> None:
        hosts = [i for i, q in enumerate(self.tables["queues"]) if q["kind"] == "host_thread"]
        self.issuers: dict[int, int | None] = {}
        queues = self.tables["queues"]
        by_process: dict[int, int] = {}
        for h in hosts:
            by_process.setdefault(queues[h]["process"], h)
        for i, q in enumerate(queues):
            own = by_process.get(q["process"], hosts[0] if hosts else None)
            self.issuers[i] = i if q["kind"] == "host_thread" else own
        self.labels: dict[int, str] = {}
        taken: set[str] = set()
        for op in self.tables["ops"]:
            label = op["label"]
            if label is None or not re.fullmatch(LABEL, label) or label in taken:
                label = f".{op['op']}"
            taken.add(label)
            self.labels[op["op"]] = label
        last = -1
        table = []
        for op in self.tables["ops"]:
            table.append(self._row(op, last))
            last = op["op"]
        widths = [max((len(r[i]) for r in table), default=0) for i in range(6)]
        for r in table:
            cells = [c.ljust(min(w, 32)) for c, w in zip(r, widths, strict=False)]
            self.out.append(" | ".join([*cells[:6], *r[6:]]).rstrip())

    def _op(self, op: int) -> str:
        return self.labels.get(op, f".{op}")

    def _row(self, op: dict[str, Any], last: int) -> list[str]:
        label = self.labels[op["op"]]
        extras: list[str] = []
        if not label.startswith(".") and op["op"] != last + 1:
            extras.append(f"id={op['op']}")
        default: dict[str, Any] = dict.fromkeys(EXTRAS.values())
        default["label"] = None if label.startswith(".") else label
        default["origin"] = "observed"
        target = self._target(op, default)
        reads, writes = "", ""
        default["access_set"] = 0
        if op["access_set"] is None:
            reads, default["access_set"] = "?", None
        elif op["access_set"] and self.sets_inline:
            reads, writes = self._cells(self.access_sets[op["access_set"]])
            default["access_set"] = op["access_set"]
        if op["kind"] == "wait" and op["sync_of"] is None:
            default["wait_state"] = "contract"
        if self.lists_inline and op["list"] is not None and default["list"] is None:
            extras.append("units=" + ",".join(map(str, self.units[op["list"]])))
            default["list"] = op["list"]
        for column, key in _COLUMNS.items():
            if op[column] != default[column]:
                extras.append(f"{key}={self._extra(column, op[column])}")
        queue = _ref(self.queues, op["queue"])
        if op["issuer"] != self.issuers[op["queue"]]:
            queue += "@?" if op["issuer"] is None else "@" + _ref(self.queues, op["issuer"])
        cells = [label, op["kind"], queue, reads, writes, target]
        return [*cells, " ".join(extras)] if extras else cells

    def _extra(self, column: str, value: Any) -> str:
        if value is None:
            return "-"
        if column in ("parent", "sync_of"):
            return self._op(value)
        if column == "sync":
            return _ref(self.syncs, value)
        return quote(value) if isinstance(value, str) else str(value)

    def _target(self, op: dict[str, Any], default: dict[str, Any]) -> str:
        """Return the sixth field and note in `default` what it says."""
        kind, target = op["kind"], op["target"]
        if kind in _SYNC_KINDS and op["sync"] is not None:
            default["sync"] = op["sync"]
            return _ref(self.syncs, op["sync"])
        if kind in ("alloc", "free") and target is not None:
            default["target"] = target
            name = _ref(self.buffers, target)
            return (
                name
                if "#" in name or name.startswith(".")
                else f"{name}#{self.tables['buffers'][target]['generation']}"
            )
        if kind == "sync":
            if op["target_kind"] == "all" and target is None:
                default["target_kind"] = "all"
                return "*"
            if op["target_kind"] in ("queue", "device") and target is not None:
                default["target_kind"], default["target"] = op["target_kind"], target
                if op["target_kind"] == "queue":
                    return _ref(self.queues, target)
                return "device:" + _ref(self.devices, target)
        units = self.units.get(op["list"], []) if op["list"] is not None else []
        if (
            kind == "wait_any"
            and self.lists_inline
            and units
            and all(0 <= u < len(self.syncs) for u in units)
        ):
            default["list"] = op["list"]
            return ",".join(self.syncs[u] for u in units)
        return ""

    def edges(self) -> None:
        for e in self.tables["edges"]:
            kind = "" if e["kind"] == "order" else f" {e['kind']}"
            origin = "" if e["origin"] == "observed" else f" origin={e['origin']}"
            self.out.append(f"edge {self._op(e['src'])} -> {self._op(e['dst'])}{kind}{origin}")


def print_litmus(tape: Tape, *, max_ops: int = MAX_PRINTED_OPS) -> str:
    """Return a tape as litmus text.

    ``parse`` of the text gives equal tables, from ``devices`` to ``lists``, with the same ids. Tables that a
    litmus file does not hold (the engine's graphs, requests, telemetry) are named in a comment.

    Raises
    ------
    UsageError
        If the tape has more than `max_ops` ops.
    InvalidTape
        If ids do not count up or refer to rows that are not there.
    """
    n = tape.table("ops").num_rows
    if n > max_ops:
        raise UsageError(
            f"{n} ops",
            expected=f"at most {max_ops} for a litmus file",
            where=tape.where,
            next_step="pick a range of ops with --ops FIRST:LAST",
        )
    printer = _Printer(tape)
    left = [t for t in tape.present if t not in _PRINTED and tape.table(t).num_rows]
    if left:
        printer.out.append(f"# left out: {', '.join(left)}")
    printer.header()
    printer.sets()
    printer.rows()
    printer.edges()
    return "\n".join(printer.out) + "\n"
