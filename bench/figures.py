"""How the benchmarks print: one line per figure, with its budget and whether it holds."""

from __future__ import annotations

__all__ = ["Figures"]

_WIDTH = 46


class Figures:
    """Prints figures and remembers those that miss their budget."""

    def __init__(self) -> None:
        self.missed: list[str] = []

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
            if not held:
                self.missed.append(what)
        tail = "   ".join(t for t in (verdict, remark) if t)
        print(f"{what:{_WIDTH}} {shown:>14} {unit:10} {tail}".rstrip(), flush=True)

    def absent(self, what: str, why: str) -> None:
        """Print that something was not measured."""
        print(f"{what:{_WIDTH}} {'not measured':>14} {'':10} {why}", flush=True)

    def summary(self) -> None:
        """Print what was missed."""
        print(f"\nover budget: {', '.join(self.missed)}" if self.missed else "\nall budgets hold")
