"""``tapedelay info``: what a tape holds; every row as text; whether it keeps the specification."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..shown import plural
from .common import FILE, json_option, print_json, printable, quoted, say, say_next

if TYPE_CHECKING:
    from ..tape import Tape

__all__ = ["info"]

_LIST_MAX = 12
_COUNTERS_MAX = 24


@click.command()
@click.argument("tape", type=FILE)
@click.option("--dump", is_flag=True, help="Print every row of every table, one per line.")
@click.option("--no-times", is_flag=True, help="With --dump: leave out times, so that two runs compare.")
@click.option("--validate", "validate_", is_flag=True, help="Check every invariant of the specification.")
@json_option
def info(tape: Path, dump: bool, no_times: bool, validate_: bool, as_json: bool) -> int:
    """Show what TAPE holds, in one screen. TAPE is a directory, a zip file or a litmus file."""
    if dump and validate_:
        raise UsageError("--dump and --validate", expected="one of them", next_step="run the command twice")
    if no_times and not dump:
        raise UsageError("--no-times without --dump", next_step="add --dump")
    if tape.suffix.startswith(".litmus"):
        from ..litmus import split_variant
        from ..sequence import is_sequence_file

        file, variant = split_variant(tape)
        if is_sequence_file(file):
            from .sequence_info import sequence_info

            return sequence_info(file, variant, dump=dump, validate=validate_, as_json=as_json)
    from ..load import load_tape

    loaded = load_tape(tape, validate=False)
    if dump:
        return _dump(loaded, times=not no_times, as_json=as_json)
    if validate_:
        return _validate(loaded, tape, as_json=as_json)
    from ..summary import summarise

    facts = summarise(loaded)
    if as_json:
        print_json(facts)
    else:
        for line in _screen(facts):
            click.echo(printable(line))
        say_next(f"tapedelay check {quoted(tape)}")
    return 0


def _dump(tape: Tape, *, times: bool, as_json: bool) -> int:
    import json

    from ..dump import dump_lines, dump_rows

    out = sys.stdout  # not echo: that flushes every line
    if as_json:  # one object per line: a tape may be larger than memory
        for table, row, values in dump_rows(tape, times=times):
            plain = {k: v.hex() if isinstance(v, bytes) else v for k, v in values.items()}
            out.write(json.dumps({"table": table, "row": row, "values": plain}) + "\n")
    else:
        for line in dump_lines(tape, times=times):
            out.write(line + "\n")
    return 0


def _validate(tape: Tape, path: Path, *, as_json: bool) -> int:
    from ..errors import InvalidTape
    from ..validate import RULES, validate

    violations = validate(tape)
    if as_json:
        print_json(
            {
                "tape": tape.name,
                "valid": not violations,
                "rules": len(RULES),
                "violations": [
                    {"code": v.code, "table": v.table, "row": v.row, "message": v.message} for v in violations
                ],
            }
        )
    elif violations:
        for v in violations:
            click.echo(printable(v.text()))
        say(printable(f"{tape.name}: {len(violations)} violations of the specification"))
    else:
        click.echo(printable(f"{tape.name}: valid, {len(RULES)} rules hold"))
        say_next(f"tapedelay check {quoted(path)}")
    return InvalidTape.exit_code if violations else 0


def _screen(f: dict[str, Any]) -> list[str]:
    facts = {k: v for k, v in f["engine"].items() if isinstance(v, str | int) and v != ""}
    name, build = facts.pop("name", "not known"), facts.pop("build", None)
    engine = str(name) + ("" if build is None else f" build {build}")
    engine += "".join(f", {k} {v}" for k, v in sorted(facts.items()))
    state = "complete" if f["complete"] else "NOT complete"
    if f["windows"]:
        state += ", a window"
    if f["dropped"]:
        state += f" at the end of a longer run ({f['dropped']:,} older records dropped)"
    lines = [
        f"{f['tape']}: {state}, {f['lost']:,} records lost, format {f['format_write']}"
        + (", read-only" if f["read_only"] else ""),
        f"engine     {engine}",
    ]
    if f["switches"]:
        lines.append("switches   " + ", ".join(f"{k} {v}" for k, v in sorted(f["switches"].items())))
    span = "not seen" if f["span_ns"] is None else _span(f["span_ns"])
    steps = "" if f["steps"] is None else f", {f['steps']:,} steps"
    lines.append(f"span       {span}{steps}, {f['processes']} process{'es' if f['processes'] > 1 else ''}")
    for head, rows in (("devices", f["devices"]), ("queues", f["queues"])):
        shown = [r for r in rows if head == "devices" or r["ops"]]
        said = _first(shown, _device if head == "devices" else _queue)
        if len(shown) < len(rows):
            said.append(f"{len(rows) - len(shown)} without ops")
        lines += _block(head, said)
    device = f["ops"] > 0 or not f["schedulers"]
    if device:
        kinds = ", ".join(f"{k} {n:,}" for k, n in f["ops_by_kind"].items())
        lines.append(f"ops        {f['ops']:,}" + (f": {kinds}" if kinds else ""))
    others = ", ".join(
        f"{t} {n:,}"
        for t, n in f["tables"].items()
        if n and t not in ("ops", "devices", "queues", "accesses")
    )
    if device:
        rows = f["tables"].get("accesses", 0)
        lines.append(f"sets       {f['access_sets']:,} access sets of {rows:,} rows")
    lines.append(f"tables     {others or 'nothing else'}")
    lines += _block("requests", _first(f["schedulers"], _scheduler, more=" schedulers"))
    lines += _block("telemetry", _first(f["telemetry"], _counter, _COUNTERS_MAX, " counters"))
    lines += _block("delays", _first(f["delays"], _delay, more=" lines"))
    if device:
        waits, unknown = f["unresolved"], f["unknown_accesses"]
        lines.append(f"unknown    {waits:,} unresolved waits, {unknown:,} ops with unknown accesses")
    lines += [f"note       {n}" for n in f["notes"]]
    return lines


def _first(
    rows: Sequence[dict[str, Any]],
    say_row: Callable[[dict[str, Any]], str],
    limit: int = _LIST_MAX,
    more: str = "",
) -> list[str]:
    """Return the first rows in words, and how many more there are."""
    said = [say_row(r) for r in rows[:limit]]
    return said + [f"and {len(rows) - limit:,} more{more}"] * (len(rows) > limit)


def _block(head: str, said: Sequence[str]) -> list[str]:
    return [f"{head if i == 0 else '':11}{text}" for i, text in enumerate(said)]


def _delay(d: dict[str, Any]) -> str:
    return f"{d['text']} (applied {plural(d['count'], 'time')})"


def _scheduler(s: dict[str, Any]) -> str:
    name = " ".join(filter(None, (s["engine"], s["engine_version"])))
    kinds = ", ".join(f"{k} {n:,}" for k, n in s["inputs_by_kind"].items())
    pools = ", ".join(_pool(p) for p in s["pools"]) or "none"
    counts = ", ".join(plural(s[words], words[:-1]) for words in ("requests", "steps", "inputs"))
    return f"scheduler {s['scheduler']}, {name}: {counts} ({kinds}); pools: {pools}"


def _pool(p: dict[str, Any]) -> str:
    per = "" if p["tokens_per_unit"] is None else f" of {plural(p['tokens_per_unit'], 'token')}"
    kept = f" ({p['reserved']:,} reserved)" if p["reserved"] else ""
    return f"{p['name']} {plural(p['units'], 'unit')}{per}{kept}"


def _device(d: dict[str, Any]) -> str:
    return f"{d['device']} {d['name']} ({d['kind']}, profile {d['profile']})"


def _queue(q: dict[str, Any]) -> str:
    gaps = [f"{k} {v}" for k, v in q["coverage"].items() if v != "full"]
    seen = ", ".join(gaps) if gaps else "all seen"
    return f"{q['queue']} {q['name']} ({q['kind']} of device {q['device']}): {q['ops']:,} ops; {seen}"


def _counter(c: dict[str, Any]) -> str:
    name = c["metric"] if c["name"] is None else f"{c['name']} {c['metric']}"
    if c["min"] is None:
        return f"{name}: no value in {c['samples']:,} samples"
    low, middle, high = (f"{c[k]:,.10g}" for k in ("min", "median", "max"))
    return f"{name}: {low} / {middle} / {high} {c['unit']} (min / median / max of {c['samples']:,})"


def _span(ns: int) -> str:
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size:
            return f"{ns / size:.3f} {unit}"
    return f"{ns} ns"
