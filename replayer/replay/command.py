"""``tapedelay replay``: run a tape again, with delays; search for the delay that shows a finding."""

from __future__ import annotations

import re
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
    say,
    say_next,
)
from ...formats.commands.progress import progress
from ...formats.commands.ranges import range_of
from ...formats.delays import Plan, counting_plan, exact_plan, parse_time, plan_of, print_plan
from ...formats.disk import cannot_write, check_output, write_text
from ...formats.errors import UsageError
from ...formats.load import load_tape
from ...formats.shown import plural
from ...formats.tape import Tape
from ...formats.window import windows
from ...formats.write import write_tape
from ..backends.protocol import Options
from ..check import Baseline, read_baseline
from .api import replay
from .following import Asked, after_replay, after_search
from .preparing import plan_from
from .render import render_replay, render_search
from .result_tape import result_tape
from .results import Replay
from .search import Attempt, search

__all__ = ["replay_command"]

MAX_TIMEOUT_S = 1_000_000

_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


@click.command("replay")
@click.argument("tape", type=FILE)
@click.option("--backend", default="virtual", metavar="NAME", help="virtual (default), threads, opencl, ...")
@click.option(
    "--delays",
    multiple=True,
    metavar="FILE|EXPR",
    help="A plan file, or a delay: 'first copy of X on TAPE0 +3ms', 'seed=7 max=200us'. Repeatable.",
)
@click.option("--pin", is_flag=True, help="Enforce the order that the delays give in virtual time.")
@click.option("--ops", metavar="FIRST:LAST", help="Only these op ids, LAST not included.")
@click.option("--steps", metavar="FIRST:LAST", help="Only these steps, LAST not included.")
@click.option("--repeat", type=int, default=1, metavar="N", help="Run N times; seeds count up.")
@click.option("--search", "searching", is_flag=True, help="Find the delay that shows each finding of check.")
@click.option("--all", "every", is_flag=True, help="With --search: every pair, not one of each kind.")
@click.option("--write-plans", type=FILE, metavar="DIR", help="With --search: write each plan into DIR.")
@click.option(
    "--margin",
    metavar="TIME",
    help="With --search: what a delay adds to the least that does it [default: 1us]; 5ms hold in an engine.",
)
@click.option("--write-plan", type=FILE, metavar="FILE", help="Write the delays of the run, one op a line.")
@click.option("--out", type=FILE, metavar="TAPE", help="Write the run as a tape, with its own times.")
@click.option(
    "--time-scale", type=float, default=1.0, metavar="X", help="Factor on recorded times (threads, opencl)."
)
@click.option("--compact", is_flag=True, help="Scale real memory down (threads, opencl); overlaps stay.")
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help=f"Give up when no op ends for so long (threads, opencl; {Options.timeout_s:g}).",
)
@click.option("--variant", type=click.Choice(["buggy", "fixed"]), help="Which variant of a litmus file.")
@click.option("--baseline", type=FILE, metavar="FILE", help="Accepted findings: they do not count.")
@force_option
@json_option
def replay_command(
    tape: Path,
    backend: str,
    delays: tuple[str, ...],
    pin: bool,
    ops: str | None,
    steps: str | None,
    repeat: int,
    searching: bool,
    every: bool,
    write_plans: Path | None,
    margin: str | None,
    write_plan: Path | None,
    out: Path | None,
    time_scale: float,
    compact: bool,
    timeout: float | None,
    variant: str | None,
    baseline: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Run TAPE again and compare what every read saw with the reference order.

    Delays shift ops; a plan file or an expression says which (formats/DELAYS.md). With --search, check's
    findings are shown one by one, each by the one delay that turns its two ops around.

    \b
    Exit codes: 0 clean, 1 found, 2 usage (no delay matched any op), 3 bad input,
    4 cannot judge (only unknowns, or not enough was recorded), 5 the backend failed.
    """
    asked = Asked(
        tape, backend, delays, pin, ops, steps, repeat, variant, baseline, time_scale, compact, timeout,
        every, margin,
    )  # fmt: skip
    if searching:
        _refuse("--search", {"--delays": delays, "--pin": pin, "--repeat": repeat != 1, "--out": out})
    else:
        _refuse(
            "a replay without --search", {"--all": every, "--write-plans": write_plans, "--margin": margin}
        )
        if write_plan is not None and not delays:
            raise UsageError(
                "--write-plan without delays",
                expected="delays: what a run had is written out",
                next_step="add --delays, or --search to find one",
            )
    if not 0 <= time_scale <= 1e6:
        raise UsageError(
            f"--time-scale {time_scale}",
            expected="a number from 0 to 1,000,000",
            next_step="say --time-scale 1, or leave it out",
        )
    for file in (write_plan, out):
        if file is not None:
            check_output(file, tape=tape, force=force) if file is write_plan else _check_tape(
                file, tape, force
            )
    accepted = read_baseline(baseline) if baseline is not None else None
    plan = plan_from([plan_of(d) for d in delays]) if delays else Plan()
    loaded = _load(tape, variant)
    options = _options(asked)
    if searching:
        outputs = Outputs(write_plans, write_plan, force, as_json)
        return _search(asked, loaded, options, accepted, outputs)
    with progress(f"replaying {loaded.name}", wanted=repeat > 1) as told:
        result = replay(
            loaded,
            backend=backend,
            delays=plan,
            pin=pin,
            ops=range_of("--ops", ops),
            steps=range_of("--steps", steps),
            repeat=repeat,
            baseline=accepted,
            options=options,
            progress=told,
        )
    if write_plan is not None:
        write_text(write_plan, print_plan(_written_out(result, loaded, write_plan)))
    if out is not None:
        write_tape(result_tape(result.source, result.outcome, note=_note(result)), out)
    if as_json:
        print_json(result.as_dict())
    else:
        for line in render_replay(result):
            click.echo(printable(line))
        for m in result.matched:
            if not m.count:
                say(printable(f"warning: {_line_name(result.plan, m.line)} matched no op: {m.text}"))
        say_next(after_replay(asked, result, out))
    return result.exit_code


def _search(
    asked: Asked,
    tape: Tape,
    options: Options,
    baseline: Baseline | None,
    to: Outputs,
) -> int:
    with progress(f"searching {tape.name}", wanted=True) as told:
        result = search(
            tape,
            backend=asked.backend,
            ops=range_of("--ops", asked.ops),
            steps=range_of("--steps", asked.steps),
            every=asked.every,
            baseline=baseline,
            options=options,
            margin_ns=None if asked.margin is None else parse_time(asked.margin, "--margin"),
            progress=told,
        )
    found = [a for a in result.of("confirmed") + result.of("unknown") if a.expression]
    written = _write_plans(to.plans, found, tape, to.force) if to.plans is not None else []
    if to.plan is not None and found:
        write_text(to.plan, print_plan(_found(found[0], tape)))
    elif to.plan is not None:
        say(f"no delay was found: {quoted(to.plan)} is not written")
    if to.as_json:
        print_json({**result.as_dict(), "plans": [str(p) for p in written]})
    else:
        for line in render_search(result):
            click.echo(printable(line))
        if to.plans is not None:
            say(f"{plural(len(written), 'plan')} in {quoted(to.plans)}")
        plans = written or ([to.plan] if found and to.plan is not None else [])
        say_next(after_search(asked, result, plans, tape))
    return result.exit_code


@dataclass(frozen=True)
class Outputs:
    """Where a search puts what it found."""

    plans: Path | None
    plan: Path | None
    force: bool
    as_json: bool


def _options(asked: Asked) -> Options:
    """Return how to run, as far as the command line says."""
    timeout = Options.timeout_s if asked.timeout is None else asked.timeout
    if not 0 < timeout <= MAX_TIMEOUT_S:
        raise UsageError(
            f"--timeout {timeout:g}",
            expected=f"seconds, more than 0 and at most {MAX_TIMEOUT_S:,}",
            next_step=f"say --timeout {Options.timeout_s:g}",
        )
    for name, given in (
        ("--time-scale", asked.time_scale != 1),
        ("--compact", asked.compact),
        ("--timeout", asked.timeout is not None),
    ):
        if given and asked.backend == "virtual":
            raise UsageError(
                f"{name} on the virtual backend",
                expected="a backend in real time: virtual time needs neither memory nor patience",
                next_step="leave it out, or choose --backend threads",
            )
    return Options(time_scale=asked.time_scale, compact=asked.compact, timeout_s=timeout)


def _refuse(what: str, others: dict[str, object]) -> None:
    for name, given in others.items():
        if given:
            raise UsageError(f"{what} and {name}", expected="one of them", next_step="run it twice")


def _check_tape(out: Path, tape: Path, force: bool) -> None:
    """Refuse to replace anything but a tape, and that only with ``--force``."""
    if not out.is_dir():
        check_output(out, tape=tape, force=force)
    elif not force:
        raise UsageError(
            "a directory is there",
            expected="a new name",
            where=str(out),
            next_step="choose another name, or replace a tape with --force",
        )
    elif out.resolve() == tape.resolve() or tape.resolve() in out.resolve().parents:
        raise UsageError(
            "that is the tape itself",
            expected="another place",
            where=str(out),
            next_step="choose another name",
        )


def _load(path: Path, variant: str | None) -> Tape:
    if variant is None or path.suffix.startswith(".litmus"):
        if variant is None:
            return load_tape(path)
        from ...formats.litmus import split_variant

        return load_tape(f"{split_variant(path)[0]}:{variant}")
    raise UsageError(
        f"--variant {variant} with {path.name}",
        expected="a .litmus file: only those have variants",
        next_step="leave the option out",
    )


def _written_out(result: Replay, tape: Tape, file: Path) -> Plan:
    """Return the delays of the run as an exact plan; of too many, the lines that gave them."""
    notes = tuple(m.text for m in result.matched[:20])
    try:
        exact = exact_plan(result.delays, result.op_ids, (f"on {result.tape}:", *notes))
    except ValueError as error:
        say(f"{error}; {quoted(file)} has the lines that gave them, which give the same again on this tape")
        return replace(result.plan, notes=(f"on {result.tape}",))
    plan, by_id = counting_plan(exact, tape)
    if by_id:
        say(f"{quoted(file)}: {plural(by_id, 'line')} of {len(plan.lines):,} for `replay` alone, see there")
    return plan


def _note(result: Replay) -> str:
    count = len(result.plan.lines)
    how = f"{plural(count, 'delay')}" if count else "no delays"
    return f"replayed on {result.backend} with {how}{', pinned' * result.pinned}"


def _line_name(plan: Plan, line: int) -> str:
    return f"{plan.name}:{line}"


def _found(attempt: Attempt, tape: Tape) -> Plan:
    """Return the plan of an attempt, with what keeps an engine from following it."""
    plan = attempt.plan
    assert plan is not None
    if any(isinstance(n.anchor, int) for n in plan.lines):
        return replace(plan, notes=(*plan.notes, "an op id is of this tape alone: `record` cannot take it"))
    if windows(tape.manifest):
        return replace(plan, notes=(*plan.notes, "counted in a window: in a whole run it means another op"))
    return plan


def _write_plans(folder: Path, attempts: list[Attempt], tape: Tape, force: bool) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise cannot_write(folder, e) from None
    files = []
    for at, attempt in enumerate(attempts, 1):
        what = _PLAIN.sub("-", f"{attempt.finding.fault}-{attempt.finding.buffer}").strip("-")[:60]
        path = folder / f"{at:03}-{what}.delays"
        check_output(path, force=force)
        write_text(path, print_plan(_found(attempt, tape)))
        files.append(path)
    return files
