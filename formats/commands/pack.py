"""``tapedelay pack``: a tape as one file."""

from __future__ import annotations

from pathlib import Path

import click

from .common import FILE, force_option, json_option, print_json, printable, quoted, say_next

__all__ = ["pack"]


@click.command()
@click.argument("tape", type=FILE)
@click.option("-o", "--output", type=FILE, help="The file; by default TAPE with .zip added.")
@force_option
@json_option
def pack(tape: Path, output: Path | None, force: bool, as_json: bool) -> None:
    """Put the directory TAPE into one stored zip file, which opens alike."""
    from ..errors import UsageError
    from ..pack import pack_tape

    if tape.suffix == ".litmus" and tape.is_file():
        raise UsageError(
            "a litmus file is one file already",
            expected="a directory NAME.tape",
            where=str(tape),
            next_step=f"share it as it is; tapedelay check {quoted(tape)} judges it",
        )
    out = pack_tape(tape, output, force=force)
    size_bytes = out.stat().st_size
    if as_json:
        print_json({"tape": str(out), "bytes": size_bytes})
        return
    click.echo(printable(f"{out}: {size_bytes:,} bytes"))
    say_next(f"tapedelay info {quoted(out)}")
