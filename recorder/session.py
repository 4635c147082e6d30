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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..formats.container import open_container
from ..formats.errors import InfrastructureError, InputError, SpoolError, TapedelayError, UsageError
from ..formats.shown import quoted
from .hook import engine_hook
from .launch import Asked, environment, run
from .outcome import Evidence, Recording, faults_of, nothing_recorded
from .patience import Patience
from .plugin import ggml_plugin

if TYPE_CHECKING:
    from ..formats.tape import Tape

__all__ = ["Recording", "collect_command", "collect_spool", "record", "record_command"]


def record_command(
    command: Sequence[str],
    output: str | Path,
    asked: Asked,
    *,
    signals: Patience,
    force: bool = False,
    keep_spool: bool = False,
) -> Recording:
    """Run a command and record it.

    What goes wrong after the command has started is a fault of the recording, and the spool is then kept.

    Parameters
    ----------
    command, output, asked, force, keep_spool
        As on the command line.
    signals : Patience
        Told when there is something to lose.

    Raises
    ------
    UsageError
        The output is there already, or the command cannot be run.
    InfrastructureError
        There is no plugin, or no place for the spool.
    """
    asked.check()
    result = Recording(_target(output, asked, force), asked)
    plugin = ggml_plugin()
    with _spool(result, keep_spool) as spool:
        result.command_code = run(command, environment(os.environ, asked, spool=spool, plugin=plugin))
        signals.collecting = True
        try:
            _collect(result, spool, command, signals)
        except KeyboardInterrupt:
            result.faults.append(
                _lost(result, InfrastructureError("collecting was interrupted", next_step="collect it again"))
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
    from .engines.ggml.collect import collect_directory, hook_reports

    asked.check()
    result = Recording(_target(output, asked, force), asked)
    spool = Path(spool)
    _refuse_tape(spool)
    evidence = Evidence(hooks=hook_reports(spool), python=(spool / engine_hook.STARTED).exists())
    _finish(result, collect_directory(spool), evidence, judge_default=False, where=str(spool))
    return result


def collect_command(result: Recording, spool: Path) -> str:
    """Return the command that collects a kept spool."""
    words = ["tapedelay", "record"]
    if os.path.lexists(result.output):
        words.append("--force")
    if result.asked.devices is not None:
        words += ["--devices", str(result.asked.devices)]
    words += ["-o", str(result.output), "--from-spool", str(spool)]
    return " ".join(map(quoted, words))


@contextmanager
def record(
    output: str | Path,
    *,
    devices: int | None = None,
    profile: str = "vulkan-like",
    sync: bool = False,
    force: bool = False,
    keep_spool: bool = False,
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

    Yields
    ------
    Recording
        Filled in at the end.

    Raises
    ------
    UsageError
        The output is there already, an option is wrong, or this process has been recorded already.
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
    asked = Asked(devices, profile, sync, in_python=True)
    asked.check()
    if os.path.isdir(os.environ.get("TAPEDELAY_SPOOL", "")):
        raise UsageError(
            "this process is already being recorded by `tapedelay record`",
            expected="one recording per process",
            next_step="leave `with record(...)` out, or run the program without `tapedelay record`",
        )
    result = Recording(_target(Path(output).absolute(), asked, force), asked)
    plugin = ggml_plugin()
    if _loaded(plugin) is not None:
        raise UsageError(
            "this process has been recorded already",
            expected="one recording per process",
            next_step="run the second one in a process of its own, or use `tapedelay record`",
        )
    with (
        _spool(result, keep_spool) as spool,
        _environment(environment(os.environ, asked, spool=spool, plugin=plugin)),
    ):
        engine_hook.install()
        try:
            yield result
        finally:
            engine_hook.uninstall()
            _stop(plugin)
            # the program's own error is the one that counts; it is told where the recording lies
            error = sys.exception()
            try:
                _collect(result, spool)
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


def _target(output: str | Path, asked: Asked, force: bool) -> Path:
    """Refuse a place that a tape could not take, before anything runs."""
    path = Path(output)
    where = str(output)
    if path.name in ("", ".."):
        raise UsageError(
            "a folder that cannot be replaced", expected="the name of a new tape", where=where or "''"
        )
    if not path.parent.is_dir():
        raise UsageError("its folder is not there", where=where, next_step="make the folder first")
    if not os.path.lexists(path):
        return path
    if path.exists() and not _replaceable(path):
        raise UsageError(
            "something that is no tape is there already",
            expected="a new name, or a tape to replace",
            where=where,
            next_step="choose another name",
        )
    if not force:
        word = "force=True" if asked.in_python else "--force"
        raise UsageError("it is there already", where=where, next_step=f"choose another name, or add {word}")
    return path


def _replaceable(path: Path) -> bool:
    """Whether a tape of this name may take the place of what is there: a tape of that form, or nothing."""
    if path.is_dir() is (path.suffix == ".zip"):
        return False
    try:
        if path.is_dir() and not any(path.iterdir()):
            return True
        open_container(path)
    except (InputError, OSError):
        return False
    return True


def _refuse_tape(path: Path) -> None:
    try:
        open_container(path)
    except TapedelayError:
        return
    raise SpoolError(
        "this is a tape already",
        expected="a raw recording, as --keep-spool leaves it",
        where=str(path),
        next_step=f"tapedelay check {quoted(path)}",
    )


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


def _collect(
    result: Recording, spool: Path, command: Sequence[str] = (), signals: Patience | None = None
) -> None:
    """Write the tape and judge the recording; faults are noted, not raised, and keep the spool.

    Raises
    ------
    KeyboardInterrupt
        The spool is kept then, too.
    """
    kept = result.output.parent / spool.name
    # Whatever happens from here on, nothing that was recorded is thrown away.
    result.spool = kept if any(spool.glob("*.rec")) else None
    try:
        from .engines.ggml.collect import collect_directory, hook_reports

        evidence = Evidence(command, hook_reports(spool), (spool / engine_hook.STARTED).exists())
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
            _finish(result, collect_directory(spool), evidence, judge_default=True, where=str(kept))
            result.spool = None
    except Exception as e:
        result.faults.append(_lost(result, e))
        if os.environ.get("TAPEDELAY_DEBUG"):
            raise
    if signals is not None:
        signals.done = True


def _lost(result: Recording, error: Exception) -> InfrastructureError:
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


def _finish(result: Recording, tape: Tape, evidence: Evidence, *, judge_default: bool, where: str) -> None:
    """Write the tape if anything was recorded, and note what keeps it from being what was asked for.

    Raises
    ------
    SpoolError
        The tape would break the specification. It is not written.
    """
    from ..formats.validate import validate
    from ..formats.write import write_tape

    ops = tape.table("ops")
    devices = tape.table("devices").to_pylist()
    device_of = tape.table("queues").column("device").to_pylist()
    result.ops = ops.num_rows
    result.queues = tape.table("queues").num_rows
    result.complete, result.lost = tape.manifest.complete, tape.manifest.lost
    kinds, queues = ops.column("kind").to_pylist(), ops.column("queue").to_pylist()
    for kind, queue in zip(kinds, queues, strict=True):
        if kind == "compute":
            name = devices[device_of[queue]]["name"]
            result.computes[name] = result.computes.get(name, 0) + 1
    if result.ops:
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
