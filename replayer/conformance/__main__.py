"""``python -m tapedelay.replayer.conformance BACKEND``: measure a backend."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...formats.commands.common import json_option, print_json, printable, say, say_next
from ...formats.errors import TapedelayError
from ..backends.registry import find_backend
from . import Report, Result, cases, core_cases, run_all


@click.command("conformance")
@click.argument("backend")
@click.option(
    "--only", default="*", metavar="GLOB", help="Only cases with such a name, for example 'edges/*'."
)
@click.option(
    "--patterns",
    type=click.Choice(["none", "some", "all"]),
    default="some",
    help="Which patterns to run beside the core cases.",
)
@click.option("--all", "every", is_flag=True, help="Print what passed as well.")
@click.option("--list", "listing", is_flag=True, help="Print the cases and what each promises; run nothing.")
@json_option
def main(backend: str, only: str, patterns: str, every: bool, listing: bool, as_json: bool) -> None:
    """Measure BACKEND (virtual, threads, opencl, or one that another package brings)."""
    chosen = core_cases() if patterns == "none" else cases(full=patterns == "all")
    if listing:
        for case in chosen:
            click.echo(f"{case.name}: {case.promise}")
        return
    found = find_backend(backend)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(backend), total=None)

        def show(result: Result) -> None:
            bar.update(task, description=printable(result.case.name))

        report: Report = run_all(found, chosen, only=only, progress=show)
    if as_json:
        print_json(report.as_dict())
    else:
        click.echo(_lines(report.text(every=every)))
    failed = report.of("failed")
    kit = "python -m tapedelay.replayer.conformance"
    again = f"{kit} {backend} --only '{failed[0].case.name}'" if failed else ""
    say_next(again or f"tapedelay replay TAPE --backend {backend}", as_json=as_json)
    sys.exit(0 if report.passed else 1)


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


if __name__ == "__main__":
    try:
        main(prog_name="python -m tapedelay.replayer.conformance")
    except TapedelayError as error:
        say(f"error: {error.text()}")
        sys.exit(error.exit_code)
