"""Run the command that is recorded: its environment, its signals, its exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..formats.errors import UsageError
from ..formats.profiles import BUILTIN
from .asked import Asked, spelled
from .hook import SITE

__all__ = ["environment", "from_environment", "run"]

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def from_environment(asked: Asked, base: Mapping[str, str]) -> tuple[Asked, list[str]]:
    """Return what is asked for together with the environment, and what is to be said about the rest of it.

    ``TAPEDELAY_SYNC=1``, which `check` names among the switches that hide a finding, asks for what the option
    asks for. Other settings of the plugin have options of their own and are not taken from the environment.
    A program inside of a recording has that one's settings in its environment, which are no wishes.

    Parameters
    ----------
    asked : Asked
        By options.
    base : mapping
        The environment.

    Raises
    ------
    UsageError
        ``TAPEDELAY_SYNC`` is neither 0 nor 1.
    """
    if base.get("TAPEDELAY_SPOOL"):
        return asked, []
    sync = base.get("TAPEDELAY_SYNC", "")
    if sync not in ("", "0", "1"):
        raise UsageError(f"TAPEDELAY_SYNC={sync[:40]}", expected="0 or 1", next_step="unset TAPEDELAY_SYNC")
    said = [
        f"{name} is not taken from the environment: use {spelled(option, asked)}"
        for name, option in _OPTIONS.items()
        if base.get(name)
    ]
    return (replace(asked, sync=True) if sync == "1" else asked), said


def environment(base: Mapping[str, str], asked: Asked, *, spool: Path, plugin: Path) -> dict[str, str]:
    """Return the environment in which a program records itself.

    Python programs find the import hook through ``PYTHONPATH``, others the plugin through
    ``GGML_BACKEND_PATH``.
    """
    env = {k: v for k, v in base.items() if not k.startswith("TAPEDELAY_") or k in _KEPT}
    env |= {
        "TAPEDELAY_SPOOL": str(spool),
        "TAPEDELAY_PLUGIN": str(plugin),
        "TAPEDELAY_PROFILE": asked.profile,
        "TAPEDELAY_PROFILE_DATA": BUILTIN[asked.profile].device_data(),
        "GGML_BACKEND_PATH": str(plugin),
        "PYTHONPATH": os.pathsep.join([str(SITE), *filter(None, [base.get("PYTHONPATH")])]),
    }
    if asked.devices is not None:
        env["TAPEDELAY_DEVICES"] = str(asked.devices)
    if asked.sync:
        env["TAPEDELAY_SYNC"] = "1"
    return env


_KEPT = ("TAPEDELAY_THREADS", "TAPEDELAY_MEM_MB")
"""Settings of test devices that have no option."""

_OPTIONS = {
    "TAPEDELAY_DEVICES": "devices",
    "TAPEDELAY_PROFILE": "profile",
    "TAPEDELAY_PROFILE_DATA": "profile",
    "TAPEDELAY_DELAYS": "delays",
    "TAPEDELAY_RING_RECORDS": "last",
    "TAPEDELAY_RING_MS": "last",
}
"""Settings of the plugin, and the options that make them."""


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code, 128 + n if signal n ended it.

    Signals that reach this process go on to the command; those of the terminal reach it by themselves.

    Raises
    ------
    UsageError
        There is no such command, or it cannot be executed.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = _spawn(command, env, before)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            info = signal.sigtimedwait(watched, 1.0)
            # A positive code: the terminal sent it, to the whole group, so the command has it already.
            if info is not None and info.si_signo != signal.SIGCHLD and info.si_code <= 0:
                os.kill(child, info.si_signo)
    finally:
        while signal.sigtimedwait(watched, 0) is not None:  # what came late was meant for the command
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _spawn(command: Sequence[str], env: Mapping[str, str], mask: Iterable[int]) -> int:
    """Start the command with the signal mask and dispositions of a fresh program; no fork of our memory."""
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(env),
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
        )
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise UsageError(
            f"cannot run {command[0]!r}: {reason}",
            expected="a program and its arguments after `--`",
            next_step="try the command by itself",
        ) from e
