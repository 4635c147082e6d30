"""Whatever hooks tell, in whatever order: the tape is sound and a reader gets it back whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.formats.requests.carry import Answered, Scheduled
from tapedelay.formats.requests.read import read_inputs
from tapedelay.formats.requests.recorded import Changed, Decided
from tapedelay.formats.validate import validate
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all

pytestmark = pytest.mark.counted
EXAMPLES = 1000 if os.environ.get("TAPEDELAY_SOAK") else 40
KEYS = st.sampled_from("abcdef")
WORDS = st.sampled_from([None, None, "stop", "length"])
STEP = st.lists(
    st.tuples(KEYS, st.integers(0, 3), st.integers(0, 9), st.booleans()), unique_by=lambda s: s[0]
)
ANSWERS = st.lists(st.tuples(KEYS, st.integers(0, 3), WORDS), unique_by=lambda s: s[0])
CAUSED = st.lists(
    st.one_of(
        st.tuples(st.just("block"), st.sampled_from(["alloc", "free", "share"]), st.integers(1, 30), KEYS),
        st.tuples(st.sampled_from(["preempt", "resume", "finish", "reject"]), KEYS),
        st.tuples(st.just("emit"), KEYS, st.integers(0, 3)),
    ),
    max_size=4,
)
RUN = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), KEYS, st.integers(0, 9)),
        st.tuples(st.just("next_chunk"), KEYS, st.integers(0, 5)),
        st.tuples(st.just("abort"), st.lists(KEYS, min_size=1, max_size=3, unique=True), CAUSED),
        st.tuples(st.just("step"), st.none() | STEP, CAUSED),
        st.tuples(st.just("output"), st.none() | ANSWERS, CAUSED),
    ),
    max_size=25,
)


def tell(r: SchedulerRecorder, caused: list[Any]) -> tuple[list[Any], dict[int, int]]:
    """Tell what an input causes; return it as a reader should see it."""
    events: list[Any] = []
    emits: dict[int, int] = {}
    for kind, *rest in caused:
        if kind == "block":
            action, unit, key = rest
            r.blocks(action, 0, [unit], key)
            n = r.number(key)
            last = events[-1] if events else None
            if isinstance(last, Changed) and (last.action, last.request) == (action, n):
                events[-1] = last._replace(units=(*last.units, unit))
            else:
                events.append(Changed(action, "kv", (unit,), n))
        elif kind == "emit":
            r.decision("emit", rest[0], rest[1])
            emits[r.number(rest[0])] = rest[1]
        else:
            r.decision(kind, rest[0])
            events.append(Decided(kind, r.number(rest[0])))
    return events, emits


@settings(max_examples=EXAMPLES)
@given(RUN)
def test_what_is_told_is_what_is_read(run: list[Any]) -> None:
    folder = tempfile.mkdtemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAPEDELAY_SPOOL", folder)
        r = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 64, 1, 16)])
        wanted: list[Any] = []
        flying: dict[int, list[int]] = {}
        steps = 0
        for kind, what, *rest in run:
            if kind == "submit":
                r.submit(what, prompt_tokens=rest[0])
                wanted.append((kind, (), (), (), ()))
            elif kind == "next_chunk":
                r.begin(kind, key=what, tokens=rest[0])
                r.end()
                wanted.append((kind, (), (), (), ()))
            elif kind == "abort":
                r.begin(kind, keys=what)
                events, emits = tell(r, rest[0])
                r.end()
                wanted.append((kind, tuple(events), (), (), positive(emits)))
            elif kind == "step":
                r.begin(kind)
                half = len(rest[0]) // 2
                before, emits = tell(r, rest[0][:half])
                scheduled = [Scheduled(r.number(k), t, c, p) for k, t, c, p in what or ()]
                if what is not None:
                    r.schedule(what)
                after, more = tell(r, rest[0][half:])
                r.end()
                if scheduled:
                    flying[steps] = [s.request for s in scheduled]
                steps += 1
                wanted.append((kind, joined(before, after), tuple(scheduled), (), positive(emits | more)))
            else:
                step = min(flying, default=None)
                r.begin(kind)
                half = len(rest[0]) // 2
                before, emits = tell(r, rest[0][:half])
                given = {r.number(k): Answered(r.number(k), t, w) for k, t, w in what or ()}
                if what is not None:
                    r.answers(what)
                after, more = tell(r, rest[0][half:])
                r.end()
                asked = [] if step is None else flying.pop(step)
                answers = [given.pop(n, Answered(n, 0)) for n in asked] + list(given.values())
                shown = {a.request: a.tokens for a in answers} | emits | more
                wanted.append((kind, joined(before, after), (), tuple(answers), positive(shown)))
        assert r.recording
        stop()
    if wanted:
        tape = collect_all(Path(folder))
        assert [v.text() for v in validate(tape)] == []
        for got, (kind, events, scheduled, answers, shown) in zip(read_inputs(tape), wanted, strict=True):
            assert (got.kind, got.events, got.scheduled, got.answers) == (kind, events, scheduled, answers)
            assert dict(got.emitted) == dict(shown)
    shutil.rmtree(folder)


def positive(shown: dict[int, int]) -> dict[int, int]:
    return {request: tokens for request, tokens in shown.items() if tokens}


def joined(before: list[Any], after: list[Any]) -> tuple[Any, ...]:
    """Return both halves, with units that change hands alike in one piece, as a reader sees them."""
    out = list(before)
    for event in after:
        last = out[-1] if out else None
        if (
            isinstance(last, Changed)
            and isinstance(event, Changed)
            and (last.action, last.request) == (event.action, event.request)
        ):
            out[-1] = last._replace(units=(*last.units, *event.units))
        else:
            out.append(event)
    return tuple(out)
