"""``tapedelay pack``: a tape as one file."""

from __future__ import annotations

from pathlib import Path

import click

from .common import json_option, print_json, quoted, say_next

__all__ = ["pack"]


@click.command()
@click.argument("tape", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; by default TAPE with .zip added."
)
@json_option
def pack(tape: Path, output: Path | None, as_json: bool) -> None:
    """Put the directory TAPE into one stored zip file, which opens alike."""
    from ..pack import pack_tape

    out = pack_tape(tape, output)
    size_bytes = out.stat().st_size
    if as_json:
        print_json({"tape": str(out), "bytes": size_bytes})
        return
    click.echo(f"{out}: {size_bytes:,} bytes")
    say_next(f"tapedelay info {quoted(out)}")
