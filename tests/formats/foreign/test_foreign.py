"""The tables can hold what other profilers saw: a throw-away mapping of three real traces, without loss.

Not an importer: it knows just these files. What they do not say stays unsaid: ops touch UNKNOWN bytes, a wait
whose record was not seen is unresolved, an op whose stream was not seen lies on a queue that orders nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.read import open_tape
from tapedelay.formats.tape import Coverage, Manifest, Process, Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.write import write_tape

TRACES = Path(__file__).parents[3] / "traces"
THREE = "hta_event_sync_3stream.json.gz"
NCCL = "hta_nccl_ddp_2stream.json.gz"
NSYS = "nsysai_mfu_2gpu_after.sqlite.gz"
FILES = (THREE, NCCL, NSYS)


@dataclass
class Seen:
    """One op of a foreign trace, before ids are given out."""

    kind: str
    name: str
    process: int = 0
    device: int | None = None
    stream: int | None = None
    thread: int | None = None
    issue_ns: int | None = None
    start_ns: int | None = None
    duration_ns: int | None = None
    bytes: int | None = None
    link: Any = None
    """Key of the runtime call that issued it."""
    event: Any = None
    """What names the event, as far as anything does."""
    record_link: Any = None
    """Key of the runtime call of the record that a wait waits for."""
    weak: bool = False
    host_waits: bool = False
    target: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def build(seen: list[Seen], streams: Iterable[tuple[int, int, int]], engine: str) -> Tape:
    """Give out ids and write rows; `streams` are (process, device, stream) that only syncs may name."""
    b = TapeBuilder()
    processes = sorted({s.process for s in seen})
    hosts = {p: b.device(name=f"host {p}", kind="host", process=p) for p in processes}
    pairs = sorted({(s.process, s.device) for s in seen if s.device is not None})
    devices: dict[tuple[int, int | None], int] = {
        (p, d): b.device(name=f"GPU {d}", kind="gpu", process=p) for p, d in pairs
    }
    threads = {
        (p, t): b.queue(device=hosts[p], name=f"thread {t}", kind="host_thread", process=p)
        for p, t in sorted({(s.process, s.thread) for s in seen if s.thread is not None})
    }
    known = {(s.process, s.device, s.stream) for s in seen if s.device is not None and s.stream is not None}
    queues: dict[tuple[int, int | None, int | None], int] = {
        (p, d, n): b.queue(device=devices[p, d], name=f"stream {n}", clock="gpu", process=p)
        for p, d, n in sorted({*known, *streams})
    }
    # ops that ran on a stream which the trace does not name
    lost = {p: b.queue(device=devices[p, d], name="not seen", in_order=False, process=p) for p, d in pairs}
    syncs = {
        e: b.sync(name=str(e), kind="event", process=e[0])
        for e in dict.fromkeys(s.event for s in seen if s.event is not None)
    }
    origin_ns = min(t for s in seen for t in (s.issue_ns, s.start_ns) if t is not None)
    records: dict[Any, int] = {}
    for s in sorted(seen, key=lambda s: s.issue_ns if s.issue_ns is not None else s.start_ns or 0):
        issuer = threads.get((s.process, s.thread)) if s.thread is not None else None
        on_host = s.host_waits or s.kind in ("sync", "alloc")
        assert not on_host or issuer is not None
        row: dict[str, Any] = {"kind": s.kind, "name": s.name, "issuer": issuer, "bytes": s.bytes, **s.facts}
        row["queue"] = issuer if on_host else queues.get((s.process, s.device, s.stream), lost[s.process])
        if s.issue_ns is not None:
            row["issue_ns"] = s.issue_ns - origin_ns
            if s.start_ns is not None:
                row["start_after_issue_ns"] = s.start_ns - s.issue_ns
        row["duration_ns"] = s.duration_ns
        row["access_set"] = 0 if s.kind in ("record", "wait", "sync", "alloc") else None
        if s.event is not None:
            row["sync"] = syncs[s.event]
        if s.kind == "wait":
            row["sync_of"] = records.get(s.record_link)
            if row["sync_of"] is None:
                row["wait_state"] = "unresolved"
        if s.kind == "sync":
            row["target_kind"] = s.target
            row["target"] = (
                queues[s.process, s.device, s.stream] if s.target == "queue" else devices[s.process, s.device]
            )
        # a query does not say what it answered
        row["origin"] = "inferred" if s.weak else "observed"
        op = b.op(**row)
        if s.kind == "record":
            records[s.link] = op
    coverage = tuple(
        Coverage(q["queue"], "none", "none" if q["kind"] == "host_thread" else "full", "partial", "partial")
        for q in b.rows("queues")
    )
    return b.build(
        Manifest(
            engine={"name": engine},
            processes=tuple(Process(p, records=len(seen)) for p in processes),
            coverage=coverage,
            notes=("mapped from a foreign trace: no accesses",),
        )
    )


# --- Kineto ---


def kineto_events(file: str) -> list[dict[str, Any]]:
    with gzip.open(TRACES / "foreign" / file) as f:
        return list(json.load(f, parse_float=Decimal)["traceEvents"])


def ns(microseconds: int | Decimal) -> int:
    return int(microseconds * 1000)


GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}
LAUNCHES = {
    "cudaLaunchKernel": "kernel",
    "cudaLaunchKernelExC": "kernel",
    "cudaMemcpyAsync": "copy",
    "cudaMemsetAsync": "memset",
}
WAITS = ("cudaStreamWaitEvent", "cudaEventSynchronize", "cudaEventQuery")


def kineto(file: str) -> Tape:
    events = kineto_events(file)
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    syncs = {e["args"]["correlation"]: e["args"] for e in events if e.get("cat") == "cuda_sync"}
    threads = {t: i for i, t in enumerate(dict.fromkeys(e["tid"] for e in calls.values()))}
    known = {
        a["wait_on_cuda_event_record_corr_id"]: a for a in syncs.values() if a.get("wait_on_stream", -1) >= 0
    }
    seen = []
    launched = set()
    for e in events:
        kind = GPU.get(e.get("cat", ""))
        if kind:
            a = e["args"]
            call = calls.get(a["correlation"])
            launched.add(a["correlation"])
            seen.append(
                Seen(
                    kind,
                    e["name"],
                    device=a["device"],
                    stream=a["stream"],
                    thread=threads[call["tid"]] if call else None,
                    issue_ns=ns(call["ts"]) if call else None,
                    start_ns=ns(e["ts"]),
                    duration_ns=ns(e["dur"]),
                    bytes=a.get("bytes"),
                    link=a["correlation"],
                )
            )
    for c, e in calls.items():
        name = e["name"]
        at = {"thread": threads[e["tid"]], "issue_ns": ns(e["ts"]), "link": c}
        a = syncs.get(c, {})
        # the key is the record's call: event ids are used again
        record = a.get("wait_on_cuda_event_record_corr_id", -1)
        event = (
            (0, a["wait_on_cuda_event_id"]) if a.get("wait_on_cuda_event_id") is not None else (0, "not seen")
        )
        if name == "cudaEventRecord":
            a = known.get(c, {})
            event = (0, a["wait_on_cuda_event_id"]) if a else (0, "not seen")
            seen.append(
                Seen(
                    "record", name, device=a.get("device"), stream=a.get("wait_on_stream"), event=event, **at
                )
            )
        elif name in WAITS:
            device, stream = (a.get("device"), a.get("stream")) if name == WAITS[0] else (None, None)
            seen.append(
                Seen(
                    "wait",
                    name,
                    device=device,
                    stream=stream,
                    event=event,
                    record_link=record if record >= 0 else None,
                    host_waits=name != WAITS[0],
                    weak=name == "cudaEventQuery",
                    duration_ns=ns(e["dur"]) if name != WAITS[0] else None,
                    **at,
                )
            )
        elif name == "cudaDeviceSynchronize":
            seen.append(Seen("sync", name, device=0, target="device", duration_ns=ns(e["dur"]), **at))
        elif name == "cudaMalloc":
            seen.append(Seen("alloc", name, **at))
        elif name in LAUNCHES and c not in launched:
            seen.append(Seen(LAUNCHES[name], name, **at))  # what it launched ran outside the window
    return build(seen, (), "PyTorch")


# --- Nsight Systems ---


@pytest.fixture(scope="module")
def nsys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("nsys") / "trace.sqlite"
    path.write_bytes(gzip.decompress((TRACES / "foreign" / NSYS).read_bytes()))
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    yield db
    db.close()


def nsight(db: sqlite3.Connection) -> Tape:
    def rows(table: str) -> list[sqlite3.Row]:
        return db.execute(f"SELECT * FROM CUPTI_ACTIVITY_KIND_{table} ORDER BY start").fetchall()

    words = dict(db.execute("SELECT id, value FROM StringIds").fetchall())
    runtime = rows("RUNTIME")
    pids = {p: i for i, p in enumerate(sorted({r["globalTid"] >> 24 for r in runtime}))}
    tids = {t: i for i, t in enumerate(dict.fromkeys(r["globalTid"] for r in runtime))}
    calls = {(r["globalTid"] >> 24, r["correlationId"]): r for r in runtime}
    seen = []
    context: dict[tuple[int, int], int] = {}
    for table, kind in (("KERNEL", "kernel"), ("MEMCPY", "copy"), ("MEMSET", "memset")):
        for r in rows(table):
            key = (r["globalPid"] >> 24, r["correlationId"])
            call = calls.get(key)  # the call may lie before the window
            context[key[0], r["contextId"]] = r["deviceId"]
            seen.append(
                Seen(
                    kind,
                    words.get(r["shortName"], "?") if table == "KERNEL" else table.lower(),
                    process=pids[key[0]],
                    device=r["deviceId"],
                    stream=r["streamId"],
                    thread=tids[call["globalTid"]] if call else None,
                    issue_ns=call["start"] if call else None,
                    start_ns=r["start"],
                    duration_ns=r["end"] - r["start"],
                    bytes=None if table == "KERNEL" else r["bytes"],
                    link=key,
                )
            )
    streams = set()
    # the type's number means different things in different versions: the name of the call decides
    for r in rows("SYNCHRONIZATION"):
        key = (r["globalPid"] >> 24, r["correlationId"])
        call, p = calls[key], pids[key[0]]
        name = words[call["nameId"]].split("_")[0]
        device = context[key[0], r["contextId"]]  # deviceId says 0 for every GPU
        at = {"thread": tids[call["globalTid"]], "issue_ns": call["start"], "link": key, "process": p}
        if name == "cudaStreamSynchronize":
            streams.add((p, device, r["streamId"]))
            length = r["end"] - r["start"]
            seen.append(
                Seen(
                    "sync",
                    name,
                    device=device,
                    stream=r["streamId"],
                    target="queue",
                    duration_ns=length,
                    **at,
                )
            )
            continue
        query = name == "cudaEventQuery"
        # one sync per event and record, so that the link to the record stays even though no record is named
        event = (p, r["eventId"], r["eventSyncId"])
        stream = None if query else r["streamId"]
        on = {"device": device, "stream": stream} if stream is not None else {}
        seen.append(Seen("wait", name, event=event, host_waits=query, weak=query, **on, **at))
    for (pid, c), r in calls.items():
        if words[r["nameId"]].startswith("cudaEventRecord"):
            p = pids[pid]
            at = {"thread": tids[r["globalTid"]], "issue_ns": r["start"], "link": (pid, c), "process": p}
            seen.append(Seen("record", "cudaEventRecord", event=(p, "not seen"), **at))
    return build(seen, streams, "Nsight Systems")


# --- tests ---


@pytest.fixture(scope="module")
def tapes(nsys: sqlite3.Connection) -> dict[str, Tape]:
    return {THREE: kineto(THREE), NCCL: kineto(NCCL), NSYS: nsight(nsys)}


def test_manifest_names_the_files() -> None:
    manifest = tomllib.loads((TRACES / "MANIFEST.toml").read_text())
    entries = {t["path"]: t for t in manifest["trace"] if t["path"].startswith("foreign/")}
    assert (
        set(entries)
        == {f"foreign/{f}" for f in FILES}
        == {f"foreign/{p.name}" for p in (TRACES / "foreign").iterdir()}
    )
    for path, t in entries.items():
        assert hashlib.sha256((TRACES / path).read_bytes()).hexdigest() == t["sha256"]
        assert t["origin"]
        assert t["licence"] == "MIT"
        assert t["shows"]


def kinds(tape: Tape) -> Counter[str]:
    return Counter(tape.table("ops").column("kind").to_pylist())


def linked(tape: Tape) -> int:
    """Return how many device ops know the call that issued them."""
    ops = tape.table("ops").to_pylist()
    return sum(o["kind"] in GPU.values() and o["start_after_issue_ns"] is not None for o in ops)


@pytest.mark.parametrize(
    ("file", "counts", "streams"),
    [(THREE, (3, 0, 3, 4, 1, 3, 0, 1), {20, 24, 28}), (NCCL, (2700, 960, 114, 1077, 84, 48, 24, 1), {7, 40})],
)
def test_kineto(tapes: dict[str, Tape], file: str, counts: tuple[int, ...], streams: set[int]) -> None:
    events = kineto_events(file)
    raw = Counter(e.get("cat") for e in events)
    calls = Counter(e["name"] for e in events if e.get("cat") == "cuda_runtime")
    launched = {e["args"]["correlation"] for e in events if e.get("cat") in GPU}
    called = {
        e["args"]["correlation"] for e in events if e.get("cat") == "cuda_runtime" and e["name"] in LAUNCHES
    }
    assert counts == (
        raw["kernel"],
        raw["gpu_memcpy"],
        raw["gpu_memset"],
        calls["cudaEventRecord"],
        calls["cudaStreamWaitEvent"],
        calls["cudaEventQuery"],
        calls["cudaEventSynchronize"],
        calls["cudaDeviceSynchronize"],
    ), "the file is the one the index describes"
    got = kinds(tapes[file])
    outside = len(called - launched)
    assert got["kernel"] + got["copy"] + got["memset"] == sum(counts[:3]) + outside
    assert got["record"] == counts[3]
    assert got["wait"] == sum(counts[4:7])
    assert got["sync"] == counts[7]
    assert linked(tapes[file]) == sum(
        e["args"]["correlation"] in called for e in events if e.get("cat") in GPU
    ), "every correlation between a device row and its call is kept"
    names = {q["name"] for q in tapes[file].table("queues").to_pylist() if q["kind"] == "queue"}
    assert names == {f"stream {n}" for n in streams} | {"not seen"}


def test_kineto_links_of_events(tapes: dict[str, Tape]) -> None:
    ops = tapes[THREE].table("ops").to_pylist()
    queues = {q["queue"]: q["name"] for q in tapes[THREE].table("queues").to_pylist()}
    at = {o["op"]: o for o in ops}
    waits = [o for o in ops if o["kind"] == "wait"]
    (strong,) = [o for o in waits if o["name"] == "cudaStreamWaitEvent"]
    assert queues[strong["queue"]] == "stream 24"
    assert queues[at[strong["sync_of"]]["queue"]] == "stream 20"
    assert strong["origin"] == "observed"
    queries = [o for o in waits if o["name"] == "cudaEventQuery"]
    assert [o["wait_state"] for o in queries] == ["unresolved", None, None]
    assert {o["origin"] for o in queries} == {"inferred"}
    assert all(at[o["sync_of"]]["kind"] == "record" for o in queries if o["sync_of"] is not None)
    # the other file has no event ids at all: nothing is invented
    states = Counter(o["wait_state"] for o in tapes[NCCL].table("ops").to_pylist() if o["kind"] == "wait")
    assert states == {"unresolved": 156}


def test_nsight(tapes: dict[str, Tape], nsys: sqlite3.Connection) -> None:
    tape = tapes[NSYS]

    def count(sql: str) -> int:
        return int(nsys.execute(f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{sql}").fetchone()[0])

    raw = tuple(count(t) for t in ("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION"))
    assert raw == (3587, 904, 242, 334)
    records = count("RUNTIME r JOIN StringIds s ON s.id = r.nameId WHERE s.value LIKE 'cudaEventRecord%'")
    got = kinds(tape)
    assert got == {"kernel": 3587, "copy": 904, "memset": 242, "record": records, "wait": 304, "sync": 30}
    assert records == 300
    without_call = sum(
        count(
            f"{t} g WHERE NOT EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE "
            "r.correlationId = g.correlationId AND r.globalTid >> 24 = g.globalPid >> 24)"
        )
        for t in ("KERNEL", "MEMCPY", "MEMSET")
    )
    assert linked(tape) == 3587 + 904 + 242 - without_call
    assert without_call < 20
    ops = tape.table("ops").to_pylist()
    assert sum(o["issuer"] is None for o in ops) == without_call
    assert Counter(o["wait_state"] for o in ops if o["kind"] == "wait") == {"unresolved": 304}
    named = {o["sync"] for o in ops if o["kind"] == "wait"}
    rows = nsys.execute(
        "SELECT DISTINCT globalPid, eventId, eventSyncId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION "
        "WHERE syncType != 3"
    ).fetchall()
    assert len(named) == len(rows), "every link from a wait to its record is kept"
    queues = tape.table("queues").to_pylist()
    device = {d["device"]: (d["process"], d["name"]) for d in tape.table("devices").to_pylist()}
    work = Counter(device[queues[o["queue"]]["device"]] for o in ops if o["kind"] == "kernel")
    assert work == {(0, "GPU 0"): 1793, (1, "GPU 1"): 1794}
    held = {device[queues[o["target"]]["device"]] for o in ops if o["kind"] == "sync"}
    assert held == {(0, "GPU 0"), (1, "GPU 1")}, "synchronisation of GPU 1 is not booked on GPU 0"


@pytest.mark.parametrize("file", FILES)
def test_valid_and_not_judged(tapes: dict[str, Tape], tmp_path: Path, file: str) -> None:
    assert validate(tapes[file]) == []
    path = write_tape(tapes[file], tmp_path / "foreign.tape.zip")
    got = open_tape(path)
    assert got.table("ops").to_pylist() == tapes[file].table("ops").to_pylist()
    assert {c.accesses for c in got.manifest.coverage} == {"none"}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tapedelay.formats.cli import main; main()",
            "check",
            "--json",
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    json.loads(done.stdout)
