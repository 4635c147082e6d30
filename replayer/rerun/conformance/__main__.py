"""``python -m tapedelay.replayer.rerun.conformance ENGINE``: measure an engine adapter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from ....formats.commands.common import json_option, print_json, printable, say, say_next
from ....formats.errors import MissingInput, TapedelayError, UsageError
from ....formats.errors import Unsupported as CannotRun
from ..protocol import Unsupported
from ..registry import driver
from . import Subject, cases, run_all


def _config(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingInput(str(error), where=path, next_step="give a file with one JSON object") from None
    except ValueError as error:
        raise UsageError(f"no JSON: {error}", expected="one JSON object", where=path) from None
    if not isinstance(found, dict):
        raise UsageError("no JSON object", expected="one JSON object", where=path)
    return found


@click.command("rerun-conformance")
@click.argument("engine")
@click.option("--config", metavar="FILE", help="JSON: a configuration with room for four long requests.")
@click.option(
    "--tight", metavar="FILE", help="JSON: a configuration in which two requests need a preemption."
)
@click.option("--prompt", default=12, show_default=True, help="Tokens of a short prompt.")
@click.option("--long", "long_", default=40, show_default=True, help="Tokens of a prompt that is chunked.")
@click.option("--shared", default=32, show_default=True, help="Tokens of a common prefix that can be found.")
@click.option("--session", multiple=True, metavar="FLAG", help="Flag of a request that takes further chunks.")
@click.option(
    "--blocked", multiple=True, metavar="FLAG", help="Flag of a request that is not schedulable yet."
)
@click.option("--only", default="*", metavar="GLOB", help="Only cases with such a name, such as 'states/*'.")
@click.option("--all", "every", is_flag=True, help="Print what passed as well.")
@click.option("--list", "listing", is_flag=True, help="Print the cases and what each promises; run nothing.")
@json_option
def main(
    engine: str,
    config: str | None,
    tight: str | None,
    prompt: int,
    long_: int,
    shared: int,
    session: tuple[str, ...],
    blocked: tuple[str, ...],
    only: str,
    every: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Measure ENGINE's adapter; to be run in the Python that has the engine."""
    if listing:
        for case in cases():
            click.echo(f"{case.name}: {case.promise}")
        return
    try:
        found = driver(engine)
        found.version()
    except Unsupported as error:
        raise CannotRun(
            str(error), where=engine, next_step="run it in the Python that has the engine"
        ) from None
    subject = Subject(
        found,
        _config(config),
        prompt_tokens=prompt,
        long_tokens=long_,
        shared_tokens=shared,
        tight=None if tight is None else _config(tight),
        session=session,
        blocked=blocked,
    )
    report = run_all(subject, only=only)
    if as_json:
        print_json(report.as_dict())
    else:
        click.echo("\n".join(printable(line) for line in report.text(every=every).split("\n")))
    failed = report.of("failed")
    kit = "python -m tapedelay.replayer.rerun.conformance"
    again = f"{kit} {engine} --only '{failed[0].case.name}'" if failed else ""
    say_next(again or f"tapedelay rerun TAPE --engine {engine}", as_json=as_json)
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    try:
        main(prog_name="python -m tapedelay.replayer.rerun.conformance")
    except TapedelayError as error:
        say(f"error: {error.text()}")
        sys.exit(error.exit_code)
