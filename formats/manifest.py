"""``manifest.json``: the manifest and the list of tables, as canonical JSON with a checksum.

Canonical: keys sorted, one space of indentation per level, ASCII, one newline at the end. A reader compares
the bytes with the canonical form of what they say, so no byte can change unseen. ``crc32`` is the CRC-32 of
the canonical form without that key.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import CorruptTape, NotATape
from .schema import FORMAT_READ, FORMAT_WRITE
from .tape import Coverage, DelayLine, Manifest, Process
from .versions import check_read_version, is_newer_writer

__all__ = [
    "FORMAT_NAME",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_NAME",
    "TABLE_NAME",
    "TableEntry",
    "manifest_from_json",
    "manifest_to_json",
]

FORMAT_NAME = "tapedelay"
MANIFEST_NAME = "manifest.json"
MANIFEST_BYTES_MAX = 4 << 20
TABLES_MAX = 256
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_INT_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class TableEntry:
    """What the manifest says of one table.

    Attributes
    ----------
    name : str
        Table name; the file is ``NAME.arrow``.
    rows : int
        Rows.
    bytes : int
        Size of the file.
    decoded_bytes : int
        Size of all its buffers once decompressed.
    sha256 : str
        Hash of the file.
    """

    name: str
    rows: int
    bytes: int
    decoded_bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """Name of the table's file."""
        return f"{self.name}.arrow"


def _canonical(obj: dict[str, Any]) -> bytes:
    text = json.dumps(obj, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def manifest_to_json(manifest: Manifest, entries: Iterable[TableEntry]) -> bytes:
    """Return the bytes of ``manifest.json``; the versions are those of this writer."""
    obj: dict[str, Any] = {
        "format": FORMAT_NAME,
        "format_write": FORMAT_WRITE,
        "format_read": FORMAT_READ,
        "created_by": manifest.created_by,
        "engine": manifest.engine,
        "profiles": manifest.profiles,
        "processes": [dataclasses.asdict(p) for p in manifest.processes],
        "coverage": [dataclasses.asdict(c) for c in manifest.coverage],
        "switches": manifest.switches,
        "notes": list(manifest.notes),
        "complete": manifest.complete,
        "lost": manifest.lost,
        "tables": [dataclasses.asdict(e) for e in entries],
    }
    optional = {
        "dropped": manifest.dropped,
        "delays": [dataclasses.asdict(d) for d in manifest.delays],
    }
    obj |= {key: optional[key] for key in _OPTIONAL if optional[key]}
    obj["crc32"] = zlib.crc32(_canonical(obj))
    data = _canonical(obj)
    if len(data) > MANIFEST_BYTES_MAX:
        raise ValueError(f"manifest of {len(data)} bytes; a tape's may have {MANIFEST_BYTES_MAX}")
    return data


class _Reader:
    """Typed access to decoded JSON; every mismatch is a `CorruptTape` that names the key."""

    def __init__(self, where: str, newer: bool) -> None:
        self.where = where
        self.newer = newer

    def fail(self, key: str, found: Any, expected: str) -> CorruptTape:
        shown = repr(found)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return CorruptTape(
            f"{key} is {shown}",
            expected=expected,
            where=self.where,
            next_step="record again, or take the tape from where it came from",
        )

    def text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.fail(key, value, "text")
        return value

    def count(self, key: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= _INT_MAX:
            raise self.fail(key, value, "a number from 0 to 2^63-1")
        return value

    def flag(self, key: str, value: Any) -> bool:
        if type(value) is not bool:
            raise self.fail(key, value, "true or false")
        return value

    def items(self, key: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.fail(key, value, "a list")
        return value

    def mapping(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(key, value, "an object")
        return value

    def exactly(self, key: str, value: Any, names: Iterable[str]) -> dict[str, Any]:
        """Return an object that has these keys; others only from a newer writer."""
        got = self.mapping(key, value)
        wanted = list(names)
        for n in wanted:
            if n not in got:
                raise CorruptTape(f"{key} lacks {n!r}", expected=", ".join(wanted), where=self.where)
        extra = sorted(set(got) - set(wanted))
        if extra and not self.newer:
            raise CorruptTape(
                f"{key} has an unknown {extra[0]!r}", expected=", ".join(wanted), where=self.where
            )
        return {n: got[n] for n in wanted}


_KEYS = (
    "format", "format_write", "format_read", "created_by", "engine", "profiles", "processes", "coverage",
    "switches", "notes", "complete", "lost", "tables", "crc32",
)  # fmt: skip
_OPTIONAL = ("dropped", "delays")
"""Left out where they are 0 or empty."""


def manifest_from_json(data: bytes, where: str = MANIFEST_NAME) -> tuple[Manifest, tuple[TableEntry, ...]]:
    """Read ``manifest.json``.

    Parameters
    ----------
    data : bytes
        The whole file.
    where : str
        Name for messages.

    Returns
    -------
    tuple
        The manifest and one entry per table, in file order.

    Raises
    ------
    NotATape
        It is not JSON, or not ours.
    VersionError
        Its read version is not known here.
    CorruptTape
        It is ours, but its bytes changed or a key is missing or of the wrong type.
    """
    if len(data) > MANIFEST_BYTES_MAX:
        raise NotATape(
            f"a manifest of {len(data)} bytes", expected=f"at most {MANIFEST_BYTES_MAX} bytes", where=where
        )
    try:
        obj = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        raise NotATape(
            "an empty manifest" if not data else "a manifest that is not JSON",
            expected="the manifest.json of a tape",
            where=where,
            next_step="the tape may have been cut short: record again",
        ) from None
    if not isinstance(obj, dict) or obj.get("format") != FORMAT_NAME:
        raise NotATape("JSON of something else", expected=f'"format": "{FORMAT_NAME}"', where=where)
    versions = _Reader(where, newer=False)
    for key in ("format_read", "format_write"):
        if key not in obj:
            raise CorruptTape(f"no {key}", expected="a version number", where=where)
        versions.count(key, obj[key])
    # before anything else: a later format may do the rest differently
    check_read_version(obj["format_read"], where)

    r = _Reader(where, newer=is_newer_writer(obj["format_write"]))
    try:
        same = _canonical(obj) == data
        rest = _canonical({k: v for k, v in obj.items() if k != "crc32"})
        json.dumps(obj, ensure_ascii=False).encode("utf-8")  # no lone surrogates: they cannot be printed
    except (ValueError, RecursionError):
        same, rest = False, b""
    crc = zlib.crc32(rest)
    if not same or obj.get("crc32") != crc:
        raise CorruptTape(
            f"the manifest changed after it was written (checksum {obj.get('crc32')!s:.20}, counted {crc})",
            expected="the bytes that were written",
            where=where,
            next_step="record again, or take the tape from where it came from",
        )
    top = r.exactly("manifest", obj, (*_KEYS, *(k for k in _OPTIONAL if k in obj)))
    processes = []
    for i, p in enumerate(r.items("processes", top["processes"])):
        key = f"processes[{i}]"
        p = r.exactly(key, p, [f.name for f in dataclasses.fields(Process)])
        wall = p["wall_offset_ns"]
        if wall is not None and (type(wall) is not int or abs(wall) > _INT_MAX):
            raise r.fail(f"{key}.wall_offset_ns", wall, "a number or null")
        processes.append(
            Process(
                process=r.count(f"{key}.process", p["process"]),
                complete=r.flag(f"{key}.complete", p["complete"]),
                records=r.count(f"{key}.records", p["records"]),
                lost=r.count(f"{key}.lost", p["lost"]),
                wall_offset_ns=wall,
            )
        )
    coverage = []
    for i, c in enumerate(r.items("coverage", top["coverage"])):
        key = f"coverage[{i}]"
        c = r.exactly(key, c, [f.name for f in dataclasses.fields(Coverage)])
        queue = r.count(f"{key}.queue", c.pop("queue"))
        coverage.append(Coverage(queue, **{n: r.text(f"{key}.{n}", v) for n, v in c.items()}))
    delays = []
    for i, d in enumerate(r.items("delays", top.get("delays", []))):
        key = f"delays[{i}]"
        d = r.exactly(key, d, [f.name for f in dataclasses.fields(DelayLine)])
        delays.append(
            DelayLine(
                line=r.count(f"{key}.line", d["line"]),
                text=r.text(f"{key}.text", d["text"]),
                count=r.count(f"{key}.count", d["count"]),
            )
        )
    manifest = Manifest(
        engine=r.mapping("engine", top["engine"]),
        profiles={
            n: r.mapping(f"profiles.{n}", v) for n, v in r.mapping("profiles", top["profiles"]).items()
        },
        processes=tuple(processes),
        coverage=tuple(coverage),
        switches={n: r.text(f"switches.{n}", v) for n, v in r.mapping("switches", top["switches"]).items()},
        notes=tuple(r.text(f"notes[{i}]", v) for i, v in enumerate(r.items("notes", top["notes"]))),
        complete=r.flag("complete", top["complete"]),
        lost=r.count("lost", top["lost"]),
        dropped=r.count("dropped", top.get("dropped", 0)),
        delays=tuple(delays),
        format_write=top["format_write"],
        format_read=top["format_read"],
        created_by=r.text("created_by", top["created_by"]),
    )
    return manifest, _entries(r, top["tables"])


def _entries(r: _Reader, value: Any) -> tuple[TableEntry, ...]:
    items = r.items("tables", value)
    if len(items) > TABLES_MAX:
        raise r.fail("tables", f"{len(items)} tables", f"at most {TABLES_MAX}")
    entries: dict[str, TableEntry] = {}
    for i, t in enumerate(items):
        key = f"tables[{i}]"
        t = r.exactly(key, t, [f.name for f in dataclasses.fields(TableEntry)])
        name = r.text(f"{key}.name", t["name"])
        # the name becomes a file name: nothing but a plain word
        if not TABLE_NAME.fullmatch(name):
            raise r.fail(f"{key}.name", name, "a table name (a-z, 0-9, _)")
        if name in entries:
            raise r.fail(f"{key}.name", name, "each table once")
        if not _SHA256.fullmatch(r.text(f"{key}.sha256", t["sha256"])):
            raise r.fail(f"{key}.sha256", t["sha256"], "64 hex digits")
        entries[name] = TableEntry(
            name=name,
            rows=r.count(f"{key}.rows", t["rows"]),
            bytes=r.count(f"{key}.bytes", t["bytes"]),
            decoded_bytes=r.count(f"{key}.decoded_bytes", t["decoded_bytes"]),
            sha256=t["sha256"],
        )
    return tuple(entries.values())
