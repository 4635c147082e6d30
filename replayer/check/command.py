"""``tapedelay check``: the verdict on a tape, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ...formats.commands.common import (
    FILE,
    force_option,
    json_option,
    print_json,
    printable,
    quoted,
    say_next,
)
from ...formats.commands.progress import LARGE, progress
from ...formats.disk import check_output
from ...formats.errors import UsageError
from ...formats.litmus import Verdict, split_variant
from ...formats.load import load_tape
from ...formats.sequence import is_sequence_file
from ...formats.sequence import read as read_sequence
from ...formats.shown import plural
from ...formats.tape import Tape
from .baseline import Baseline, read_baseline, write_baseline
from .findings import NO_OPS, Finding, Group, OpView, Report
from .hiding import hidden_text
from .judge import check_tape
from .roles import roles
from .sequences import headline, kinds_text, report_of
from .stated import compare

__all__ = ["Asked", "check", "render"]

_WORDS = {
    "race": "race",
    "lifetime": "lifetime fault",
    "deadlock": "deadlock",
    "possible": "possible",
    "unknown": "unknown",
}


@click.command()
@click.argument("tape", type=FILE)
@click.option(
    "--variant",
    type=click.Choice(["buggy", "fixed"]),
    help="Which variant of a litmus file (default: buggy).",
)
@click.option(
    "--baseline", type=FILE, metavar="FILE", help="Accepted findings: reported, but they do not count."
)
@click.option(
    "--write-baseline",
    "write",
    type=FILE,
    metavar="FILE",
    help="Write all findings as accepted, and exit 0.",
)
@force_option
@click.option("--all", "show_all", is_flag=True, help="Print every pair, not one example per kind.")
@click.option(
    "--expect",
    is_flag=True,
    help="Of a litmus file: exit 0 if it finds what the verdict lines state, else 1.",
)
@json_option
def check(
    tape: Path,
    variant: str | None,
    baseline: Path | None,
    write: Path | None,
    force: bool,
    show_all: bool,
    expect: bool,
    as_json: bool,
) -> int:
    """Name the races, lifetime faults and deadlocks of TAPE (a directory, a zip file or a litmus file), and
    the invariants that its request schedulers break.

    The verdict lines of a litmus file are compared with what is found. They change the exit code with
    --expect only.

    \b
    Exit codes: 0 clean (or all accepted), 1 found, 3 bad input,
    4 cannot judge (only unknowns are left, or not enough was recorded).
    """
    if expect and write is not None:
        raise UsageError("--expect and --write-baseline", expected="one of them", next_step="run it twice")
    if write is not None:
        check_output(write, tape=tape, force=force)
    asked = Asked(tape, variant, baseline, write, show_all)
    accepted = read_baseline(baseline) if baseline is not None else None
    file, named = split_variant(tape)
    if file.suffix == ".litmus" and is_sequence_file(file):
        asked, report, written = _of_sequence(asked, file, variant or named, accepted)
    else:
        asked, report, written = _of_tape(asked, accepted)
    if expect and report.stated is None:
        raise UsageError(
            "--expect without verdict lines",
            expected="a .litmus file that states what is to be found, such as `race: 2x5 WAR M0`",
            where=str(tape),
            next_step="leave the option out",
        )
    if as_json:
        print_json(report.as_dict())
    else:
        for line in render(report, show_all=show_all):
            click.echo(printable(line))
        if write is not None:
            click.echo(f"{plural(written, 'kind')} of findings accepted in {quoted(write)}", err=True)
        say_next(_next(asked, report))
    if write is not None:
        return 0
    if expect:
        return 0 if report.stated is not None and report.stated.hold else 1
    return report.exit_code


def _of_sequence(
    asked: Asked, file: Path, variant: str, accepted: Baseline | None
) -> tuple[Asked, Report, int]:
    """Return the report on a ``seq`` litmus file, and how many kinds of findings went into a baseline."""
    sequence = read_sequence(file)
    report = report_of(sequence, variant, accepted)
    drive = sequence.drive.engine if sequence.drive is not None else ""
    written = write_baseline(asked.write, report) if asked.write is not None else 0
    repaired = sequence.has_variants and variant != "fixed"
    return replace(asked, repaired=repaired, engine=drive), report, written


def _of_tape(asked: Asked, accepted: Baseline | None) -> tuple[Asked, Report, int]:
    """Return the report on a tape, and how many kinds of findings went into a baseline."""
    loaded, verdicts, repaired = _load(asked.tape, asked.variant)
    rows = max(loaded.rows("ops"), loaded.rows("inputs"))
    with progress(f"checking {loaded.name}", wanted=rows >= LARGE) as told:
        report = check_tape(loaded, accepted, progress=told)
    report.stated = compare(verdicts, report)
    written = 0
    if asked.write is not None:
        # A baseline holds also what stands behind other findings, or the next check would find that.
        written = write_baseline(asked.write, check_tape(loaded, Baseline(everything=True)))
    engine = "" if not report.schedulers else loaded.table("schedulers").column("engine")[0].as_py()
    return replace(asked, repaired=repaired, engine=engine), report, written


def _load(path: Path, variant: str | None) -> tuple[Tape, tuple[Verdict, ...], bool]:
    """Return the tape, what a litmus file states about it, and whether there is a repaired variant too."""
    if not path.suffix.startswith(".litmus"):
        if variant is not None:
            raise UsageError(
                f"--variant {variant} with {path.name}",
                expected="a .litmus file: only those have variants",
                next_step="leave the option out",
            )
        return load_tape(path), (), False
    from ...formats.litmus import read
    from ...formats.validate import require_valid

    file, named = split_variant(path)
    litmus = read(file)
    chosen = variant or named
    tape = litmus.tape(chosen)
    require_valid(tape)
    return tape, litmus.verdicts(chosen), litmus.has_variants and chosen != "fixed"


@dataclass(frozen=True)
class Asked:
    """The command line, as far as the next one depends on it."""

    tape: Path
    variant: str | None = None
    baseline: Path | None = None
    write: Path | None = None
    show_all: bool = False
    repaired: bool = False
    engine: str = ""


def _next(asked: Asked, report: Report) -> str:
    """Return the next useful command, ready to be pasted."""
    tape = quoted(asked.tape)
    litmus = asked.tape.suffix.startswith(".litmus")
    this = tape + (f" --variant {asked.variant}" if asked.variant else "")
    if asked.write is not None:
        return f"tapedelay check {this} --baseline {quoted(asked.write)}"
    if asked.baseline is not None:
        this += f" --baseline {quoted(asked.baseline)}"
    if report.schedulers and not report.groups:
        return _next_of_schedulers(asked, report, this)
    if report.exit_code == 0 and not litmus:
        return f"tapedelay replay {this} --delays 'seed=1 max=200us' --repeat {_repeat(report.ops_checked)}"
    if report.exit_code != 1:
        if not litmus and any(c.name == "device_compute" for c in report.conditions):
            return "tapedelay doctor -- COMMAND  # why nothing was recorded on a device"
        return f"tapedelay info {tape}"
    if not asked.show_all:
        return f"tapedelay replay {this} --search"
    if asked.repaired and asked.variant is None:
        return f"tapedelay check {this} --variant fixed"
    if litmus:
        return f"tapedelay info --dump {tape}"
    if asked.baseline is None:
        return f"tapedelay check {this} --write-baseline known.json"
    left = [g for g in report.groups if not g.example.accepted]
    ids = [op.op for op in left[0].example.ops]
    return f"tapedelay export {tape} --format litmus --ops {min(ids)}:{max(ids) + 1}"


def _next_of_schedulers(asked: Asked, report: Report, this: str) -> str:
    """Return the next useful command where only request schedulers have anything to say."""
    if asked.repaired and asked.variant is None and report.exit_code == 1:
        return f"tapedelay check {this} --variant fixed"
    if asked.engine and len(report.schedulers) > 1:  # the one that something was found in
        one = next((n for n, s in enumerate(report.schedulers) if s.found), 0)
        return f"tapedelay rerun {quoted(asked.tape)} --scheduler {one}"
    if asked.engine:
        return f"tapedelay rerun {quoted(asked.tape)} --engine {quoted(asked.engine)}"
    return f"tapedelay info {quoted(asked.tape)}"


def _repeat(ops: int) -> int:
    """Return how often a replay of so many ops takes seconds."""
    return 1_000 if ops <= 20_000 else 100 if ops <= 200_000 else 10


def render(report: Report, *, show_all: bool = False) -> list[str]:
    """Return the report as lines of text."""
    lines = [_headline(report)]
    accepted = [g for g in report.groups if g.example.accepted]
    for group in report.groups:
        if group.example.accepted and not show_all:
            continue
        lines += ["", *_group(group)]
        if show_all and group.count > 1:
            same = (group.example.verdict, group.example.signature)
            lines += [f"    {f.line()}" for f in report.findings if (f.verdict, f.signature) == same]
    if accepted and not show_all:
        lines += ["", "accepted by the baseline:"]
        lines += [f"  {g.example.fault}, {_times(g)}: {g.example.text}" for g in accepted]
    lines += kinds_text(report, show_all=show_all)
    conditions = [c for c in report.conditions if c.detail != NO_OPS]
    if conditions:
        lines += ["", "not exact, because:"]
        lines += [
            f"  {c.detail}" + ("" if not c.blocks else " (nothing is called clean)") for c in conditions
        ]
    if report.stale:
        unmatched = plural(len(report.stale), "entry", "entries")
        lines += ["", f"the baseline has {unmatched} that nothing matched" + (":" if show_all else "")]
        if show_all:
            lines += [f"  {s}" for s in report.stale]
    if report.stated is not None:
        lines += ["", report.stated.text()]
    return lines


def _headline(report: Report) -> str:
    if any(c.detail == NO_OPS for c in report.conditions):
        return f"{report.tape}: cannot judge: {NO_OPS}"
    parts = []
    for verdict, word in _WORDS.items():
        count = report.count(verdict, accepted=False)
        if count:
            parts.append(f"{count} {word}" if verdict in ("possible", "unknown") else plural(count, word))
    parts = parts or ["0 races"]
    accepted = sum(g.count for g in report.groups if g.example.accepted)
    if accepted:
        parts.append(f"{accepted} accepted")
    verdict = {"clean": "clean", "cannot judge": "cannot judge", "unknown": "cannot judge"}.get(
        report.verdict, ""
    )
    ops = (
        f"{', '.join(parts)}"
        f" in {report.ops_checked:,} {'op' if report.ops_checked == 1 else 'ops'} and"
        f" {report.accesses_checked:,} {'access' if report.accesses_checked == 1 else 'accesses'}"
    )
    said = [ops] if report.ops_checked or not report.schedulers else []
    said += [headline(report.schedulers)] if report.schedulers else []
    return f"{report.tape}: {verdict + ': ' if verdict else ''}{'; '.join(said)}"


def _times(group: Group) -> str:
    return "once" if group.count == 1 else f"{group.count} times"


def _group(group: Group) -> list[str]:
    f = group.example
    times = _times(group) + ("" if group.count == 1 else ", first:")
    head = _WORDS[f.verdict].upper()
    if f.kind == "deadlock":
        lines = [f"{head}  {times}"]
    else:
        lines = [f"{head}  {f.fault} on `{f.buffer}`{_bytes(f)}  {times}"]
    if f.accepted:
        lines[0] += "  (accepted by the baseline)"
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
    return lines + _hidden(group)


def _hidden(group: Group) -> list[str]:
    """Return what hides the findings of a group, and what shows them."""
    f = group.example
    lines = []
    rest = tuple(h for h in f.hidden_by if h not in group.hidden_by)
    if group.hidden_by:
        lines.append(f"  hidden by: {hidden_text(group.hidden_by)}")
    if rest:
        lines.append(f"  only the first of them hidden by: {hidden_text(rest)}")
    late, after = _late(f)
    what = f"{after} at its issue", "hide", " (from the answer, not from check)"
    lines += _delays(what, group.delays_hide, f.delay_hides, group.count)
    what = f"{late} on its queue", "show", ""
    return lines + _delays(what, group.delays_show, f.delay_shows, group.count)


def _delays(what: tuple[str, str, str], kind: Sequence[str], first: str, count: int) -> list[str]:
    """Return what delays do: those for all findings of a group, else the one for the first of them."""
    where, does, only = what
    if len(kind) > 1:
        return [f"  delays of the {where} {does} them{only}:", *(f"    `{line}`" for line in kind)]
    line = kind[0] if kind else first
    if not line:
        return []
    them = "it" if count == 1 else "them" if kind else "the first of them alone"
    return [f"  a delay of the {where} {does}s {them}{only}: `{line}`"]


def _late(f: Finding) -> tuple[str, str]:
    """Return which of the two has to come late for a finding to show, and which one after that."""
    late, after = roles(f, (0, 1))
    return ("first", "second")[late], ("first", "second")[after]


def _bytes(f: Finding) -> str:
    if f.begin is None or f.end is None:
        return ""
    if f.hull:
        return f" in several ranges within bytes {f.begin:,} to {f.end:,}"
    return f" bytes {f.begin:,} to {f.end:,} ({f.end - f.begin:,} bytes)"


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
