"""``tapedelay info`` on a ``seq`` litmus file."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from ..sequence import VARIANTS, VERBS, Sequence, read
from ..shown import plural
from .common import print_json, printable, quoted, say_next

__all__ = ["sequence_info"]


def sequence_info(path: Path, variant: str, *, dump: bool, validate: bool, as_json: bool) -> int:
    """Show what a sequence holds.

    Parameters
    ----------
    path : Path
        The file.
    variant : str
        The variant that `dump` prints.
    dump : bool
        Print every command, one per line, with its number.
    validate : bool
        Say only whether it follows the notation.
    as_json : bool
        For programs.

    Raises
    ------
    LitmusError
        It does not follow the notation.
    """
    sequence = read(path)
    if dump:
        return _dump(sequence, variant, as_json=as_json)
    if validate:
        if as_json:
            print_json({"tape": sequence.name, "valid": True, "rules": 0, "violations": []})
        else:
            click.echo(printable(f"{sequence.name}: follows the notation of sequences"))
    elif as_json:
        print_json(_facts(sequence))
    else:
        for line in _screen(_facts(sequence)):
            click.echo(printable(line))
    say_next(f"tapedelay check {quoted(path)}", as_json=as_json)
    return 0


def _dump(sequence: Sequence, variant: str, *, as_json: bool) -> int:
    for at, command in enumerate(sequence.commands(variant), 1):
        if as_json:
            line = json.dumps({"at": at, "verb": command.verb, "args": list(command.args)})
        else:
            line = printable(f"{at} {command.text()}".rstrip())
        sys.stdout.write(line + "\n")
    return 0


def _facts(sequence: Sequence) -> dict[str, Any]:
    """Return counts and facts; every value is plain JSON."""
    drive = sequence.drive
    variants = VARIANTS if sequence.has_variants else VARIANTS[:1]
    return {
        "tape": sequence.name,
        "kind": "sequence",
        "notes": dict(sequence.notes),
        "variants": {v: _variant(sequence, v) for v in variants},
        "drive": None
        if drive is None
        else {
            "engine": drive.engine,
            "engine_version": drive.engine_version,
            "config": dict(drive.config),
            "pools": [
                {
                    "name": p.name,
                    "units": p.units,
                    "reserved": p.reserved,
                    "tokens_per_unit": p.tokens_per_unit,
                }
                for p in drive.pools
            ],
            "inputs": [i.text().removeprefix("> ") for i in drive.inputs],
        },
    }


def _variant(sequence: Sequence, variant: str) -> dict[str, Any]:
    commands = sequence.commands(variant)
    verbs = Counter(c.verb for c in commands)
    units = {u for c in commands if c.verb in ("alloc", "share", "free") for u in c.args[1:]}
    claims = sequence.stated(variant)
    return {
        "commands": len(commands),
        "verbs": {v: verbs[v] for v in VERBS if verbs[v]},
        "requests": len({c.args[0] for c in commands if c.verb == "arrive"}),
        "units": len(units),
        "states": None if claims is None else [c.text() for c in claims],
    }


def _screen(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['tape']}: a sequence of a request scheduler"]
    lines += [f"{key:10} {text}" for key, text in facts["notes"].items()]
    for variant, v in facts["variants"].items():
        head = variant if len(facts["variants"]) > 1 else "commands"
        verbs = ", ".join(f"{verb} {n:,}" for verb, n in v["verbs"].items())
        about = f"{plural(v['requests'], 'request')}, {plural(v['units'], 'unit')}"
        lines.append(
            f"{head:10} {plural(v['commands'], 'command')} about {about}" + (f": {verbs}" if verbs else "")
        )
        if v["states"] is not None:
            lines.append(f"{'states':10} {', '.join(v['states']) or 'clean'}")
    drive = facts["drive"]
    if drive is not None:
        version = "" if drive["engine_version"] is None else f" {drive['engine_version']}"
        lines.append(f"{'made by':10} {plural(len(drive['inputs']), 'input')} to {drive['engine']}{version}")
    return lines
