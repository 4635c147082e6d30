"""Whatever `check` finds can be shown, on the corpus and on random tapes."""

from __future__ import annotations

import io
import random
from html.parser import HTMLParser
from pathlib import Path

from tapedelay.formats.exporters.page import finding_page
from tapedelay.formats.exporters.perfetto import write_perfetto
from tapedelay.formats.exporters.perfetto.packets import require_perfetto
from tapedelay.formats.litmus import read
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.columns import core_tape
from tapedelay.replayer.export.marks import marks_of

from ..random_tapes import BYTES, random_tape

ROOT = Path(__file__).resolve().parents[2] / "corpus"
CORPUS = sorted(f for d in ("ops", "own") for f in (ROOT / d).glob("*.litmus"))


def shown(tape: Tape) -> set[str]:
    """Export every finding of a tape and return what joins their pairs."""
    groups = check_tape(tape).groups
    marks = marks_of(tape, groups)
    edges = core_tape(tape, times=False).edges()
    ids = tape.table("ops").column("op").to_pylist()
    file = io.BytesIO()
    written = write_perfetto(tape, file, marks=marks, edges=edges)
    trace = require_perfetto().Trace()
    trace.ParseFromString(file.getvalue())
    events = [p.track_event for p in trace.packet if p.HasField("track_event")]
    left = [f for e in events for f in e.flow_ids]
    ended = [f for e in events for f in e.terminating_flow_ids]
    assert sorted(left) == sorted(ended)
    assert len(left) == len(set(left)) == written.flows + sum(bool(m.link) for m in marks)
    for group, mark in zip(groups, marks, strict=True):
        assert sorted(ids[r] for r in mark.rows) == sorted(o.op for o in group.example.ops)
        page = finding_page(tape, mark, edges=edges)
        HTMLParser().feed(page)
        assert page.count('class="op found"') == len(set(mark.rows))
        assert page.count('class="link"') == bool(mark.link)
    return {m.link for m in marks}


def test_the_corpus() -> None:
    links: set[str] = set()
    for file in CORPUS:
        litmus = read(file)
        for variant in ("buggy", "fixed") if litmus.has_variants else ("buggy",):
            links |= shown(litmus.tape(variant))
    assert links == {"missing edge", "used after its end", "freed twice", ""}


def test_random_tapes() -> None:
    chance = random.Random(3)
    links = [shown(random_tape(chance.randbytes(BYTES))) for _ in range(60)]
    assert sum(bool(some) for some in links) > 30
