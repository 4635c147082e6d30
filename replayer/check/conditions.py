"""What limits the verdict on a tape: the conditions of exactness that do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...formats.edges import weakened_by_switches
from ...formats.shown import plural
from ...formats.tape import Coverage, Tape
from ...formats.window import windows
from .. import _core
from .findings import NO_OPS, Condition

__all__ = ["conditions"]


def conditions(tape: Tape, core: _core.Tape, cut_short: Iterable[Condition] = ()) -> list[Condition]:
    """Return the conditions that fail; `cut_short` are those that the pass over the tape has brought."""
    facts = _core.check_facts(core)
    coverage = {c.queue: c for c in tape.manifest.coverage}
    found = [
        *_accesses(tape, facts["unknown"], facts["busy"], coverage),
        *_waits(tape, len(core.unresolved()), coverage),
        *_recording(tape),
    ]
    stuck = len(core.stuck()[0])
    if stuck:
        never = f"{plural(stuck, 'op')} never start: what they touch is not judged"
        found.append(Condition("complete", never, True))
    found += cut_short
    if not core.rows and tape.rows("schedulers"):
        return found
    if not core.rows:
        found.append(Condition("accesses", NO_OPS, True))
    elif not (facts["touching"] or facts["waits"] or facts["sets"]):
        found.append(Condition("accesses", "no op that touches memory or waits for a signal", True))
    return found


def _host(tape: Tape) -> list[bool]:
    return [k == "host_thread" for k in tape.columns("queues", ["kind"]).column(0).to_pylist()]


def _accesses(
    tape: Tape, unknown: int, busy: Sequence[int], coverage: dict[int, Coverage]
) -> Iterable[Condition]:
    if unknown:
        detail = f"what {plural(unknown, 'op')} touch{'es' * (unknown == 1)} is unknown"
        yield Condition("accesses", detail, True)
    host = _host(tape)
    for level in ("none", "partial"):
        blind = [q for q in busy if q in coverage and coverage[q].accesses == level]
        if blind:
            seen = "no accesses were" if level == "none" else "not all accesses were"
            yield Condition("accesses", f"{seen} seen on {_names(tape, blind)}", True)
        threads = [
            q for q, h in enumerate(host) if h and q in coverage and coverage[q].host_accesses == level
        ]
        if threads:
            yield Condition(
                "host_accesses",
                f"host code between ops was {'not' if level == 'none' else 'only partly'} seen on "
                f"{_names(tape, threads)}",
            )


def _waits(tape: Tape, unresolved: int, coverage: dict[int, Coverage]) -> Iterable[Condition]:
    if unresolved:
        yield Condition(
            "waits",
            f"{plural(unresolved, 'wait')} without a known record: pairs that depend on them are unknown",
        )
    host = _host(tape)
    unseen = [q for q in range(len(host)) if q in coverage and coverage[q].waits != "full"]
    hosts = [q for q in unseen if host[q]]
    if hosts and sum(host) > 1:
        yield Condition(
            "host_waits",
            f"synchronisation between host threads was not all seen ({_names(tape, hosts)}): pairs that "
            "depend on it are unknown",
        )
    others = [q for q in unseen if not host[q]]
    if others:
        yield Condition(
            "waits",
            f"waits were not all seen on {_names(tape, others)}: pairs that depend on them are unknown",
        )


def _recording(tape: Tape) -> Iterable[Condition]:
    manifest = tape.manifest
    if manifest.engine.get("device_compute") is False:
        yield Condition("device_compute", "no device but the host computed anything", True)
    for note in windows(manifest):
        yield Condition("window", f"a {note}: pairs with ops outside are not judged")
    for name, weakens in weakened_by_switches(tape):
        yield Condition("waits", f"{name} was on: {weakens}", True)
    if not manifest.complete:
        yield Condition("complete", "the recording did not end cleanly: what followed is not judged")
    if manifest.lost:
        yield Condition("complete", f"{plural(manifest.lost, 'record')} lost", True)


def _names(tape: Tape, queues: Sequence[int]) -> str:
    column = tape.columns("queues", ["name"]).column(0)
    names = [column[q].as_py() or f"queue {q}" for q in queues[:4]]
    more = len(queues) - 4
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
