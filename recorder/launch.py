"""Run the command that is recorded: its environment, its signals, its exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..formats.errors import UsageError
from ..formats.profiles import BUILTIN
from .hook import SITE

__all__ = ["Asked", "environment", "profile_names", "run", "spelled"]

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Asked:
    """What the user wants recorded.

    Attributes
    ----------
    devices : int or None
        Test devices; None: none where a real GPU backend is registered, else one.
    profile : str
        How they behave.
    sync : bool
        Every command is complete before its call returns: the reference run.
    in_python : bool
        Asked by a call, not on a command line: messages name parameters, not options.
    """

    devices: int | None = None
    profile: str = "vulkan-like"
    sync: bool = False
    in_python: bool = False

    def check(self) -> None:
        """Refuse what no plugin could do.

        Raises
        ------
        UsageError
            The profile is unknown or the number is out of range.
        """
        if self.profile not in profile_names():
            raise UsageError(
                f"profile {self.profile!r}",
                expected=", ".join(profile_names()),
                where=spelled("profile", self),
            )
        if self.devices is not None and not 0 <= self.devices <= 15:
            raise UsageError(
                f"{self.devices} test devices", expected="0 to 15", where=spelled("devices", self)
            )


def spelled(option: str, asked: Asked, value: str = "") -> str:
    """Return an option as the user writes it: ``--devices 0`` on a command line, ``devices=0`` in a call."""
    return f"{option}={value}" if asked.in_python else f"--{option} {value}".rstrip()


def profile_names() -> tuple[str, ...]:
    """Return the profiles that a test device can have."""
    return tuple(sorted(n for n, p in BUILTIN.items() if p.doc.startswith("test device")))


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
