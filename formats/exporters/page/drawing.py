"""The picture of a scene as SVG."""

from __future__ import annotations

from collections.abc import Iterator

from ..mark import Mark
from ..titles import Titles
from .scene import Arrow, Box, Scene
from .text import escaped, shortened

__all__ = ["drawing"]

_LEFT, _TOP = 132, 14
_COLUMN, _LANE = 142, 98
_WIDE, _HIGH = 114, 46


def drawing(scene: Scene, mark: Mark, titles: Titles) -> str:
    """Return the picture: a line per queue, the ops on it, arrows for what orders them."""
    return "\n".join(_Drawing(scene, mark, titles).lines())


class _Drawing:
    def __init__(self, scene: Scene, mark: Mark, titles: Titles) -> None:
        self.scene, self.mark, self.titles = scene, mark, titles
        self.lane = {q: i for i, q in enumerate(scene.queues)}
        self.box = {b.row: b for b in scene.boxes}
        self.width = _LEFT + scene.columns * _COLUMN + 30
        self.height = _TOP + len(scene.queues) * _LANE + 6

    def lines(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escaped(self.mark.text)}">'
        )
        yield "<defs>"
        for name in ("tip", "tip-bad"):
            yield (
                f'<marker id="{name}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="9" markerHeight="9" '
                'markerUnits="userSpaceOnUse" orient="auto">'
                f'<path d="M0 0.5 8 4 0 7.5z" class="{name}"/></marker>'
            )
        yield "</defs>"
        yield from self._lanes()
        for arrow in self.scene.arrows:
            yield from self._arrow(arrow)
        for box in self.scene.boxes:
            yield from self._op(box)
        if self.mark.link and all(r in self.box for r in self.mark.rows[:2]):
            yield from self._link()
        yield "</svg>"

    def _x(self, box: Box) -> int:
        return _LEFT + box.column * _COLUMN + 12

    def _y(self, box: Box) -> int:
        return _TOP + self.lane[box.queue] * _LANE + (_LANE - _HIGH) // 2

    def _lanes(self) -> Iterator[str]:
        for queue, lane in self.lane.items():
            y = _TOP + lane * _LANE + _LANE // 2
            name = self.titles.queues[queue]
            before, after = self.scene.more[queue]
            mine = [b.column for b in self.scene.boxes if b.queue == queue]
            yield f'<line class="lane" x1="{_LEFT - 6}" x2="{self.width - 6}" y1="{y}" y2="{y}"/>'
            said = _tip(name) + escaped(shortened(name, 16))
            yield f'<text class="queue" x="{_LEFT - 14}" y="{y + 4}">{said}</text>'
            if before and min(mine) > 0:
                yield f'<text class="more" x="{_LEFT}" y="{y - 6}">{before:,} before</text>'
            if after:
                x = _LEFT + (max(mine) + 1) * _COLUMN
                yield f'<text class="more" x="{x}" y="{y - 6}">{after:,} more</text>'

    def _op(self, box: Box) -> Iterator[str]:
        titles, row = self.titles, box.row
        x, y = self._x(box), self._y(box)
        label, kind = titles.label(row), titles.kind(row)
        what = titles.name(row) or titles.object(row)
        reads, writes = titles.touched(row)
        said = [f"{label} {kind} {what}".rstrip(), f"queue {titles.queues[box.queue]}"]
        said += [f"reads {reads}"] * bool(reads) + [f"writes {writes}"] * bool(writes)
        yield f'<g class="{"op found" if box.found else "op"}">{_tip("; ".join(said))}'
        yield f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="5"/>'
        first = escaped(shortened(f"{label} {kind}", 15))
        touches = f"writes {writes}" if writes else f"reads {reads}" if reads else ""
        second = escaped(shortened(what or touches, 16))
        yield f'<text class="kind" x="{x + 8}" y="{y + 19}">{first}</text>'
        yield f'<text class="name" x="{x + 8}" y="{y + 36}">{second}</text></g>'

    def _arrow(self, arrow: Arrow) -> Iterator[str]:
        a, b = self.box[arrow.source], self.box[arrow.target]
        if arrow.why == "one collective":
            upper, lower = sorted((a, b), key=self._y)
            x1, x2 = self._x(upper) + _WIDE // 3, self._x(lower) + _WIDE // 3
            said = f"{self.titles.label(a.row)} and {self.titles.label(b.row)}: one collective"
            path = f"M{x1} {self._y(upper) + _HIGH}L{x2} {self._y(lower)}"
            yield f'<path class="joint" d="{path}">{_tip(said)}</path>'
            return
        bad = not self.mark.link and a.found and b.found
        sort = "fifo" if arrow.why == "program" and not bad else "edge"
        why = "program order" if arrow.why == "program" else arrow.why.replace("_", " ")
        said = f"{self.titles.label(a.row)} before {self.titles.label(b.row)}: {why}"
        yield (
            f'<path class="{sort}{" bad" * bad}" d="{self._path(a, b)}" marker-end="url(#tip{"-bad" * bad})">'
            f"{_tip(said)}</path>"
        )
        if arrow.hidden and a.queue == b.queue:
            x = (self._x(a) + _WIDE + self._x(b)) // 2
            # where the gap is one column wide there is room for a number only
            wide = b.column > a.column + 1
            yield (
                f'<text class="more mid" x="{x}" y="{self._y(a) + _HIGH // 2 - 6}">'
                f"{_tip(f'{arrow.hidden:,} ops between')}{arrow.hidden:,}{' ops' * wide}</text>"
            )

    def _path(self, a: Box, b: Box) -> str:
        x1, y1 = self._x(a) + _WIDE, self._y(a) + _HIGH // 2
        x2, y2 = self._x(b) - 1, self._y(b) + _HIGH // 2
        if a.queue == b.queue and b.column > a.column:
            return f"M{x1} {y1}H{x2}"
        if b.column <= a.column:  # back, or to itself: below all boxes of the line
            low = max(y1, y2) + _HIGH
            return f"M{x1} {y1}C{x1 + 50} {low} {x2 - 50} {low} {x2} {y2}"
        down = 1 if y2 > y1 else -1
        x1, y1 = self._x(a) + _WIDE - 14, y1 + down * _HIGH // 2
        bend = max(26, (x2 - x1) // 2)
        return f"M{x1} {y1}C{x1} {y1 + down * 24} {x2 - bend} {y2} {x2} {y2}"

    def _link(self) -> Iterator[str]:
        a, b = (self.box[r] for r in self.mark.rows[:2])
        if a.queue == b.queue:
            x1, x2 = self._x(a) + _WIDE // 2, self._x(b) + _WIDE // 2
            y = self._y(a)
            path = f"M{x1} {y}C{x1} {y - 26} {x2} {y - 26} {x2} {y - 1}"
            at, anchor = ((x1 + x2) // 2, y - 10), "middle"
        else:
            down = 1 if self.lane[b.queue] > self.lane[a.queue] else -1
            x1, y1 = self._x(a) + _WIDE // 2, self._y(a) + (_HIGH if down > 0 else 0)
            x2, y2 = self._x(b) + _WIDE // 2, self._y(b) + (-1 if down > 0 else _HIGH + 1)
            middle = (y1 + y2) // 2
            path = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
            # beside the curve, on the side to which it does not go
            at, anchor = ((x1 + x2) // 2 + 6, middle - down * 9 + 4), "start"
        yield f'<path class="link" d="{path}" marker-end="url(#tip-bad)">{_tip(self.mark.text)}</path>'
        place = f'text-anchor="{anchor}" x="{at[0]}" y="{at[1]}"'
        yield f'<text class="linked" {place}>{escaped(self.mark.link)}</text>'


def _tip(text: str) -> str:
    return f"<title>{escaped(text)}</title>"
