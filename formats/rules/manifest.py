"""The manifest beside the tables; edges, graphs and profiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import InvalidTape
from ..profiles import BUILTIN, Profile
from ..schema import COVERAGE, TABLES
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, groups

__all__ = ["delays_hold", "edges_join", "graphs_hold", "looks_like_path", "manifest_agrees", "profiles_known"]

_PATH = re.compile(r"(^|[\s\"'=:,(])(/[\w.-]+/|[A-Za-z]:\\|~/|\\\\)")


def edges_join(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that an edge joins two ops."""
    e = tables["edges"]
    if e.rows:
        found.rows("edge", "edges", e.ints("src") == e.ints("dst"), "src and dst are the same op")


def looks_like_path(text: str) -> bool:
    """Whether a text may hold a path, which no manifest does."""
    return _PATH.search(text) is not None


def manifest_agrees(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the manifest against the tables, and for paths."""
    m = tape.manifest
    seen: set[int] = set()
    for i, c in enumerate(m.coverage):
        if c.queue in seen or not 0 <= c.queue < tables["queues"].rows:
            found.add("coverage", "manifest", i, f"queue {c.queue} twice or not in queues")
        seen.add(c.queue)
        for word in (c.accesses, c.host_accesses, c.waits, c.times):
            if word not in COVERAGE:
                found.add("coverage", "manifest", i, f"{word!r} is none of {', '.join(COVERAGE)}")
    if [p.process for p in m.processes] != list(range(len(m.processes))):
        found.add("process", "manifest", None, "processes do not count from 0")
    for name, spec in TABLES.items():
        if any(c.name == "process" for c in spec.columns):
            t = tables[name]
            v = t.ints("process")
            bad = t.valid("process") & ((v < 0) | (v >= len(m.processes)))
            found.rows("process", name, bad, lambda r, v=v: f"process {v[r]} is not in the manifest")  # type: ignore[misc]
    if m.complete and not all(p.complete for p in m.processes):
        found.add("counts", "manifest", None, "complete, but a process is not")
    if m.lost < sum(p.lost for p in m.processes):
        found.add("counts", "manifest", None, "lost is less than the processes' together")
    if [d.line for d in m.delays] != sorted({d.line for d in m.delays if d.line > 0}):
        found.add("delay", "manifest", None, "lines of the plan do not count up from 1")
    said = {
        "engine": m.engine,
        "switches": m.switches,
        "notes": list(m.notes),
        "delays": [d.text for d in m.delays],
    }
    for key, text in _texts(said, "manifest"):
        if looks_like_path(text):
            found.add("private", "manifest", None, f"{key} looks like a path")


def delays_hold(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that applied delays stand in issue order and come from lines of a plan."""
    d = tables["delays"]
    if not d.rows:
        return
    op, line = d.ints("op"), d.ints("line")
    before = np.concatenate([op[:1], op[:-1]])
    found.rows("delay", "delays", op < before, lambda r: f"op {op[r]} behind a later one")
    found.rows("delay", "delays", line < 1, lambda r: f"line {line[r]} of a plan")
    if not tape.manifest.delays:
        found.add("delay", "delays", None, "delays without a plan in the manifest")


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from _texts(v, f"{key}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from _texts(v, f"{key}[{i}]")


def graphs_hold(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the nodes of graphs."""
    g, n = tables["graphs"], tables["nodes"]
    if not g.rows and not n.rows:
        return
    graph, node = n.ints("graph"), n.ints("node")
    starts, names = groups(graph)
    if n.rows:
        first = np.repeat(starts, np.diff(starts, append=n.rows))
        bad = node != np.arange(n.rows) - first
        _, again = np.unique(names, return_index=True)
        twice = np.setdiff1d(np.arange(len(names)), again)
        bad[starts[twice]] = True
        found.rows("node", "nodes", bad, lambda r: f"node {node[r]} of graph {graph[r]} out of order")
    length = dict(zip(names.tolist(), np.diff(starts, append=n.rows).tolist(), strict=True))
    wanted = g.ints("n_nodes") + g.ints("n_leafs")
    have = np.array([length.get(i, 0) for i in g.ints("graph").tolist()], np.int64)
    # a graph may be known by its counts only
    bad = (have != 0) & (have != wanted)
    found.rows("node", "graphs", bad, lambda r: f"{have[r]} nodes instead of {wanted[r]}")
    if not n.rows:
        return
    sources = tape.table("nodes").column("sources").combine_chunks()
    flat = sources.flatten().fill_null(-1).to_numpy()  # null: an empty place
    counts = sources.value_lengths().fill_null(0).to_numpy()
    owner = np.repeat(np.arange(n.rows), counts)
    total = np.array([length[i] for i in graph.tolist()], np.int64)
    wrong = np.zeros(n.rows, np.bool_)
    wrong[owner[(flat < -1) | (flat >= total[owner])]] = True
    view = n.ints("view_source")
    wrong |= n.valid("view_source") & ((view < -1) | (view >= total))
    found.rows("node", "nodes", wrong, "a source outside the graph")


def profiles_known(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that devices name known profiles that make sense."""
    for name, data in tape.manifest.profiles.items():
        try:
            Profile.from_dict(name, data)
        except InvalidTape as e:
            found.add("profile", "manifest", None, e.found)
    d = tables["devices"]
    if not d.rows:
        return
    w = d.words("profile")
    bad = ~w.isin({*BUILTIN, *tape.manifest.profiles})
    found.rows(
        "profile", "devices", bad, lambda r: f"profile {w[r]!r} is neither built in nor in the manifest"
    )
