"""Small real commands that stand in for programs with an engine, and what they leave behind."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENTRY = "import sys; from tapedelay.formats.cli import main; main()"


def python(code: str) -> Sequence[str]:
    return ("--", sys.executable, "-c", code)


def copy_spool(spool: Path) -> str:
    """Return the code of a command that leaves these spool files behind, as an engine would."""
    return (
        f"import os, shutil, glob\nfor f in glob.glob({str(spool)!r} + '/*'): "
        "shutil.copy(f, os.environ['TAPEDELAY_SPOOL'])\n"
    )


def computing(e: Any, queue: int) -> Path:
    e.w.record("compute", queue=queue, d=e.w.set([(e.memory, 0, 8, "write", "x")]))
    folder: Path = e.w.write().parent
    return folder


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in ("plugin.so", "spool"))


def last_command(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the words of the last command that is suggested."""
    named = [n.strip() for n in done.stderr.splitlines() if n.strip().startswith("next: tapedelay ")]
    return shlex.split(named[-1].removeprefix("next: tapedelay "))
