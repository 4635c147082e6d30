"""One recording: a private spool, an engine that writes it, a tape in the end.

What needs Arrow is imported when the engine has ended: the recorded process, or its parent, stays light.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..formats.commands.common import printable, say
from ..formats.errors import InfrastructureError, UsageError
from .asked import Asked
from .collecting import collect, collect_command, finish, keep, lost
from .companion import Companion
from .evidence import evidence_of
from .flight import Last, parse_last
from .hook import engine_hook
from .late_bar import late_bar
from .launch import environment, from_environment, run
from .outcome import Recording
from .patience import Patience
from .plugin import ggml_plugin
from .requests.spool import stop as stop_requests
from .target import refuse_tape, target

if TYPE_CHECKING:
    from ..formats.delays import Plan
    from .delays import AskedDelays

__all__ = ["Recording", "collect_command", "collect_spool", "record", "record_command"]


def record_command(
    command: Sequence[str],
    output: str | Path,
    asked: Asked,
    *,
    signals: Patience,
    force: bool = False,
    keep_spool: bool = False,
    companions: Sequence[Companion] = (),
) -> Recording:
    """Run a command and record it.

    What goes wrong after the command has started is a fault of the recording, and the spool is then kept.

    Parameters
    ----------
    command, output, asked, force, keep_spool
        As on the command line.
    signals : Patience
        Told when there is something to lose.
    companions : sequence of Companion
        What goes along while the command runs.

    Raises
    ------
    UsageError
        The output is there already, or the command cannot be run.
    InfrastructureError
        There is no plugin, or no place for the spool.
    """
    asked.check()
    asked = _with_environment(asked)
    result = Recording(target(output, asked, force), asked)
    plugin = ggml_plugin()
    with _spool(result, keep_spool) as spool:
        env = environment(os.environ, asked, spool=spool, plugin=plugin) | _delays(asked, spool)
        try:
            with ExitStack() as beside:
                for c in companions:
                    env |= beside.enter_context(c.along(result, spool))
                result.command_code = run(command, env)
                signals.collecting = True
            collect(result, spool, command, signals)
        except KeyboardInterrupt:
            if not signals.collecting:
                raise
            keep(result, spool)
            result.faults.append(
                lost(result, InfrastructureError("collecting was interrupted", next_step="collect it again"))
            )
    return result


def collect_spool(spool: str | Path, output: str | Path, asked: Asked, *, force: bool = False) -> Recording:
    """Collect a spool that was kept, or whose recorder died, and judge it by what is asked for.

    Raises
    ------
    InputError
        It is not there, damaged, or a tape.
    InfrastructureError
        The tape cannot be written.
    """
    from .spools import collect_all

    asked.check()
    result = Recording(target(output, asked, force), asked)
    spool = Path(spool)
    refuse_tape(spool)
    with late_bar("collecting the recording") as bar:
        tape = collect_all(spool, progress=bar)
        finish(result, tape, evidence_of(spool), judge_default=False, spool=spool, where=str(spool))
    return result


@contextmanager
def record(
    output: str | Path,
    *,
    devices: int | None = None,
    profile: str = "vulkan-like",
    sync: bool = False,
    force: bool = False,
    keep_spool: bool = False,
    delays: Plan | str | Sequence[Plan | str] = (),
    allow_unmatched: bool = False,
    write_plan: str | Path | None = None,
    last: str | int | None = None,
) -> Iterator[Recording]:
    """Record the engine that this process loads or has loaded.

    Import the engine inside, or before as long as it has not made a context yet: what exists already is not
    seen. A process can be recorded once.

    Parameters
    ----------
    output : str or Path
        The tape: a directory, or one file if it ends in ``.zip``.
    devices : int, optional
        Test devices; by default none where a real GPU backend is registered, else one.
    profile : str
        How test devices behave.
    sync : bool
        Every command is complete before its call returns.
    force : bool
        Replace a tape that is there.
    keep_spool : bool
        Leave the spool beside the tape.
    delays : Plan, str or sequence of them
        Delay plans, files that hold one, or expressions; see ``formats/DELAYS.md``.
    allow_unmatched : bool
        A line of the plan that delays no op is no error.
    write_plan : str or Path, optional
        Where to write the delays that were applied, as an exact plan.
    last : str or int, optional
        Flight recorder: keep only so many last records (``1_000_000``), or those of a last time (``"30s"``).

    Yields
    ------
    Recording
        Filled in at the end.

    Raises
    ------
    UsageError
        The output is there already, an option is wrong, this process has been recorded already, or a line of
        the plan delayed no op.
    PlanError, MissingInput
        A plan is none.
    CannotJudge
        No compute was recorded on the device asked for. The tape is written all the same.
    InfrastructureError
        The spool or the tape could not be written.

    Examples
    --------
    >>> with record("run.tape", devices=1):  # doctest: +SKIP
    ...     import xllamacpp
    ...     ...
    """
    asked = Asked(
        devices,
        profile,
        sync,
        in_python=True,
        delays=_asked_delays(delays, allow_unmatched=allow_unmatched, write_plan=write_plan, force=force),
    )
    asked.check()
    kept = Last() if last is None else parse_last(str(last), "last=")
    if os.path.isdir(os.environ.get("TAPEDELAY_SPOOL", "")):
        raise UsageError(
            "this process is already being recorded by `tapedelay record`",
            expected="one recording per process",
            next_step="leave `with record(...)` out, or run the program without `tapedelay record`",
        )
    asked = _with_environment(asked)
    result = Recording(target(Path(output).absolute(), asked, force), asked)
    plugin = ggml_plugin()
    if _loaded(plugin) is not None:
        raise UsageError(
            "this process has been recorded already",
            expected="one recording per process",
            next_step="run the second one in a process of its own, or use `tapedelay record`",
        )
    with (
        _spool(result, keep_spool) as spool,
        _environment(
            environment(os.environ, asked, spool=spool, plugin=plugin)
            | _delays(asked, spool)
            | kept.variables()
        ),
    ):
        engine_hook.install()
        result.living = spool
        try:
            yield result
        finally:
            engine_hook.uninstall()
            result.living = None
            _stop(plugin)
            stop_requests()
            # the program's own error is the one that counts; it is told where the recording lies
            error = sys.exception()
            try:
                collect(result, spool)
            except KeyboardInterrupt as interrupt:
                error = interrupt
                raise
            finally:
                if error is not None and result.spool is not None and not keep_spool:
                    error.add_note(
                        f"the raw recording is kept, collect it: {collect_command(result, result.spool)}"
                    )
    if result.faults:
        raise result.faults[0]


def _asked_delays(
    delays: Plan | str | Sequence[Plan | str],
    *,
    allow_unmatched: bool,
    write_plan: str | Path | None,
    force: bool,
) -> AskedDelays | None:
    if isinstance(delays, Sequence) and not delays and write_plan is None:
        return None
    from .delays import asked_delays

    given = list(delays) if isinstance(delays, Sequence) and not isinstance(delays, str) else [delays]
    return asked_delays(
        given, allow_unmatched=allow_unmatched, write_plan=write_plan, force=force, in_python=True
    )


def _with_environment(asked: Asked) -> Asked:
    asked, unused = from_environment(asked, os.environ)
    for text in unused:
        say(printable(f"tapedelay: {text}"))
    return asked


def _delays(asked: Asked, spool: Path) -> dict[str, str]:
    """Leave the plan for the plugin, if there is one; return the variables that name it."""
    if asked.delays is None or asked.delays.plan is None:
        return {}
    from .delays import leave_plan

    return leave_plan(asked.delays.plan, spool)


@contextmanager
def _spool(result: Recording, keep: bool) -> Iterator[Path]:
    """Make a private folder on the file system of the tape, and remove it in the end if nothing keeps it."""
    try:
        made = tempfile.mkdtemp(
            prefix=f".{result.output.name[:32]}.", suffix=".spool", dir=result.output.parent
        )
    except OSError as e:
        raise InfrastructureError(
            f"no spool can be written there: {e.strerror}",
            where=str(result.output.parent),
            next_step="choose a folder that can be written",
        ) from e
    spool = Path(made)
    try:
        yield spool.absolute()
        if keep:
            result.spool = spool
    finally:
        if result.spool is None:
            shutil.rmtree(spool, ignore_errors=True)


@contextmanager
def _environment(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(env)
    for name in before.keys() - env.keys():
        del os.environ[name]
    try:
        yield
    finally:
        for name in env:
            if name not in before:
                os.environ.pop(name, None)
        os.environ.update(before)


def _loaded(plugin: Path) -> ctypes.CDLL | None:
    """Return the plugin if this process has loaded it."""
    try:
        return ctypes.CDLL(str(plugin), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _stop(plugin: Path) -> None:
    """End the recording of this process, which goes on."""
    library = _loaded(plugin)
    if library is not None:
        library.tapedelay_stop()
