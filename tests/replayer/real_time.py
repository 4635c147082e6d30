"""Patterns on a backend in real time: what must hold on every run, and what a few tries must show."""

from __future__ import annotations

from tapedelay.replayer.backends.protocol import Backend, Loaded, Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.patterns import Pattern
from tapedelay.replayer.program import Program

from .aiming import NONE, small_delays
from .pattern_cases import shows

__all__ = ["TRIES_NS", "differences"]

TRIES_NS = (5_000_000, 40_000_000, 300_000_000)
"""Aimed delays, one after the other: a busy machine may hold up the other op for as long as the first."""


def aimed(p: Pattern, run: Loaded) -> bool:
    """Whether the delays of a broken pattern show it."""
    return any(shows(p, run.run(p.delays(ns))) for ns in TRIES_NS)


def pinned(p: Pattern, program: Program, run: Loaded) -> Outcome:
    """Run a broken pattern in the order that its delays have in virtual time."""
    plain = VirtualBackend().load(program, Options(values=False)).run(NONE)
    return run.run(NONE, pin=program.interleaving(p.delays(4 * plain.total_ns + 2)))


def differences(backend: Backend, made: list[Pattern], *, plans: int, max_ns: int = 300_000) -> list[str]:
    """Run patterns and return what does not go as they say.

    A right one is right without delays and under some random plans; a broken one is wrong under its own
    delays, and every time when its order is pinned.
    """
    bad = []
    options = Options(timeout_s=5.0)
    pins = backend.capabilities().pin
    for p in made:
        program = Program.from_tape(p.tape)
        run = backend.load(program, options)
        try:
            if p.deadlock:
                if not run.run(NONE).deadlock:
                    bad.append(f"{p.name}: no deadlock")
            elif p.clean:
                for d in [NONE, *small_delays(program, plans, max_ns=max_ns)]:
                    outcome = run.run(d)
                    if not outcome.clean:
                        bad.append(f"{p.name}: {outcome.wrong[:2]} {outcome.stuck} under {d}")
            else:
                if not aimed(p, run):
                    bad.append(f"{p.name}: not shown")
                if pins:
                    outcome = pinned(p, program, run)
                    if not shows(p, outcome):
                        bad.append(f"{p.name}: pinned, but {outcome.wrong[:2]}")
        finally:
            run.close()
    return bad
