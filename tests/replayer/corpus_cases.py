"""The racy models of the corpus, and what search makes of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tapedelay.formats.delays.resolved import Delays
from tapedelay.formats.litmus import Litmus, read
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import Attempt, Search, search

from .aiming import NONE

__all__ = ["FILES", "FIXED", "NOT_SHOWN", "RACY", "SURE", "claims", "moved", "not_shown", "searched"]

CORPUS = Path(__file__).parent.parent / "corpus"
FILES = sorted(f for d in ("ops", "own") for f in (CORPUS / d).glob("*.litmus"))
SURE = ("race", "possible", "lifetime", "deadlock")

NOT_SHOWN = {
    "double-free": "a second free touches no memory that anything reads",
    "graph-siblings": "the launch that both kernels are part of writes the bytes itself when it ends",
}
"""Models that no value can show, and why."""


def claims(litmus: Litmus, variant: str) -> int:
    """Return how many findings a file states that are more than unknown."""
    return sum(v.kind in SURE for v in litmus.verdicts(variant))


RACY = [f for f in FILES if claims(read(f), "buggy")]
FIXED = [f for f in RACY if all(v.kind == "clean" for v in read(f).verdicts("fixed"))]


@cache
def searched(file: Path, backend: str = "virtual") -> Search:
    """Return what search finds for every pair of a model; in real time, an op takes 5 ms in place of 1 us."""
    options = Options(time_scale=1 if backend == "virtual" else 5_000)
    return search(read(file).tape("buggy"), backend=backend, every=True, options=options)


def not_shown(file: Path, backend: str) -> list[str]:
    """Return the findings of a model that search does not show, but for those that nothing can show."""
    found = [a for a in searched(file, backend).attempts if a.finding.verdict in SURE]
    assert len(found) == claims(read(file), "buggy")
    if file.stem in NOT_SHOWN:
        assert all(a.state == "not shown" and a.reason for a in found)
        return []
    return [f"{a.finding.line()}: {a.state}, {a.reason}" for a in found if a.state != "confirmed"]


def moved(attempt: Attempt, litmus: Litmus) -> Delays:
    """Return the delays of an attempt on the ops of the same labels in the fixed variant; all are there."""
    if attempt.replay is None:
        return NONE
    program = Program.from_tape(litmus.tape("buggy"))
    fixed = litmus.labels("fixed")
    label = {op: name for name, op in litmus.labels("buggy").items()}
    delays = attempt.replay.delays
    names = [label[int(op)] for op in program.op_ids[delays.row]]
    gone = {n for n in names if n not in fixed}
    assert not gone, f"{litmus.name}: the fixed variant has no {sorted(gone)}"
    entries = zip(names, delays.place.tolist(), delays.ns.tolist(), strict=True)
    return Delays.of([(fixed[name], place, ns) for name, place, ns in entries])
