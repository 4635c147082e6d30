"""``tapedelay check``: the verdict on a tape, for people and for programs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from ...formats.commands.common import json_option, print_json, printable, quoted, say_next
from ...formats.errors import UsageError
from ...formats.load import load_tape
from ...formats.tape import Tape
from .baseline import read_baseline, write_baseline
from .findings import Group, OpView, Report, plural
from .judge import Progress, check_tape

__all__ = ["check", "render"]

_LARGE = 50_000
"""Ops from which on a terminal sees progress."""
_WORDS = {
    "race": "race",
    "lifetime": "lifetime fault",
    "deadlock": "deadlock",
    "possible": "possible fault",
    "unknown": "unknown",
}


@click.command()
@click.argument("tape", type=click.Path(path_type=Path))
@click.option(
    "--variant",
    type=click.Choice(["buggy", "fixed"]),
    help="Which variant of a litmus file (default: buggy).",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Accepted findings: reported, but they do not count.",
)
@click.option(
    "--write-baseline",
    "write",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all findings as accepted, and exit 0.",
)
@click.option("--all", "show_all", is_flag=True, help="Print every pair, not one example per kind.")
@json_option
def check(
    tape: Path, variant: str | None, baseline: Path | None, write: Path | None, show_all: bool, as_json: bool
) -> int:
    """Name the races, lifetime faults and deadlocks of TAPE (a directory, a zip file or a litmus file).

    \b
    Exit codes: 0 clean (or all accepted), 1 found, 3 bad input,
    4 cannot judge (only unknowns are left, or not enough was recorded).
    """
    loaded = _load(tape, variant)
    accepted = read_baseline(baseline) if baseline is not None else None
    with _progress(loaded) as progress:
        report = check_tape(loaded, accepted, progress=progress)
    written = write_baseline(write, report) if write is not None else 0
    if as_json:
        print_json(report.as_dict())
    else:
        for line in render(report, show_all=show_all):
            click.echo(printable(line))
        _next(tape, report, write, written)
    return 0 if write is not None else report.exit_code


def _load(path: Path, variant: str | None) -> Tape:
    if variant is None:
        return load_tape(path)
    if path.suffix != ".litmus":
        raise UsageError(
            f"--variant {variant} with {path.name}",
            expected="a .litmus file: only those have variants",
            next_step="leave the option out",
        )
    from ...formats.litmus import read
    from ...formats.validate import require_valid

    tape: Tape = read(path).tape(variant)
    require_valid(tape)
    return tape


class _Bar(AbstractContextManager[Progress]):
    """A progress bar on stderr."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(console=Console(stderr=True), transient=True)
        self._name = name

    def __enter__(self) -> Progress:
        self._bar.start()
        task = self._bar.add_task(f"checking {printable(self._name)}", total=None)
        return lambda done, total: self._bar.update(task, completed=done, total=total)

    def __exit__(self, *details: object) -> None:
        self._bar.stop()


def _progress(tape: Tape) -> AbstractContextManager[Progress | None]:
    if sys.stderr.isatty() and tape.table("ops").num_rows >= _LARGE:
        return _Bar(tape.name)
    return nullcontext()


def _next(path: Path, report: Report, write: Path | None, written: int) -> None:
    if write is not None:
        click.echo(f"{plural(written, 'kind')} of findings accepted in {quoted(write)}", err=True)
        say_next(f"tapedelay check {quoted(path)} --baseline {quoted(write)}")
    elif report.exit_code == 0:
        say_next(f"tapedelay info {quoted(path)}")
    elif report.exit_code == 1:
        say_next(f"tapedelay check {quoted(path)} --all, or --write-baseline FILE to accept what is known")
    else:
        say_next(f"tapedelay info {quoted(path)}: what was recorded and what was not")


def render(report: Report, *, show_all: bool = False) -> list[str]:
    """Return the report as lines of text."""
    lines = [_headline(report)]
    for group in report.groups:
        lines += ["", *_group(group)]
        if show_all and group.count > 1:
            same = (group.example.verdict, group.example.signature)
            lines += [f"    {f.line()}" for f in report.findings if (f.verdict, f.signature) == same]
    if report.conditions:
        lines += ["", "not exact, because:"]
        lines += [
            f"  {c.detail}" + ("" if not c.blocks else " (nothing is called clean)")
            for c in report.conditions
        ]
    if report.stale:
        lines += [
            "",
            f"the baseline has {plural(len(report.stale), 'entry', 'entries')} that nothing matched:",
        ]
        lines += [f"  {s}" for s in report.stale]
    return lines


def _headline(report: Report) -> str:
    parts = []
    for verdict, word in _WORDS.items():
        count = report.count(verdict, accepted=False)
        if count:
            parts.append(f"{count} unknown" if verdict == "unknown" else plural(count, word))
    parts = parts or ["0 races"]
    accepted = sum(g.count for g in report.groups if g.example.accepted)
    if accepted:
        parts.append(f"{accepted} accepted")
    verdict = {"clean": "clean", "cannot judge": "cannot judge", "unknown": "cannot judge"}.get(
        report.verdict, ""
    )
    return (
        f"{report.tape}: {verdict + ': ' if verdict else ''}{', '.join(parts)}"
        f" in {report.ops_checked:,} {'op' if report.ops_checked == 1 else 'ops'} and"
        f" {report.accesses_checked:,} {'access' if report.accesses_checked == 1 else 'accesses'}"
    )


def _group(group: Group) -> list[str]:
    f = group.example
    times = "once" if group.count == 1 else f"{group.count} times, first:"
    head = _WORDS[f.verdict].upper() + (f" {f.kind}" if f.verdict in ("possible", "unknown") else "")
    if f.kind == "deadlock":
        lines = [f"{head}  {times}"]
    else:
        lines = [f"{head}  {f.fault} on `{f.buffer}`{_bytes(f.begin, f.end)}  {times}"]
    if f.accepted:
        return [f"{lines[0]}  (accepted by the baseline)", f"  {f.text}"]
    lines.append(f"  {f.text}")
    names = ("first", "second") if f.kind != "deadlock" else ()
    for i, op in enumerate(f.ops[:20]):
        lines.append(f"  {names[i] if names else 'op':7}{_op(op)}")
    if len(f.ops) > 20:
        lines.append(f"  and {len(f.ops) - 20} more")
    if f.kind == "race":
        lines.append(f"  missing: an edge from the end of {f.ops[0].label} to the start of {f.ops[1].label}")
    if f.verdict == "unknown":
        lines.append("  unknown: a wait that was not seen may order them")
    elif f.verdict == "possible":
        lines.append("  possible: it rests on an inferred or over-approximated fact")
    return lines


def _bytes(begin: int | None, end: int | None) -> str:
    return "" if begin is None or end is None else f" bytes {begin:,} to {end:,} ({end - begin:,} bytes)"


def _op(op: OpView) -> str:
    text = f"{op.label:6} {op.kind}"
    if op.name:
        text += f" `{op.name}`"
    text += f" on queue {op.queue} of {op.device}"
    if op.mode:
        text += f", {op.mode}" + (f" `{op.tensor}`" if op.tensor else "")
    if op.step is not None:
        text += f", step {op.step}"
    if op.split is not None:
        text += f", split {op.split}"
    return text
