"""``tapedelay export``: a tape in another form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...formats.commands.common import (
    FILE,
    force_option,
    json_option,
    print_json,
    printable,
    quoted,
    say,
    say_next,
)
from ...formats.commands.progress import LARGE, progress
from ...formats.commands.ranges import range_of
from ...formats.errors import UsageError
from ...formats.shown import plural

if TYPE_CHECKING:
    from ...formats.tape import Tape
    from ..check import Report

__all__ = ["FORMATS", "export"]

FORMATS = ("litmus", "perfetto", "html")

_MARKS_MAX = 100
"""Kinds of findings that a trace shows."""


@click.command()
@click.argument("tape", type=FILE)
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", type=FILE, help="Write to a file instead of the screen.")
@click.option(
    "--ops",
    metavar="FIRST:LAST",
    help="Only these op ids, LAST not included. `40:` is from 40 on, `:40` all before 40.",
)
@click.option("--steps", metavar="FIRST:LAST", help="Only these steps, LAST not included.")
@click.option(
    "--finding",
    type=click.IntRange(min=1),
    metavar="N",
    help="Which finding, counted as `check` prints them (html: default 1; perfetto: default all).",
)
@click.option(
    "--scheduler",
    type=click.IntRange(min=0),
    metavar="N",
    help="litmus: a request scheduler of the tape, not its ops.",
)
@force_option
@json_option
def export(
    tape: Path,
    form: str,
    output: Path | None,
    ops: str | None,
    steps: str | None,
    finding: int | None,
    scheduler: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write TAPE in another form.

    \b
    litmus    a small text that people can read and edit; of a request scheduler, a sequence
    perfetto  a timeline for the Perfetto UI; needs the package perfetto
    html      one page about a finding of `check`, for any browser
    """
    from ...formats.disk import check_output
    from ...formats.load import load_tape
    from ...formats.sequence import is_sequence_file
    from ..replay.preparing import cut

    asked = Asked(tape, form, output, finding, as_json, scheduler)
    parts = range_of("--ops", ops), range_of("--steps", steps)
    _usable(asked, parts)
    if output is not None:
        check_output(output, tape=tape, force=force)
    if form == "litmus" and tape.suffix == ".litmus" and is_sequence_file(tape):
        _sequence(asked, parts)
        return
    loaded = cut(load_tape(tape), *parts)
    {"litmus": _litmus, "perfetto": _perfetto, "html": _html}[form](loaded, asked)


@dataclass(frozen=True)
class Asked:
    """The command line, once it is known to make sense."""

    tape: Path
    form: str
    output: Path | None
    finding: int | None
    as_json: bool
    scheduler: int | None = None


def _usable(asked: Asked, parts: tuple[object, object]) -> None:
    if asked.scheduler is not None and (asked.form != "litmus" or parts != (None, None)):
        raise UsageError(
            f"--scheduler with {f'--format {asked.form}' if asked.form != 'litmus' else '--ops or --steps'}",
            expected="--format litmus and the whole recording",
            next_step="leave one of them out",
        )
    if asked.finding is not None and asked.form == "litmus":
        raise UsageError(
            "--finding with --format litmus",
            expected="it belongs to html and perfetto",
            next_step="cut out ops with --ops FIRST:LAST instead",
        )
    if asked.form == "perfetto":
        if asked.output is None:
            raise UsageError(
                "--format perfetto without a file",
                expected="a place for it: the format is binary",
                next_step="say -o trace.pftrace",
            )
        from ...formats.exporters.perfetto.packets import require_perfetto

        require_perfetto()


def _report(tape: Tape) -> Report:
    from ..check import check_tape

    with progress(f"checking {tape.name}", wanted=tape.rows("ops") >= LARGE) as told:
        return check_tape(tape, progress=told)


def _text(text: str, rows: int, asked: Asked, following: str, *, unit: str = "ops", **more: Any) -> None:
    """Hand out what is text: to the screen, into a file, or inside of JSON."""
    from ...formats.disk import write_text

    if asked.output is not None:
        write_text(asked.output, text)
    if asked.as_json:
        where = {"file": str(asked.output)} if asked.output is not None else {"text": text}
        print_json({"format": asked.form, unit: rows, **more, **where})
    elif asked.output is None:
        click.echo(text, nl=False)
    else:
        click.echo(printable(f"{asked.output}: {rows} {unit}"))
        say_next(following)


def _litmus(tape: Tape, asked: Asked) -> None:
    from ...formats.litmus import print_litmus
    from .sequences import numbers, sequence_of

    following = f"tapedelay check {quoted(asked.output or '')}"
    schedulers = numbers(tape)
    if asked.scheduler is not None or (schedulers and not tape.rows("ops")):
        _text(*sequence_of(tape, asked.scheduler), asked, following, unit="commands")
        return
    left: dict[str, Any] = {"schedulers": schedulers} if schedulers else {}
    text = print_litmus(tape)
    if schedulers and not asked.as_json:
        many = plural(len(schedulers), "request scheduler")
        say(f"only the ops: {many} left out, see --scheduler {schedulers[0]}")
    _text(text, tape.table("ops").num_rows, asked, following, **left)


def _sequence(asked: Asked, parts: tuple[object, object]) -> None:
    """Hand out a sequence in its printed form; all of it."""
    from ...formats.sequence import print_sequence, read

    if parts != (None, None) or asked.scheduler is not None:
        raise UsageError(
            "--ops, --steps or --scheduler with a sequence",
            expected="a tape of device ops",
            where=str(asked.tape),
            next_step="leave the option out",
        )
    following = f"tapedelay check {quoted(asked.output or '')}"
    sequence = read(asked.tape)
    _text(print_sequence(sequence), len(sequence.rows), asked, following, unit="commands")


def _perfetto(tape: Tape, asked: Asked) -> None:
    from ...formats.disk import binary_output
    from ...formats.exporters.perfetto import write_perfetto
    from ..columns import core_tape
    from .marks import marks_of

    assert asked.output is not None
    groups = [g for g in _report(tape).groups if not g.example.accepted]
    if asked.finding is not None:
        groups = [_choose(groups, asked.finding, tape)]
    marks = marks_of(tape, groups[:_MARKS_MAX])
    edges = core_tape(tape, times=False).edges()
    large = tape.rows("ops") >= LARGE
    with binary_output(asked.output) as file, progress(f"exporting {tape.name}", wanted=large) as told:
        written = write_perfetto(tape, file, marks=marks, edges=edges, progress=told)
    if asked.as_json:
        print_json({"format": asked.form, **written.as_dict(), "file": str(asked.output)})
        return
    parts = [f"{written.ops:,} ops", f"{written.flows:,} flows", f"{written.counters} counters"]
    shown = plural(len(marks), "finding")
    parts.append(f"{shown} of {len(groups)}" if len(marks) < len(groups) else shown)
    lines = [f"{asked.output}: {', '.join(parts)}"]
    if written.backward:
        lines.append(
            f"  {written.backward:,} edges point backwards in the recorded times: they are not shown"
        )
    if not written.recorded:
        lines.append("  the tape has no times: each op starts as soon as the edges allow")
    for line in lines:
        click.echo(printable(line), err=not asked.output.is_file())  # a pipe may be the standard output
    say_next(f"open {quoted(asked.output)} in the Perfetto UI")


def _html(tape: Tape, asked: Asked) -> None:
    from ...formats.exporters.page import finding_page
    from ..columns import core_tape
    from .marks import marks_of

    report = _report(tape)
    number = asked.finding or 1
    group = _choose(report.groups, number, tape)
    (mark,) = marks_of(tape, [group])
    page = finding_page(
        tape,
        mark,
        edges=core_tape(tape, times=False).edges(),
        conditions=[c.detail for c in report.conditions],
        commands=[f"tapedelay {words} {quoted(asked.tape.name)}" for words in ("check", "replay --search")],
    )
    following = f"open {quoted(asked.output or '')} in a browser"
    _text(page, tape.table("ops").num_rows, asked, following, finding=number, title=mark.title)


def _choose(groups: list[Any], number: int, tape: Tape) -> Any:
    if number <= len(groups):
        return groups[number - 1]
    count = len(groups)
    raise UsageError(
        f"finding {number}" if count else "no finding",
        expected=f"a number from 1 to {count}" if count else "a tape in which `check` finds something",
        where=tape.where,
        next_step="tapedelay check names them; --format perfetto shows a tape without any",
    )
