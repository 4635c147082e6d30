"""How the benchmarks print: one line per figure, with its budget and whether it holds."""

from __future__ import annotations

__all__ = ["Figures"]

_WIDTH = 46


class Figures:
    """Prints figures and remembers those that miss their budget, and those that were not measured."""

    def __init__(self) -> None:
        self.missed: list[str] = []
        self.held: list[str] = []
        self.unmeasured: list[str] = []

    def title(self, text: str) -> None:
        """Print a heading."""
        print(f"\n== {text}", flush=True)

    def show(
        self, what: str, value: float, unit: str, *, most: float | None = None, least: float | None = None,
        remark: str = "",
    ) -> None:  # fmt: skip
        """Print one figure; with `most` or `least`, its budget and ``pass`` or ``MISS``."""
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
        verdict = ""
        if most is not None or least is not None:
            held = value <= most if most is not None else value >= (least or 0)
            limit = f"<= {most:,.10g}" if most is not None else f">= {least:,.10g}"
            verdict = f"budget {limit}: {'pass' if held else 'MISS'}"
            self.judge(what, held)
        tail = "   ".join(t for t in (verdict, remark) if t)
        print(f"{what:{_WIDTH}} {shown:>14} {unit:10} {tail}".rstrip(), flush=True)

    def judge(self, what: str, held: bool) -> None:
        """Remember whether a budget held; `show` does it for its own."""
        (self.held if held else self.missed).append(what)

    def absent(self, what: str, why: str) -> None:
        """Print that something was not measured."""
        self.unmeasured.append(what)
        print(f"{what:{_WIDTH}} {'not measured':>14} {'':10} {why}", flush=True)

    def summary(self) -> str:
        """Return what held, what was missed and what was not measured."""
        lines = [f"budgets that hold: {len(self.held)} of {len(self.held) + len(self.missed)} measured"]
        if self.missed:
            lines.append(f"over budget: {', '.join(self.missed)}")
        if self.unmeasured:
            lines.append(f"not measured: {_rows(len(self.unmeasured))}: {', '.join(self.unmeasured)}")
        return "\n".join(lines)


def _rows(count: int) -> str:
    return f"{count} row" + "s" * (count != 1)
