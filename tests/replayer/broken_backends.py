"""Backends that break one promise each, made of the virtual one: what the conformance kit has to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from tapedelay.formats.delays.resolved import Delays
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Capabilities, Loaded, Options, Pin
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

__all__ = ["BROKEN", "Altered", "jitter", "without"]


@dataclass
class Altered:
    """The virtual backend with something changed.

    Attributes
    ----------
    tape : callable
        Changes what is loaded.
    delays : callable
        Changes the delays of a run.
    outcome : callable
        Changes what a run gives.
    says : dict
        Capabilities that it claims in place of those of the virtual backend.
    takes_pins : bool
        It runs pinned runs as if there were no pin.
    closes_once : bool
        A second close fails.
    """

    tape: Callable[[Tape], Tape] = lambda tape: tape
    delays: Callable[[Delays], Delays] = lambda delays: delays
    outcome: Callable[[Outcome], Outcome] = lambda outcome: outcome
    says: dict[str, Any] = field(default_factory=dict)
    takes_pins: bool = False
    closes_once: bool = False

    def capabilities(self) -> Capabilities:
        return replace(VirtualBackend().capabilities(), **self.says)

    def available(self) -> str:
        return ""

    def load(self, program: Program, options: Options) -> AlteredLoaded:
        altered = self.tape(program.tape)
        inner = program if altered is program.tape else Program.from_tape(altered)
        return AlteredLoaded(VirtualBackend().load(inner, options), self)


@dataclass
class AlteredLoaded:
    inner: Loaded
    how: Altered
    closed: bool = False

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        kept = None if self.how.takes_pins else pin
        return self.how.outcome(self.inner.run(self.how.delays(delays), pin=kept))

    def close(self) -> None:
        if self.closed and self.how.closes_once:
            raise RuntimeError("closed already")
        self.closed = True
        self.inner.close()


def without(*kinds: str) -> Callable[[Tape], Tape]:
    """Return a change of a tape: ops of these kinds order nothing any more."""

    def change(tape: Tape) -> Tape:
        ops = tape.table("ops")
        words = ["mark" if k in kinds else k for k in ops.column("kind").to_pylist()]
        rows = [w == "mark" for w in words]
        for name, values in (
            ("kind", words),
            *((n, None) for n in ("sync", "sync_of", "wait_state", "value")),
        ):
            column = ops.column(name)
            new = values or [None if r else v for r, v in zip(rows, column.to_pylist(), strict=True)]
            index = ops.column_names.index(name)
            array = pa.array(new, ops.schema.field(name).type) if name != "kind" else _words(new, ops, name)
            ops = ops.set_column(index, ops.schema.field(name), array)
        tables = {n: tape.table(n) for n in tape.present} | {"ops": ops}
        return Tape(tape.manifest, tables, name=tape.name)

    return change


def _words(values: list[Any], ops: pa.Table, name: str) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode().cast(ops.schema.field(name).type)


def _places(*kept: int) -> Callable[[Delays], Delays]:
    def change(delays: Delays) -> Delays:
        some = np.isin(delays.place, kept)
        return Delays(delays.row[some], delays.place[some], delays.ns[some])

    return change


def jitter() -> Callable[[Outcome], Outcome]:
    """Return a change of outcomes: each run ends later than the one before."""
    runs = count()

    def change(outcome: Outcome) -> Outcome:
        return replace(outcome, end_ns=outcome.end_ns + (outcome.end_ns >= 0) * next(runs))

    return change


def _quiet(outcome: Outcome) -> Outcome:
    return replace(outcome, wrong=[], wrong_count=0, chain=())


def _never_stuck(outcome: Outcome) -> Outcome:
    return replace(outcome, stuck=(), never=(), cycles=())


def _stale_only(outcome: Outcome) -> Outcome:
    return replace(outcome, wrong=[replace(w, kind="stale") for w in outcome.wrong])


def _nobody(outcome: Outcome) -> Outcome:
    wrong = [replace(w, saw=tuple(replace(s, writer=-1) for s in w.saw)) for w in outcome.wrong]
    return replace(outcome, wrong=wrong)


def _early(outcome: Outcome) -> Outcome:
    start = np.maximum(outcome.start_ns - 200_000, np.minimum(outcome.start_ns, 0))
    return replace(outcome, start_ns=np.maximum(start, outcome.issue_ns))


def _instant(outcome: Outcome) -> Outcome:
    return replace(outcome, end_ns=outcome.start_ns.copy())


def _none(delays: Delays) -> Delays:
    return Delays.of()


BROKEN: dict[str, tuple[Altered, str, str]] = {
    "ignores waits for events": (Altered(tape=without("wait")), "edges/event*", "edges/event"),
    "ignores syncs": (Altered(tape=without("sync")), "edges/sync*", "edges/sync-queue"),
    "ignores semaphores": (Altered(tape=without("semwait")), "edges/sem*", "edges/semaphore"),
    "ignores collectives": (Altered(tape=without("coll")), "edges/coll*", "edges/collective"),
    "ignores delays": (Altered(delays=_none), "delays/*", "delays/before-start"),
    "ignores before_issue": (Altered(delays=_places(1, 2)), "delays/*", "delays/before-issue"),
    "ignores after_end": (Altered(delays=_places(0, 1)), "delays/*", "delays/after-end"),
    "takes places that it has not": (
        Altered(delays=_places(0, 1), says={"after_end": False}),
        "manners/*",
        "manners/places-refused",
    ),
    "never reports": (Altered(outcome=_quiet), "values/*", "values/stale"),
    "never tears": (Altered(outcome=_stale_only), "values/*", "values/torn-read"),
    "names no writer": (Altered(outcome=_nobody), "values/*", "values/too-new"),
    "hides deadlocks": (Altered(outcome=_never_stuck), "deadlocks/*", "deadlocks/cycle"),
    "starts before its edges": (Altered(outcome=_early), "edges/*", "edges/event"),
    "takes no time": (Altered(outcome=_instant), "edges/*", "edges/queue-order"),
    "lies about determinism": (Altered(outcome=jitter()), "delays/none", "delays/none"),
    "claims to pin": (Altered(says={"pin": True}, takes_pins=True), "pins/*", "pins/wrong-order"),
    "takes a pin that it has not": (Altered(takes_pins=True), "manners/*", "manners/pin-refused"),
    "claims real time and determinism": (
        Altered(says={"real_time": True}),
        "manners/*",
        "manners/capabilities",
    ),
    "goes by another name": (Altered(says={"name": "other"}), "delays/none", "delays/none"),
    "closes once": (Altered(closes_once=True), "manners/*", "manners/close-twice"),
}
"""By what is wrong: the backend, names of cases to run, and one of them that has to fail."""
