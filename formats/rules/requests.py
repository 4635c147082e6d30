"""Request schedulers: what their tables say of each other."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ..columns import Bools, Columns, Ints
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables

__all__ = ["configs_are_private", "events_hang_on_inputs", "inputs_say_what_they_are", "units_fit"]

_WORD = re.compile(r"[A-Za-z0-9_.+,-]{0,120}")
_FLOAT_MAX = sys.float_info.max
_ON = {
    "request": ("submit", "abort", "set_schedulable", "next_chunk", "priority"),
    "requests": ("abort",),
    "step": ("step", "output"),
    "tokens": ("next_chunk",),
    "decode_only": ("step",),
    "value": ("next_chunk", "priority"),
    "word": ("abort", "next_chunk", "pause", "cache_reset"),
    "arrive_ns": ("next_chunk",),
    "op": ("step",),
}
"""Which kinds of inputs may have a column."""
_NEED = {
    "request": ("submit", "set_schedulable", "next_chunk", "priority"),
    "step": ("step",),
    "tokens": ("next_chunk",),
    "value": ("priority",),
}
"""Which kinds must have one."""


def inputs_say_what_they_are(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check which columns stand on which kinds of inputs, batches of requests, and the order of steps."""
    inputs, requests = tables["inputs"], tables["requests"]
    if not inputs.rows:
        return
    kind = inputs.word_of("kind")
    several = tape.table("inputs").column("requests").combine_chunks()
    listed = several.is_valid().to_numpy(zero_copy_only=False)
    for column, kinds in _ON.items():
        has = listed if column == "requests" else inputs.valid(column)
        wrong = has & ~inputs.isin("kind", *kinds)
        found.rows("input", "inputs", wrong, lambda r, c=column: f"{c} on an input of kind {kind(r)}")  # type: ignore[misc]
    for column, kinds in _NEED.items():
        wrong = ~inputs.valid(column) & inputs.isin("kind", *kinds)
        found.rows("input", "inputs", wrong, lambda r, c=column: f"{kind(r)} without {c}")  # type: ignore[misc]
    other = inputs.isin("kind", "next_chunk") & inputs.valid("word") & ~inputs.isin("word", "last")
    found.rows("input", "inputs", other, "next_chunk with another word than `last`")
    nobody = inputs.isin("kind", "abort") & ~inputs.valid("request") & ~listed
    found.rows("input", "inputs", nobody, "an abort of nobody")
    count = several.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    named = several.flatten()
    flat = named.fill_null(-1).to_numpy().astype(np.int64)
    owner = np.repeat(np.arange(inputs.rows), count)
    unknown = np.zeros(inputs.rows, np.bool_)
    unknown[owner[(flat < 0) | (flat >= requests.rows)]] = True
    found.rows("ref", "inputs", unknown, "requests names one that is not in requests")
    submits = np.flatnonzero(inputs.isin("kind", "submit") & inputs.valid("request"))
    _once(found, inputs.ints("request")[submits], submits, inputs.rows)
    _steps(found, inputs)
    mine = inputs.valid("request")
    _same_scheduler(found, tables, "inputs", mine, inputs.ints("request"), inputs.ints("scheduler"))


def _once(found: Findings, request: Ints, rows: Ints, count: int) -> None:
    _, first = np.unique(request, return_index=True)
    again = np.ones(len(rows), np.bool_)
    again[first] = False
    twice = np.zeros(count, np.bool_)
    twice[rows[again]] = True
    found.rows("input", "inputs", twice, "a request is submitted twice")


def _steps(found: Findings, inputs: Columns) -> None:
    """Check that steps of a scheduler count up, and that each is answered once, later."""
    step, scheduler = inputs.ints("step"), inputs.ints("scheduler")
    is_step = inputs.isin("kind", "step") & inputs.valid("step")
    bad = np.zeros(inputs.rows, np.bool_)
    for s in np.unique(scheduler[is_step]).tolist():
        rows = np.flatnonzero(is_step & (scheduler == s))
        bad[rows[1:]] |= step[rows[1:]] <= step[rows[:-1]]
    found.rows("step", "inputs", bad, lambda r: f"step {step[r]} does not follow the one before")
    if bad.any():
        return
    bad = np.zeros(inputs.rows, np.bool_)
    answers = inputs.isin("kind", "output") & inputs.valid("step")
    for s in np.unique(scheduler[answers]).tolist():
        made = np.flatnonzero(is_step & (scheduler == s))
        rows = np.flatnonzero(answers & (scheduler == s))
        at = np.searchsorted(step[made], step[rows])
        hit = np.minimum(at, max(0, len(made) - 1))
        there = (at < len(made)) & (step[made[hit]] == step[rows]) if len(made) else np.zeros(len(rows), bool)
        bad[rows[~there]] = True
        bad[rows[there]] |= made[hit[there]] > rows[there]
        _, first = np.unique(step[rows], return_index=True)
        again = np.ones(len(rows), np.bool_)
        again[first] = False
        bad[rows[again]] = True
    found.rows("step", "inputs", bad, lambda r: f"an output of step {step[r]}, which awaits none")


def _same_scheduler(
    found: Findings, tables: Tables, name: str, where: Bools, request: Ints, scheduler: Ints
) -> None:
    requests = tables["requests"]
    known = where & (request >= 0) & (request < requests.rows)
    if not known.any() or not requests.dense("request"):
        return
    owner = requests.ints("scheduler")[np.where(known, request, 0)]
    found.rows(
        "scheduler",
        name,
        known & (owner != scheduler),
        lambda r: f"request {request[r]} is of scheduler {owner[r]}, the input of {scheduler[r]}",
    )


def events_hang_on_inputs(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check order and place of decisions, answers and changes of units."""
    inputs, pools = tables["inputs"], tables["pools"]
    seen = []
    for name in ("answers", "decisions", "blocks"):
        t = tables[name]
        if not t.rows:
            continue
        at, seq = t.ints("input"), t.ints("seq")
        bad = np.zeros(t.rows, np.bool_)
        bad[1:] = (at[1:] < at[:-1]) | ((at[1:] == at[:-1]) & (seq[1:] <= seq[:-1]))
        found.rows("event-order", name, bad, lambda r, a=at, s=seq: f"input {a[r]} seq {s[r]} is too late")  # type: ignore[misc]
        seen.append((name, at, seq))
        known = (at >= 0) & (at < inputs.rows)
        if not known.any() or not inputs.dense("input"):
            continue
        on = np.where(known, at, 0)
        scheduler = inputs.ints("scheduler")[on]
        if name == "blocks":
            pool = t.ints("pool")
            there = known & (pool >= 0) & (pool < pools.rows)
            if there.any():
                of = pools.ints("scheduler")[np.where(there, pool, 0)]
                wrong = there & (of != scheduler)
                found.rows("scheduler", name, wrong, lambda r, p=pool: f"pool {p[r]} is of another scheduler")  # type: ignore[misc]
        _same_scheduler(found, tables, name, known & t.valid("request"), t.ints("request"), scheduler)
        if name == "answers":
            wrong = known & ~inputs.isin("kind", "output")[on]
            found.rows("event", name, wrong, "an answer to something else than an output")
        elif name == "decisions":
            scheduling = t.isin("kind", "prefill", "decode", "skip", "order")
            wrong = known & scheduling & ~inputs.isin("kind", "step")[on]
            found.rows("event", name, wrong, "scheduled outside of a step")
            bare = t.isin("kind", "prefill", "decode") & ~(t.valid("tokens") & t.valid("computed_tokens"))
            found.rows("event", name, bare, "scheduled without tokens or computed_tokens")
            mute = t.isin("kind", "emit") & ~t.valid("tokens")
            found.rows("event", name, mute, "emit without tokens")
            over = t.isin("kind", "skip", "order") & (t.valid("tokens") | t.valid("computed_tokens"))
            over |= t.isin("kind", "emit") & t.valid("computed_tokens")
            found.rows("event", name, over, "a count on a decision that has none")
    if len(seen) > 1:
        _no_place_twice(found, seen)
    _prefixes(found, tables)


def _no_place_twice(found: Findings, seen: list[tuple[str, Ints, Ints]]) -> None:
    at = np.concatenate([a for _, a, _ in seen])
    seq = np.concatenate([s for _, _, s in seen])
    order = np.lexsort((seq, at))
    same = (np.diff(at[order]) == 0) & (np.diff(seq[order]) == 0)
    late = order[1:][same]
    begin = 0
    for name, a, s in seen:
        mine = late[(late >= begin) & (late < begin + len(a))] - begin
        bad = np.zeros(len(a), np.bool_)
        bad[mine] = True
        found.rows("event-order", name, bad, lambda r, a=a, s=s: f"input {a[r]} seq {s[r]} is taken")  # type: ignore[misc]
        begin += len(a)


def _prefixes(found: Findings, tables: Tables) -> None:
    p, requests = tables["prefixes"], tables["requests"]
    if not p.rows:
        return
    request, of = p.ints("request"), p.ints("of")
    bad = (of == request) | (p.ints("from_tokens") >= p.ints("to_tokens"))
    known = (request >= 0) & (request < requests.rows) & (of >= 0) & (of < requests.rows)
    if known.any():
        owner = requests.ints("scheduler")
        bad |= known & (owner[np.where(known, request, 0)] != owner[np.where(known, of, 0)])
    found.rows("prefix", "prefixes", bad, "not a range of another request of the same scheduler")


def units_fit(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that units lie in their pools, and what the pools say of themselves."""
    pools, blocks, resources = tables["pools"], tables["blocks"], tables["resources"]
    if not pools.rows:
        return
    units, reserved = pools.ints("units"), pools.ints("reserved")
    found.rows("unit", "pools", reserved > units, "more units reserved than there are")
    if blocks.rows:
        pool = blocks.ints("pool")
        known = (pool >= 0) & (pool < pools.rows)
        size = units[np.where(known, pool, 0)]
        wrong = known & (blocks.ints("unit") >= size)
        found.rows("unit", "blocks", wrong, lambda r: f"beyond the {size[r]} units of pool {pool[r]}")
    if resources.rows:
        at = resources.ints("input")
        bad = np.zeros(resources.rows, np.bool_)
        bad[1:] = at[1:] < at[:-1]
        found.rows("event-order", "resources", bad, lambda r: f"input {at[r]} is too late")
        pool, inputs = resources.ints("pool"), tables["inputs"]
        known = (pool >= 0) & (pool < pools.rows) & (at >= 0) & (at < inputs.rows)
        if known.any() and inputs.dense("input"):
            owner = pools.ints("scheduler")[np.where(known, pool, 0)]
            wrong = known & (owner != inputs.ints("scheduler")[np.where(known, at, 0)])
            found.rows("scheduler", "resources", wrong, lambda r: f"pool {pool[r]} is of another scheduler")


def configs_are_private(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that nothing but numbers and known words stands where an engine's texts could."""
    for row, text in enumerate(tape.table("schedulers").column("config").to_pylist()):
        if not _plain(text):
            found.add("private", "schedulers", row, "config is not one JSON object of numbers and words")
    for table, column in (("inputs", "word"), ("pools", "name"), ("schedulers", "engine")):
        dictionary = tables[table].dictionary(column) if tables[table].rows else ()
        for word in dictionary:
            if not _WORD.fullmatch(word):
                found.add("private", table, None, f"{column} holds more than a word")
    flags = tape.table("requests").column("flags")
    texts = pc.unique(pc.list_flatten(flags)).to_pylist() if len(flags) else []
    if any(t is None or not _WORD.fullmatch(t) for t in texts):
        found.add("private", "requests", None, "flags hold more than words")


def _plain(text: str) -> bool:
    try:
        config: Any = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return False
    return isinstance(config, dict) and all(
        _WORD.fullmatch(k) and (v is None or _number(v) or (isinstance(v, str) and _WORD.fullmatch(v)))
        for k, v in config.items()
    )


def _number(value: object) -> bool:
    """Return whether it is a number that fits a float: 1e999 is none."""
    return isinstance(value, bool | int | float) and -_FLOAT_MAX <= value <= _FLOAT_MAX
