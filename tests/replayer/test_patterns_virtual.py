"""Every pattern in virtual time: right ones under any delay, broken ones wrong under a known one."""

from __future__ import annotations

import numpy as np
import pytest

from tapedelay.formats.delays.resolved import PLACES, Delays
from tapedelay.replayer.backends.protocol import Loaded, Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.patterns import FAMILIES, Pattern, patterns
from tapedelay.replayer.patterns.dags import MEANS, random_dag
from tapedelay.replayer.program import Program

from .aiming import NONE, small_delays
from .pattern_cases import selection, shows


def loaded(p: Pattern) -> tuple[Program, Loaded]:
    program = Program.from_tape(p.tape)
    return program, VirtualBackend().load(program, Options())


def wrong(made: list[Pattern]) -> list[str]:
    """Return what does not go as the patterns say."""
    bad = []
    for p in made:
        program, run = loaded(p)
        plain = run.run(NONE)
        if p.deadlock:
            (claim,) = p.verdicts
            if not plain.deadlock or plain.never != tuple(p.row(n) for n in claim.labels):
                bad.append(f"{p.name}: no deadlock")
            continue
        if plain.deadlock:
            bad.append(f"{p.name}: a deadlock")
        elif p.clean:
            held = plain.total_ns + 1
            plans = [
                Delays.of([(row, place, held)]) for row in range(program.rows) for place in range(len(PLACES))
            ]
            plans = [NONE, *plans[:300], *small_delays(program, 20)]
            bad += [f"{p.name}: {d}" for d in plans if not run.run(d).clean]
        else:
            outcome = run.run(p.delays(4 * plain.total_ns + 2))
            if not shows(p, outcome):
                bad.append(f"{p.name}: {outcome.wrong}")
    return bad


@pytest.mark.parametrize("family", FAMILIES)
def test_right_patterns_stay_right_and_broken_ones_show(family: str) -> None:
    assert wrong(list(selection(family))) == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_every_variant(family: str) -> None:
    assert wrong(list(patterns(family, full=True))) == []


def test_a_removed_link_of_a_random_graph_shows_if_and_only_if_it_was_needed() -> None:
    seen = {False: 0, True: 0}
    for seed in range(8):
        for ops, queues, slots in ((8, 2, None), (10, 4, 4), (14, 8, None), (12, 3, 3)):
            dag = random_dag(seed, ops=ops, queues=queues, slots=slots)
            for link in dag.links:
                p = dag.pattern(MEANS[seed % len(MEANS)], link)
                program, run = loaded(p)
                held = 4 * run.run(NONE).total_ns + 2
                needed = bool(dag.broken(link))
                seen[needed] += 1
                if needed:
                    assert shows(p, run.run(p.delays(held))), p.name
                else:
                    plans = [Delays.of([(row, 1, held)]) for row in range(program.rows)]
                    for d in [*plans, *small_delays(program, 10, seed=seed)]:
                        assert run.run(d).clean, p.name
    assert min(seen.values()) > 50, seen


def test_times_are_those_of_the_graph() -> None:
    """A pipeline over two slots takes what its longest path takes."""
    (p,) = [p for p in selection("pipelines") if p.name == "pipelines/2-slots-4-rounds/clean"]
    _, run = loaded(p)
    plain = run.run(NONE)
    # fill, load, run, save of one round; then one more round each 1 us; the host's read at the end
    assert plain.total_ns >= 7000
    assert np.all(plain.end_ns >= plain.start_ns)
