"""Litmus text played in virtual time, for tests."""

from __future__ import annotations

from tapedelay.formats.delays import PLACES, Delays
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import AT_END, Outcome, Seen
from tapedelay.replayer.program import Program

__all__ = ["Played", "play"]


class Played:
    """A run of a litmus text.

    Parameters
    ----------
    text : str
        The litmus text; its variant as `parse` takes it.
    late : str
        Delays: ``label place ns``, with commas between.
    """

    def __init__(self, text: str, late: str = "", *, fixed: bool = False, values: bool = True) -> None:
        self.program = Program.from_tape(parse(text).tape("fixed" if fixed else "buggy"))
        self.names = [self.program.labels(row) for row in range(self.program.rows)]
        delays = []
        for entry in filter(None, (e.strip() for e in late.split(","))):
            label, place, ns = entry.split()
            delays.append((self.names.index(label), PLACES.index(place), int(ns)))
        self.delays = Delays.of(delays)
        self.loaded = VirtualBackend().load(self.program, Options(values=values))
        self.outcome: Outcome = self.loaded.run(self.delays)

    def name(self, row: int) -> str:
        """Return the label of a row; ``begin`` and ``end`` for what is none."""
        return self.names[row] if row >= 0 else "begin"

    def times(self) -> str:
        """Return ``label issue start end`` of each row in ns."""
        o = self.outcome
        return "; ".join(
            f"{n} {i} {s} {e}"
            for n, i, s, e in zip(
                self.names, o.issue_ns.tolist(), o.start_ns.tolist(), o.end_ns.tolist(), strict=True
            )
        )

    def wrong(self) -> list[str]:
        """Return each wrong read in one line."""
        found = []
        for w in self.outcome.wrong:
            name = "end" if w.row == AT_END else self.name(w.row)
            what = f"{self.parts(w.saw)} not {self.parts(w.expected)}"
            found.append(f"{name} {w.kind}{' derived' * w.derived} at {w.at_ns}: {what}")
        return found

    def parts(self, seen: tuple[Seen, ...]) -> str:
        """Return what was seen: ``begin:end=writer``, with the state where it is no plain version."""
        return ",".join(
            f"{s.begin}:{s.end}={self.name(s.writer)}{'' if s.state == 'version' else '(' + s.state + ')'}"
            for s in seen
        )

    def chain(self) -> str:
        """Return the chain by labels."""
        return " ".join("end" if r == AT_END else self.name(r) for r in self.outcome.chain)


def play(text: str, late: str = "", *, fixed: bool = False) -> Played:
    """Return the run of a litmus text."""
    return Played(text, late, fixed=fixed)
