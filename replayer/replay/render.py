"""Results of `replay` and `search` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...formats.delays import LineMatch
from ...formats.shown import plural
from ...formats.window import windows
from ..check.findings import NO_OPS, Finding, Report, joined
from ..check.hiding import hidden_text
from .results import Replay
from .search import Attempt, Search
from .timeline import Timeline
from .told import Told, chain_words, time_words

__all__ = ["render_replay", "render_search"]

_WORDS = {
    "confirmed": "CONFIRMED",
    "wrong": "WRONG",
    "deadlock": "DEADLOCK",
    "unknown": "cannot judge",
    "cannot judge": "cannot judge",
    "clean": "clean",
}
_MANY = 10
_OPS = 20


def render_replay(result: Replay) -> list[str]:
    """Return the result of a replay."""
    outcome = result.outcome
    ops = plural(len(result.op_ids), "op")
    what = _count(result) + ("" if outcome.stuck else f" in {ops}")
    word = _WORDS[result.verdict]
    if result.verdict == "clean" and result.window:
        word = f"clean within the {result.window}"
    lines = [f"{result.tape}: {word}: {what}, on {result.backend}"]
    if any(c.detail == NO_OPS for c in result.report.conditions):
        lines = [f"{result.tape}: cannot judge: {NO_OPS}"]
    lines += _delays(result.matched, pinned=result.pinned)
    if result.runs > 1 or result.interrupted:
        lines.append("  " + _runs(result))
    lines += _left_out(result)
    first = result.first
    if first is not None:
        lines += ["", *_told(first, "FIRST WRONG READ" + " (accepted by the baseline)" * first.accepted)]
        if outcome.chain and first.wrong is outcome.first:
            lines.append(f"  from there to the host: {chain_words(outcome.chain, result.names)}")
        lines += _shows(first, result)
    lines += _deadlock(result)
    lines += ["", *_time(result.time)]
    if outcome.notes:
        lines += ["", *(f"note: {n}" for n in outcome.notes)]
    return lines + _conditions(result.report) + _schedulers(result.schedulers)


def render_search(result: Search) -> list[str]:
    """Return the result of a search."""
    tried = [a for a in result.attempts if a.state != "accepted"]
    shown = result.of("confirmed") + result.of("unknown")
    word = _WORDS.get(result.verdict, "not shown")
    kinds = plural(len(tried), "finding")
    head = f"{len(shown)} of {kinds} shown" if tried else "nothing to search for"
    note = ", ".join(windows(result.source.manifest)) if word == "clean" else ""
    word += f" within the {note}" * bool(note)
    lines = [f"{result.tape}: {word}: {head}, {plural(result.runs, 'run')} on {result.backend}"]
    if result.interrupted:
        lines.append("  interrupted")
    for attempt in result.attempts:
        if attempt.state != "accepted":
            lines += ["", *_attempt(attempt)]
    accepted = result.of("accepted")
    if accepted:
        lines += ["", "accepted by the baseline, not searched:"]
        lines += [f"  {_head(a.finding, a.count)}: {a.finding.text}" for a in accepted]
    return lines + _conditions(result.report) + _schedulers(result.schedulers)


def _attempt(attempt: Attempt) -> Iterator[str]:
    finding = attempt.finding
    state = {
        "confirmed": "CONFIRMED",
        "unknown": "unknown, shown",
        "not shown": "not shown",
        "not tried": "not tried",
    }[attempt.state]
    if attempt.reason and attempt.state != "not shown":
        state += f" ({attempt.reason})"
    yield f"{_head(finding, attempt.count)}: {state}"
    yield f"  {finding.text}"
    if attempt.state == "not shown":
        yield f"  {attempt.reason} ({plural(attempt.tried, 'run')})"
    if attempt.replay is None:
        return
    if attempt.expression:
        yield f"  delay: {attempt.expression}" + "; a run without it shows it too" * attempt.as_recorded
    else:
        yield "  no delay is needed"
    told = attempt.told
    if told is not None:
        yield from (f"  {line}" for line in _told(told, "")[1:])
        outcome = attempt.replay.outcome
        if outcome.chain and outcome.first is told.wrong:
            yield f"    from there to the host: {chain_words(outcome.chain, attempt.replay.names)}"


def _head(finding: Finding, count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    if finding.kind == "deadlock":
        return f"DEADLOCK  {times}"
    word = {"lifetime": "LIFETIME FAULT"}.get(finding.verdict, finding.verdict.upper())
    return f"{word}  {finding.fault} on `{finding.buffer}`  {times}"


def _count(result: Replay) -> str:
    outcome = result.outcome
    if outcome.stuck:
        count = len(outcome.stuck)
        never = f"{count:,} of {len(result.op_ids):,} ops never start{'s' * (count == 1)}"
        return never + (f", {plural(outcome.wrong_count, 'wrong read')}" if outcome.wrong_count else "")
    if not outcome.judged:
        return "reads were not judged"
    accepted = result.facts.accepted
    more = f", {accepted:,} accepted" if accepted else ""
    wrong = plural(outcome.wrong_count, "wrong read")
    return f"{wrong} of {outcome.reads:,}{more}"


def _delays(matched: Sequence[LineMatch], *, pinned: bool) -> list[str]:
    how = "delay, pinned" if pinned else "delay"
    lines = [f"  {how}: {m.text}: {plural(m.count, 'op')}" for m in matched[:_MANY]]
    rest = matched[_MANY:]
    if rest:
        lines.append(f"  and {len(rest):,} more lines: {plural(sum(m.count for m in rest), 'op')}")
    missed = sum(not m.count for m in rest)
    if missed:
        lines.append(f"  {plural(missed, 'line')} of them matched nothing")
    if pinned and not matched:
        lines.append("  pinned to the order of a run without delays")
    return lines


def _runs(result: Replay) -> str:
    text = plural(result.runs, "run")
    if result.interrupted:
        text = f"interrupted after {result.runs:,} of {plural(result.repeat, 'run')}"
    text += ": "
    if result.first_found is None:
        return text + "none shows anything"
    text += f"{result.found:,} found something"
    return text + (f", run {result.first_found + 1:,} first" if result.runs > 1 else "")


def _left_out(result: Replay) -> Iterator[str]:
    left, other = result.outcome.unlisted, result.facts.other
    if left:
        yield (
            f"  {plural(left, 'more wrong read')} {'is' if left == 1 else 'are'} not listed, and compared"
            " with nothing (nothing is called clean)"
        )
    if other:
        yield (
            f"  check has nothing for {plural(other, 'wrong read')}: one of the two is at fault,"
            " please report it"
        )
    if result.verdict == "unknown" and not result.facts.unknown:
        yield "  nothing is wrong, but check has pairs that something unseen may order: see tapedelay check"


def _told(told: Told, head: str) -> list[str]:
    w = told.wrong
    kind = {
        "stale": "another version",
        "torn": "torn",
        "freed": "outside of its life",
        "destroyed": "destroyed",
    }
    lines = [f"{head}  {kind[w.kind]}, at {time_words(w.at_ns)}", f"  {told.text}"]
    for what, parts, all_parts in (("saw", told.saw, w.saw), ("expected", told.expected, w.expected)):
        lines += [f"    {what if i == 0 else '':9}{p}" for i, p in enumerate(parts)]
        if len(all_parts) > len(parts):
            lines.append(f"    {'':9}and {plural(len(all_parts) - len(parts), 'more part')}")
    return lines


def _shows(first: Told, result: Replay) -> list[str]:
    lines = []
    for f in first.findings[:2]:
        lines.append(f"  this shows: {f.fault} on `{f.buffer}`: {f.text}")
        if f.hidden_by:
            lines.append(f"  hidden by: {hidden_text(f.hidden_by)}")
    if not first.findings:
        lines.append("  check lists no pair like this")
    if first.unknown:
        lines.append("  unknown: a wait that was not seen may prevent it")
    elif any(f.verdict == "possible" for f in first.findings):
        lines.append("  if the ops touch what was inferred or may be written")
    others = [f for f in result.confirmed if f not in first.findings]
    if others:
        kinds = list(dict.fromkeys(f"{f.fault} on `{f.buffer}`" for f in others))
        shown = joined(kinds[:_MANY]) if len(kinds) <= _MANY else f"{plural(len(kinds), 'kind')}"
        lines.append(f"  the same run shows {plural(len(others), 'more finding')}: {shown}")
    return lines


def _deadlock(result: Replay) -> list[str]:
    outcome = result.outcome
    if not outcome.stuck:
        return []
    lines = ["", "NEVER ENDS"]
    known = [f for f in result.confirmed if f.kind == "deadlock"]
    lines += [f"  {f.text}" for f in known[:_MANY]]
    if not known:
        names = [result.names.phrase(r) for r in outcome.stuck[:_OPS]]
        lines += [f"  {n}" for n in names]
    return lines


def _time(time: Timeline) -> Iterator[str]:
    yield f"time: {time_words(time.total_ns)}"
    width = max([len(q.name) for q in time.queues] or [0])
    names = {q.queue: q.name for q in time.queues}
    for q in time.queues[:_OPS]:
        share = f"{100 * q.busy_ns / time.total_ns:.0f} %" if time.total_ns else "-"
        yield (
            f"  {q.name:{width}}  {q.ops:>7,} ops  busy {time_words(q.busy_ns):>8} ({share}),"
            f" idle {time_words(q.idle_ns)}"
        )
    if len(time.queues) > _OPS:
        yield f"  and {len(time.queues) - _OPS} more queues"
    path = time.path
    if not path.rows:
        return
    busy = sorted(path.busy_ns.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{names[q]} {time_words(ns)}" for q, ns in busy[:4] if ns]
    parts.append(f"host code and delays between them {time_words(path.gap_ns)}")
    yield f"  critical path: {plural(path.ops, 'op')}: {', '.join(parts)}"


def _conditions(report: Report) -> list[str]:
    conditions = [c for c in report.conditions if c.detail != NO_OPS]
    if not conditions:
        return []
    lines = ["", "not exact, because:"]
    return lines + [f"  {c.detail}" + (" (nothing is called clean)" * c.blocks) for c in conditions]


def _schedulers(counts: Mapping[str, int]) -> list[str]:
    """Return what is to be said of the request schedulers of the tape."""
    if not counts:
        return []
    many = plural(sum(counts.values()), "request scheduler")
    return ["", f"not replayed: {many} ({', '.join(counts)}): `tapedelay rerun` drives those"]
