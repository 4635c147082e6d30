"""One recording: a private spool, an engine that writes it, a tape in the end.

What needs Arrow is imported when the engine has ended: the recorded process, or its parent, stays light.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.errors import CannotJudge, InfrastructureError, TapedelayError, UsageError
from .hook import engine_hook
from .launch import Asked, environment, run
from .plugin import ggml_plugin

if TYPE_CHECKING:
    from ..formats.tape import Tape

__all__ = ["Recording", "collect_spool", "record", "record_command"]

_REAL_GPUS = ("gpu", "igpu")


@dataclass
class Recording:
    """What came of a recording.

    Attributes
    ----------
    output : Path
        Where the tape lies, or will lie.
    asked : Asked
        What was asked for.
    command_code : int
        Exit code of the command; 0 where there is none.
    computes : dict of str to int
        Computes recorded, by device.
    faults : list of TapedelayError
        What is wrong with the recording, worst first; empty: it is what was asked for.
    """

    output: Path
    asked: Asked
    command_code: int = 0
    ops: int = 0
    queues: int = 0
    complete: bool = False
    lost: int = 0
    written: bool = False
    computes: dict[str, int] = field(default_factory=dict)
    faults: list[TapedelayError] = field(default_factory=list)
    spool: Path | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of ``record``: the command's if it is not 0, else that of the worst fault."""
        if self.command_code:
            return self.command_code
        return max((f.exit_code for f in self.faults), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return everything for ``--json``."""
        return {
            "tape": str(self.output) if self.written else None,
            "ops": self.ops,
            "queues": self.queues,
            "computes": self.computes,
            "complete": self.complete,
            "lost": self.lost,
            "command_exit_code": self.command_code,
            "exit_code": self.exit_code,
            "faults": [f.as_dict() for f in self.faults],
            "spool": None if self.spool is None else str(self.spool),
        }


def record_command(
    command: list[str], output: str | Path, asked: Asked, *, force: bool = False, keep_spool: bool = False
) -> Recording:
    """Run a command and record it.

    Raises
    ------
    UsageError
        The output is there already, or the command cannot be run.
    InfrastructureError
        There is no plugin, or no place for the spool.
    """
    asked.check()
    result = Recording(_target(output, force), asked)
    plugin = ggml_plugin()
    with _spool(result, keep_spool) as spool:
        result.command_code = run(command, environment(os.environ, asked, spool=spool, plugin=plugin))
        _collect(result, spool)
    return result


def collect_spool(spool: str | Path, output: str | Path, asked: Asked, *, force: bool = False) -> Recording:
    """Collect a spool that was kept, or whose recorder died.

    Raises
    ------
    InputError
        It is not there, or damaged.
    """
    from .engines.ggml.collect import collect_directory

    result = Recording(_target(output, force), asked)
    _write(result, collect_directory(Path(spool)))
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
    asked = Asked(devices, profile, sync)
    asked.check()
    result = Recording(_target(output, force), asked)
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
            _collect(result, spool)
    if result.faults:
        raise result.faults[0]


def _target(output: str | Path, force: bool) -> Path:
    path = Path(output)
    if path.exists() and not force:
        raise UsageError(
            "it is there already", where=str(output), next_step="choose another name, or add --force"
        )
    if not path.parent.is_dir():
        raise UsageError("its folder is not there", where=str(output), next_step="make the folder first")
    return path


@contextmanager
def _spool(result: Recording, keep: bool) -> Iterator[Path]:
    """Make a private folder on the file system of the tape, and remove it in the end."""
    try:
        made = tempfile.mkdtemp(prefix=f".{result.output.name}.", suffix=".spool", dir=result.output.parent)
    except OSError as e:
        raise InfrastructureError(
            f"no spool can be written there: {e.strerror}",
            where=str(result.output.parent),
            next_step="choose a folder that can be written",
        ) from e
    spool = Path(made).absolute()
    try:
        yield spool
    finally:
        if keep:
            result.spool = spool
        else:
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


def _collect(result: Recording, spool: Path) -> None:
    """Write the tape and judge the recording; faults are noted, not raised."""
    from .engines.ggml.collect import collect_directory, hook_reports

    hooks = hook_reports(spool)
    try:
        if not any(spool.glob("*.rec")):
            result.faults.append(_nothing(hooks))
            return
        tape = collect_directory(spool)
        _write(result, tape)
        unwritten = [n for n in tape.manifest.notes if n.startswith("recording stopped early")]
        if unwritten:
            result.faults.append(
                InfrastructureError(
                    unwritten[0], next_step="free space on the disk of the tape and record again"
                )
            )
        elif missing := _missing(result, tape):
            result.faults.append(_not_asked(missing, hooks))
    except TapedelayError as e:
        result.faults.append(
            InfrastructureError(
                f"the spool cannot be collected: {e.found}",
                expected=e.expected,
                where=e.where,
                next_step="record again with --keep-spool and report the spool",
            )
        )


def _write(result: Recording, tape: Tape) -> None:
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
    write_tape(tape, result.output)
    result.written = True
    broken = validate(tape)
    if broken:
        result.faults.append(
            InfrastructureError(
                f"the tape breaks {len(broken)} rules, the first: {broken[0].text()}",
                where=str(result.output),
                next_step="`tapedelay info --validate` lists them; please report it",
            )
        )


def _missing(result: Recording, tape: Tape) -> str:
    """Say which device that was asked for did no work; empty if all did."""
    kinds = {_plain(d["name"]): d["kind"] for d in tape.table("devices").to_pylist()}
    test = [n for n, k in kinds.items() if k == "test"]
    working = {_plain(n) for n in result.computes}
    asked = result.asked.devices
    if asked:
        idle = [n for n in test if n not in working]
        if len(test) < asked:
            return f"only {len(test)} of {asked} test devices are there"
        return f"no compute was recorded on {', '.join(idle)}" if idle else ""
    real = [n for n, k in kinds.items() if k in _REAL_GPUS]
    wanted = real if asked == 0 else real + test
    if any(n in working for n in wanted):
        return ""
    return "no compute was recorded on any " + ("GPU" if asked == 0 else "GPU or test device")


def _plain(name: str) -> str:
    """Return a device's name without its process: any process may do the work."""
    return re.sub(r"^p\d+\.", "", name)


def _nothing(hooks: list[dict[str, str]]) -> CannotJudge:
    return _not_asked("nothing was recorded: no process loaded the plugin", hooks)


def _not_asked(found: str, hooks: list[dict[str, str]]) -> CannotJudge:
    faults = [f"{h['package']} {h['version']}: {h['fault']}".strip() for h in hooks if h.get("fault")]
    if faults:
        step = f"the plugin could not be loaded into {'; '.join(faults)}"
    elif hooks:
        step = "give the engine's work to the device (for llama.cpp: n_gpu_layers > 0)"
    else:
        step = (
            "see that the command runs xllamacpp or llama_cpp in a Python that reads PYTHONPATH (no -I, no "
            "-E), or a program whose ggml loads GGML_BACKEND_PATH, and that it puts layers on the device"
        )
    return CannotJudge(found, expected="work on the device asked for", next_step=step)
