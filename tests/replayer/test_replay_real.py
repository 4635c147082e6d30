"""The recordings of bug 26040 and small models in real time: aimed delays, pins, written tapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.errors import Unsupported
from tapedelay.formats.litmus import read
from tapedelay.formats.load import load_tape
from tapedelay.formats.validate import validate
from tapedelay.replayer.backends.registry import find_backend
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.replay import replay, search
from tapedelay.replayer.replay.result_tape import result_tape

ROOT = Path(__file__).resolve().parents[2]
AIM = "first copy of model.input_embed on TAPE0 +3ms before_start"


@pytest.fixture(params=["threads", pytest.param("opencl", marks=pytest.mark.engines)])
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of each backend in real time that is here."""
    name = str(request.param)
    if name != "threads":
        try:
            find_backend(name)
        except Unsupported as e:
            pytest.skip(e.found)
    return name


def test_the_bad_build_is_wrong_and_the_good_one_is_not(backend: str) -> None:
    bad, good = (load_tape(ROOT / f"traces/ggml-26040-{n}.tape.zip") for n in ("bad", "good"))
    result = search(bad, backend=backend)
    (attempt,) = result.attempts
    assert (attempt.state, result.exit_code, result.backend) == ("confirmed", 1, backend)
    assert attempt.told is not None
    assert attempt.expression.startswith("first copy of model.input_embed on TAPE0 +")
    assert replay(bad, backend=backend, delays=attempt.plan).verdict == "confirmed"
    assert replay(good, backend=backend, delays=attempt.plan).verdict == "clean"


def test_a_pin_hits_every_time(backend: str) -> None:
    bad, good = (load_tape(ROOT / f"traces/ggml-26040-{n}.tape.zip") for n in ("bad", "good"))
    virtual = replay(bad, delays=AIM)
    pinned = replay(bad, backend=backend, delays=AIM, pin=True, repeat=5)
    assert (pinned.runs, pinned.found) == (5, 5)
    assert pinned.outcome.wrong_count == virtual.outcome.wrong_count
    assert pinned.outcome.chain == virtual.outcome.chain
    assert replay(good, backend=backend, delays=AIM, pin=True).verdict == "clean"


def test_a_run_in_real_time_is_a_tape(backend: str) -> None:
    tape = load_tape(ROOT / "traces/ggml-26040-bad.tape.zip")
    result = replay(tape, backend=backend, delays=AIM)
    again = result_tape(tape, result.outcome, note="replayed")
    assert [str(v) for v in validate(again)] == []
    assert check_tape(again).verdict_lines() == check_tape(tape).verdict_lines()
    assert result.time.total_ns > 3_000_000


def test_a_search_in_real_time_leaves_room(backend: str) -> None:
    tape = read(ROOT / "tests/corpus/ops/B01.litmus").tape("buggy")
    (attempt,) = search(tape, backend=backend).attempts
    assert attempt.state == "confirmed"
    assert attempt.plan is not None
    assert attempt.plan.lines[0].ns >= 5_000_000
