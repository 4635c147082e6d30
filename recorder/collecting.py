"""From a spool to a tape on the disk, and to what is wrong with it.

What needs Arrow is imported here only when something is collected.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..formats.errors import InfrastructureError, SpoolError, TapedelayError
from ..formats.shown import quoted
from .evidence import Evidence, evidence_of
from .late_bar import late_bar
from .outcome import Recording, faults_of, nothing_recorded
from .patience import Patience
from .spools import any_recorded

if TYPE_CHECKING:
    from ..formats.tape import Tape

__all__ = ["collect", "collect_command", "finish", "keep", "lost"]


def collect_command(result: Recording, spool: Path) -> str:
    """Return the command that collects a kept spool."""
    words = ["tapedelay", "record"]
    if os.path.lexists(result.output):
        words.append("--force")
    if result.asked.devices is not None:
        words += ["--devices", str(result.asked.devices)]
    words += ["-o", str(result.output), "--from-spool", str(spool)]
    return " ".join(map(quoted, words))


def collect(
    result: Recording, spool: Path, command: Sequence[str] = (), signals: Patience | None = None
) -> None:
    """Write the tape and judge the recording; faults are noted, not raised, and keep the spool.

    Raises
    ------
    KeyboardInterrupt
        The spool is kept then, too.
    """
    kept = keep(result, spool)  # whatever happens from here on, nothing that was recorded is thrown away
    try:
        from .spools import collect_all

        evidence = evidence_of(spool, command)
        if not spool.is_dir():
            result.faults.append(
                InfrastructureError(
                    "the raw recording was removed while the command ran",
                    expected="a folder that stays until the command has ended",
                    where=str(kept),
                    next_step="see what removes it, or record into another folder",
                )
            )
        elif result.spool is None:
            result.faults.append(nothing_recorded(result, evidence))
        else:
            with late_bar("collecting the recording") as bar:
                tape = collect_all(spool, progress=bar)
                finish(result, tape, evidence, judge_default=True, spool=spool, where=str(kept))
            result.spool = None
    except Exception as e:
        result.faults.append(lost(result, e))
        if os.environ.get("TAPEDELAY_DEBUG"):
            raise
    if signals is not None:
        signals.done = True


def keep(result: Recording, spool: Path) -> Path:
    """Let the spool stay if any process has written into it, and return its path for messages."""
    path = result.output.parent / spool.name
    result.spool = path if any_recorded(spool) else None
    return path


def lost(result: Recording, error: Exception) -> InfrastructureError:
    """Return the fault of a recording that could not become a tape, and name the command that tries again."""
    if isinstance(error, TapedelayError):
        ours = error
    else:
        ours = TapedelayError(
            f"{type(error).__name__}: {error}", expected="a recording that can be collected"
        )
    spool = result.spool
    if spool is None:
        step = "record again"
    elif isinstance(error, SpoolError):
        step = f"please report it with the raw recording, {spool}"
    else:
        step = collect_command(result, spool)
    return InfrastructureError(
        f"the recording is not collected: {ours.found}",
        expected=ours.expected,
        where=ours.where,
        next_step=step,
    )


def finish(
    result: Recording, tape: Tape, evidence: Evidence, *, judge_default: bool, spool: Path, where: str
) -> None:
    """Write the tape if anything was recorded, and note what keeps it from being what was asked for.

    Raises
    ------
    SpoolError
        The tape would break the specification. It is not written.
    """
    from ..formats.validate import validate
    from ..formats.write import write_tape
    from .engines.ggml.tapped import UNTAPPED

    ops = tape.table("ops")
    result.schedulers = dict(Counter(tape.table("schedulers").column("engine").to_pylist()))
    result.inputs = tape.rows("inputs")
    devices = tape.table("devices").to_pylist()
    device_of = tape.table("queues").column("device").to_pylist()
    result.ops = ops.num_rows
    result.queues = tape.table("queues").num_rows
    result.complete, result.lost = tape.manifest.complete, tape.manifest.lost
    result.dropped = tape.manifest.dropped
    result.untapped = next((n for n in tape.manifest.notes if n.startswith(UNTAPPED)), "")
    kinds, queues = ops.column("kind").to_pylist(), ops.column("queue").to_pylist()
    for kind, queue in zip(kinds, queues, strict=True):
        if kind == "compute":
            name = devices[device_of[queue]]["name"]
            result.computes[name] = result.computes.get(name, 0) + 1
    if result.ops or result.inputs:
        broken = validate(tape)
        if broken:
            raise SpoolError(
                f"it gives a tape that breaks {len(broken)} rule{'s' * (len(broken) > 1)}, the first: "
                f"{broken[0].text()}",
                expected="a recording that makes a valid tape",
                where=where,
                next_step="record again; if it is as the recorder wrote it, please report it",
            )
        write_tape(tape, result.output)
        result.written = True
    result.faults += faults_of(result, tape, evidence, judge_default=judge_default)
    settle_delays(result, tape, spool)


def settle_delays(result: Recording, tape: Tape, spool: Path) -> None:
    """Note what came of the lines of a plan, and write out what was applied if that is asked for."""
    from .delays.applied import settle

    result.delays, faults = settle(spool, tape, result.asked.delays)
    result.faults += faults
