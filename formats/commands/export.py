"""``tapedelay export``: a tape in another form."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from ..errors import InfrastructureError, UsageError
from .common import json_option, print_json, quoted, say_next

__all__ = ["FORMATS", "export"]

FORMATS = ("litmus",)
_NUMBER = re.compile(r"[0-9]{0,18}")


def _slice(text: str | None) -> tuple[int, int] | None:
    """Return the range of op ids of ``--ops``; either side may be left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    digits = all(
        not part or (part.isdecimal() and part.isascii() and len(part) <= 18) for part in (first, last)
    )
    begin, end = (int(first or 0), int(last or 1 << 62)) if digits else (1, 0)
    if not colon or begin >= end:
        raise UsageError(
            f"--ops {text}", expected="FIRST:LAST, op ids, LAST not included", next_step="say --ops 100:200"
        )
    return begin, end


@click.command()
@click.argument("tape", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to a file instead of the screen."
)
@click.option("--ops", metavar="FIRST:LAST", help="Only these op ids (LAST not included).")
@json_option
def export(tape: Path, form: str, output: Path | None, ops: str | None, as_json: bool) -> None:
    """Write TAPE in another form, such as a litmus file that people can read and edit."""
    from ..litmus import print_litmus
    from ..load import load_tape
    from ..window import window

    part = _slice(ops)
    loaded = load_tape(tape)
    if part is not None:
        loaded = window(loaded, *part)
    text = print_litmus(loaded)
    if output is not None:
        temporary = output.with_name(f"{output.name}.{os.getpid()}.part")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(output)
        except OSError as e:
            temporary.unlink(missing_ok=True)
            raise InfrastructureError(
                f"cannot write: {e.strerror}", where=output.name, next_step="choose another place with -o"
            ) from None
    rows = loaded.table("ops").num_rows
    if as_json:
        print_json({"format": form, "ops": rows, **({"file": str(output)} if output else {"text": text})})
        return
    if output is None:
        click.echo(text, nl=False)
        return
    click.echo(f"{output}: {rows} ops")
    say_next(f"tapedelay check {quoted(output)}")
