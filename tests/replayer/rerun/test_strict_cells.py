"""A strict rerun sees every value of what was recorded: each column is changed, one value at a time."""

from __future__ import annotations

from collections import Counter

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.rerun.drive import Limits, run
from tapedelay.replayer.rerun.from_tape import Recording, recording_of
from tapedelay.replayer.rerun.strict import compare

from .cells import COMPARED, changes, is_input, not_compared, recorded_as
from .searching import RECORDINGS
from .taping import taped
from .toy import ToyDriver


@pytest.fixture(scope="module", params=["async", "long", "session"])
def tape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tape:
    """Tapes of the toy: equal prompts, a preemption, a session."""
    return load_tape(taped(RECORDINGS[request.param], tmp_path_factory.mktemp("toy")))


def diverges(recording: Recording) -> bool:
    made = run(recording.scenario, ToyDriver(), limits=Limits(stop_at_first=False), drain=False)
    return compare(recording.recorded, made) is not None


def test_every_value_of_a_tape_is_compared(tape: Tape) -> None:
    assert not diverges(recording_of(tape)), "as it is"
    first = tape.table("resources").column("input")[0].as_py()
    seen = Counter[tuple[str, str]]()
    unseen: dict[tuple[str, str], list[str]] = {}
    for changed in changes(tape, 1):
        if not_compared(changed, first):
            continue
        recording = recorded_as(changed)
        where = changed.table, changed.column
        if recording is None:
            continue
        if diverges(recording):
            seen[where] += 1
        else:
            unseen.setdefault(where, []).append(changed.text())
            assert is_input(changed), changed.text()
    assert not {where: texts for where, texts in unseen.items() if not seen[where]}
    assert {table for table, _ in seen} == set(COMPARED)
    assert {
        ("decisions", "request"), ("decisions", "kind"), ("decisions", "tokens"), ("decisions", "seq"),
        ("decisions", "computed_tokens"), ("blocks", "unit"), ("blocks", "request"), ("blocks", "action"),
        ("resources", "free"), ("resources", "used"), ("answers", "word"), ("answers", "tokens"),
        ("inputs", "kind"),
    } <= set(seen)  # fmt: skip


def test_the_values_that_are_not_compared_are_few(tape: Tape) -> None:
    first = tape.table("resources").column("input")[0].as_py()
    reasons = {(c.table, c.column) for c in changes(tape, 1) if not_compared(c, first)}
    assert reasons <= {
        ("inputs", "at_ns"), ("inputs", "op"), ("answers", "seq"), ("decisions", "seq"),
        ("resources", "input"), ("resources", "pool"),
    }  # fmt: skip
