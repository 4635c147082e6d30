"""The page around the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

from ...edges import resolve
from ...tape import Tape
from ..edges import Edges
from ..mark import Mark
from ..timeline import Timeline, timeline
from ..titles import Titles
from .drawing import drawing
from .scene import Scene, scene
from .text import escaped

__all__ = ["finding_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def finding_page(
    tape: Tape,
    mark: Mark,
    *,
    edges: Edges | None = None,
    conditions: Sequence[str] = (),
    commands: Sequence[str] = (),
) -> str:
    """Return a page about one finding.

    Parameters
    ----------
    tape : Tape
        A valid tape.
    mark : Mark
        The finding.
    edges : tuple of arrays, optional
        The edges of its contract, where they are at hand.
    conditions : sequence of str
        Why the verdict is not exact.
    commands : sequence of str
        What to type to see it again.

    Returns
    -------
    str
        HTML with no script and nothing to load.
    """
    contract = None
    if edges is None:
        contract = resolve(tape)
        edges = (contract.source, contract.target, contract.rule)
    titles = Titles(tape)
    shown = scene(tape, mark, edges)
    times = timeline(tape, contract)
    return "\n".join(_lines(tape, mark, titles, shown, times, conditions, commands)) + "\n"


def _lines(
    tape: Tape,
    mark: Mark,
    titles: Titles,
    shown: Scene,
    times: Timeline,
    conditions: Sequence[str],
    commands: Sequence[str],
) -> Iterator[str]:
    name = escaped(tape.name)
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escaped(mark.title)} in {name}</title>"
    style = files(__package__).joinpath("page.css").read_text("utf-8")
    yield f"<style>\n{style}</style>\n</head>\n<body>\n<main>"
    yield f'<p class="tape"><bdi>{name}</bdi></p>\n<h1><bdi>{escaped(mark.title)}</bdi></h1>'
    yield f'<p class="said"><bdi>{escaped(mark.text)}</bdi></p>'
    if mark.facts:
        yield "<dl>"
        for key, value in mark.facts:
            yield f"<dt>{escaped(key)}</dt><dd><bdi>{escaped(value)}</bdi></dd>"
        yield "</dl>"
    yield f'<figure>\n<div class="wide">\n{drawing(shown, mark, titles)}\n</div>'
    yield from _caption(mark, shown)
    yield "</figure>"
    yield from _table(mark, titles, shown, times)
    if conditions:
        yield "<h2>Not exact, because</h2>\n<ul>"
        for condition in conditions:
            yield f"<li><bdi>{escaped(condition)}</bdi></li>"
        yield "</ul>"
    if commands:
        yield "<h2>To see it again</h2>"
        yield f"<pre>{escaped(commands[0])}" + "".join(f"\n{escaped(c)}" for c in commands[1:]) + "</pre>"
    yield "</main>\n</body>\n</html>"


def _caption(mark: Mark, shown: Scene) -> Iterator[str]:
    yield '<figcaption><span><i class="solid"></i>comes before, by an edge between queues</span>'
    yield '<span><i class="thin"></i>comes before, on its queue</span>'
    if mark.link:
        yield f'<span><i class="dashed"></i>{escaped(mark.link)}</span>'
    elif len(mark.rows) > 1:
        yield '<span><i class="bad"></i>waits in a circle</span>'
    if any(a.why == "one collective" for a in shown.arrows):
        yield '<span><i class="dotted"></i>one collective</span>'
    yield "<span>from left to right: what the edges order; no scale of time</span></figcaption>"


def _table(mark: Mark, titles: Titles, shown: Scene, times: Timeline) -> Iterator[str]:
    timed = times.recorded
    yield '<h2>The ops of the picture</h2>\n<div class="wide">\n<table>\n<thead><tr><th>op</th><th>queue</th>'
    yield "<th>kind</th><th>name</th><th>reads</th><th>writes</th>"
    yield "<th>issued</th><th>started</th><th>took</th>" * timed + "</tr></thead>\n<tbody>"
    for box in shown.boxes:
        row = box.row
        name = titles.name(row) or titles.object(row)
        cells = [titles.label(row), titles.queues[box.queue], titles.kind(row), name, *titles.touched(row)]
        if row in mark.rows:
            yield '<tr class="found">'
        else:
            yield "<tr>"
        yield "".join(f"<td><bdi>{escaped(c)}</bdi></td>" for c in cells)
        if timed:
            known, lasts = bool(times.timed[row]), bool(times.lasting[row])
            issue, start, end = (int(t[row]) for t in (times.issue_ns, times.start_ns, times.end_ns))
            shown_times = [_us(issue, known), _us(start, known), _us(end - start, known and lasts)]
            yield "".join(f'<td class="time">{t}</td>' for t in shown_times)
        yield "</tr>"
    yield "</tbody>\n</table>\n</div>"


def _us(ns: int, known: bool) -> str:
    return f"{ns / 1000:,.1f} µs" if known else "?"
