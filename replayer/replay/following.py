"""What to do after a replay or a search: the next command, ready to be pasted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...formats.shown import quoted
from ...formats.tape import Tape
from ...formats.window import windows
from .results import Replay
from .search import Search

__all__ = ["Asked", "after_replay", "after_search"]


@dataclass(frozen=True)
class Asked:
    """The command line, as far as the next one depends on it."""

    tape: Path
    backend: str = "virtual"
    delays: tuple[str, ...] = ()
    pin: bool = False
    ops: str | None = None
    steps: str | None = None
    repeat: int = 1
    variant: str | None = None
    baseline: Path | None = None
    time_scale: float = 1.0
    compact: bool = False
    timeout: float | None = None
    every: bool = False
    margin: str | None = None

    @property
    def on_backend(self) -> list[str]:
        """The option that names the backend, and those that it reads; empty for the default."""
        if self.backend == "virtual":
            return []
        words = [f"--backend {quoted(self.backend)}"]
        if self.time_scale != 1:
            words.append(f"--time-scale {self.time_scale:.12g}")
        words += ["--compact"] * self.compact
        return words if self.timeout is None else [*words, f"--timeout {self.timeout:.12g}"]

    def command(self, *more: str) -> str:
        """Return the command line that does the same, with more options."""
        words = ["tapedelay replay", quoted(self.tape)]
        for name, value in (
            ("--variant", self.variant),
            ("--ops", self.ops),
            ("--steps", self.steps),
            ("--baseline", self.baseline),
        ):
            if value is not None:
                words += [name, quoted(value)]
        return " ".join([*words, *more])


def after_replay(asked: Asked, result: Replay, out: Path | None) -> str:
    """Return the next useful command after a replay, ready to be pasted."""
    if out is not None:
        return f"tapedelay check {quoted(out)}"
    expressions = result.expressions
    seeds = any(n.seed is not None for n in result.plan.lines)
    given = expressions if seeds and len(expressions) <= 20 else list(asked.delays)
    delays = [f"--delays {quoted(d)}" for d in given]
    if result.verdict in ("confirmed", "wrong") or result.facts.unknown:
        if result.backend == "virtual":
            more = ["--backend threads --pin"] * (result.verdict != "unknown")
        else:
            more = [*asked.on_backend, "--pin", *["--repeat 100"] * asked.pin]
        return asked.command(*delays, *more)
    if result.verdict in ("deadlock", "unknown"):
        return f"tapedelay check {quoted(asked.tape)}"
    if result.interrupted and result.verdict == "cannot judge":
        words = [*asked.on_backend, *delays, *["--pin"] * asked.pin]
        return asked.command(*words, f"--repeat {asked.repeat}")
    if result.verdict == "cannot judge":
        return f"tapedelay info {quoted(asked.tape)}"
    if any(not g.example.accepted for g in result.report.groups):
        return asked.command(*asked.on_backend, "--search")
    return replace(asked, baseline=None).command("--delays 'seed=1 max=200us' --repeat 1000")


def after_search(asked: Asked, result: Search, written: list[Path], tape: Tape) -> str:
    """Return the next useful command after a search that wrote these plans."""
    shown = [a for a in result.of("confirmed") + result.of("unknown") if a.expression]
    if written:
        delays = f"--delays {quoted(written[0])}"
        plan = shown[0].plan
        of_this_tape = plan is None or any(isinstance(line.anchor, int) for line in plan.lines)
        if not tape.manifest.engine or windows(tape.manifest) or of_this_tape:
            return asked.command(*asked.on_backend, delays)
        if asked.margin is None:
            hint = "  # for the engine: search with --margin 50ms"
            return asked.command(*asked.on_backend, delays) + hint
        return f"tapedelay record -o late.tape {_test_devices(tape)}{delays} -- COMMAND"
    if shown:
        return asked.command(*asked.on_backend, f"--delays {quoted(shown[0].expression)}")
    if result.of("confirmed"):
        return asked.command(*asked.on_backend)
    return f"tapedelay check {quoted(asked.tape)}"


def _test_devices(tape: Tape) -> str:
    """Return the options of `record` for test devices like those of a tape; empty where it has none."""
    tests = [d for d in tape.table("devices").to_pylist() if d["kind"] == "test"]
    mine = [d for d in tests if d["process"] == tests[0]["process"]]  # every process has its own
    return f"--devices {len(mine)} --profile {quoted(mine[0]['profile'])} " if mine else ""
