"""``tapedelay export``: a tape in another form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from .common import FILE, force_option, json_option, print_json, printable, quoted, say_next

if TYPE_CHECKING:
    from ..tape import Tape

__all__ = ["FORMATS", "export"]

FORMATS = ("litmus",)


def _slice(text: str | None) -> tuple[int, int] | None:
    """Return the range of op ids of ``--ops``; either side may be left out."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    digits = all(
        not part or (part.isdecimal() and part.isascii() and len(part) <= 18) for part in (first, last)
    )
    if not colon or not digits or not (first or last):
        raise UsageError(
            f"--ops {text}",
            expected="FIRST:LAST, FIRST: or :LAST, op ids, LAST not included",
            next_step="say --ops 100:200",
        )
    begin, end = int(first or 0), int(last or 1 << 62)
    if begin >= end:
        raise UsageError(
            f"--ops {text} holds no op: LAST is not included",
            expected="FIRST:LAST with FIRST below LAST",
            next_step=f"say --ops {min(begin, end)}:{max(begin, end) + 1}",
        )
    return begin, end


def _window(tape: Tape, begin: int, end: int) -> Tape:
    from ..window import window

    part = window(tape, begin, end)
    if not part.table("ops").num_rows:
        ids = tape.table("ops").column("op")
        has = f"op ids {ids[0]} to {ids[-1]}" if len(ids) else "it has no ops"
        raise UsageError(
            f"no op in {begin}:{end if end < 1 << 62 else ''}",
            expected=has,
            where=tape.where,
            next_step="choose another range; tapedelay info --dump shows the ops",
        )
    return part


@click.command()
@click.argument("tape", type=FILE)
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", type=FILE, help="Write to a file instead of the screen.")
@click.option(
    "--ops",
    metavar="FIRST:LAST",
    help="Only these op ids, LAST not included. `40:` is from 40 on, `:40` all before 40.",
)
@force_option
@json_option
def export(tape: Path, form: str, output: Path | None, ops: str | None, force: bool, as_json: bool) -> None:
    """Write TAPE in another form, such as a litmus file that people can read and edit."""
    from ..disk import check_output, write_text
    from ..litmus import print_litmus
    from ..load import load_tape

    part = _slice(ops)
    if output is not None:
        check_output(output, tape=tape, force=force)
    loaded = load_tape(tape)
    if part is not None:
        loaded = _window(loaded, *part)
    text = print_litmus(loaded)
    if output is not None:
        write_text(output, text)
    rows = loaded.table("ops").num_rows
    if as_json:
        print_json({"format": form, "ops": rows, **({"file": str(output)} if output else {"text": text})})
        return
    if output is None:
        click.echo(text, nl=False)
        return
    click.echo(printable(f"{output}: {rows} ops"))
    say_next(f"tapedelay check {quoted(output)}")
