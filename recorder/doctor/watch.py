"""Looks at a command's processes from outside while they run: what they have mapped, how they began."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..evidence import Seen, Watched, write_watched
from ..outcome import Recording
from ..plugin import ggml_plugin
from ..threads import start_without_signals
from .elf import holds_ggml

__all__ = ["Watch"]

_AT_NULL, _AT_SECURE = 0, 23
_INTERVAL_S = 0.01
_EARLY_S = 2.0
_PROCESSES_MAX = 10_000
_MERCY_S = 5.0
"""How long a command has between being asked to end and being ended."""
_OURS = "libtapedelay_"
_SYSTEM = ("/lib", "/usr/lib", "/dev/", "/memfd:", "/proc/", "/SYSV")


@dataclass
class _Process:
    executable: str = ""
    command: tuple[str, ...] = ()
    environment: bool | None = None
    secure: bool = False
    mapped: set[str] = field(default_factory=set)
    looks: int = 0


class Watch:
    """Watches a command, and ends it after a while (a `Companion`).

    Parameters
    ----------
    command : sequence of str
        The command.
    limit_s : float
        After how long.

    Attributes
    ----------
    watched : Watched
        What was seen, once the command has ended.
    """

    def __init__(self, command: Sequence[str], limit_s: float) -> None:
        self.watched = Watched()
        self._command = command
        self._limit_s = limit_s
        self._stop = threading.Event()
        self._processes: dict[tuple[int, str], _Process] = {}
        self._stopped = False
        self._family = _Family()

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Watch until the context is left; what was seen is left in the spool."""
        self._family.members()  # the first look is the longest
        thread = threading.Thread(target=self._run, name="watch", daemon=True)
        start_without_signals(thread)
        try:
            yield {}
        finally:
            self._stop.set()
            thread.join()
            self.watched = self._judge()
            if self._stopped:
                result.command_code = 0
            with suppress(OSError):
                write_watched(spool, self.watched)

    def _run(self) -> None:
        begun_s = time.monotonic()
        killed_s = begun_s + self._limit_s + _MERCY_S
        while True:
            looked_s = time.monotonic()
            for pid in self._family.members():
                self._look(pid)
            now_s = time.monotonic()
            if now_s >= killed_s:
                self._signal(signal.SIGKILL)
            elif now_s - begun_s >= self._limit_s and not self._stopped:
                self._stopped = True
                self._signal(signal.SIGTERM)
            # At first often: programs that start others live for moments. Later it must not cost a core.
            cost_s = now_s - looked_s
            early = now_s - begun_s < _EARLY_S
            if self._stop.wait(max(_INTERVAL_S, cost_s) if early else max(10 * _INTERVAL_S, 20 * cost_s)):
                return

    def _signal(self, number: int) -> None:
        for pid in self._family.members():
            with suppress(OSError):
                os.kill(pid, number)

    def _look(self, pid: int) -> None:
        proc = Path(f"/proc/{pid}")
        executable, hidden = "", False
        try:
            executable = os.readlink(proc / "exe").removesuffix(" (deleted)")
        except PermissionError:
            hidden = True  # it is not ours any more: it has another user or more rights
        except OSError:  # it has ended
            return
        # A process that becomes another program is another one to us.
        if (pid, executable) not in self._processes and len(self._processes) >= _PROCESSES_MAX:
            return
        seen = self._processes.setdefault((pid, executable), _Process(executable))
        seen.looks += 1
        seen.mapped.update(filter(None, [executable]))
        seen.secure = seen.secure or hidden
        with suppress(OSError):
            words = (proc / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            seen.command = tuple(w.decode("utf-8", "replace") for w in words)[:1000]
        if seen.environment is None:
            with suppress(OSError):
                variables = (proc / "environ").read_bytes()
                if variables or seen.looks > 1:  # a program that is just being loaded has none yet
                    seen.environment = b"TAPEDELAY_SPOOL=" in variables
        with suppress(OSError):
            seen.secure = seen.secure or _secure((proc / "auxv").read_bytes())
        with suppress(OSError):
            for line in (proc / "maps").read_text(errors="replace").splitlines():
                words_of_line = line.split(maxsplit=5)
                if len(words_of_line) == 6 and words_of_line[5].startswith("/"):
                    seen.mapped.add(words_of_line[5].removesuffix(" (deleted)"))

    def _judge(self) -> Watched:
        programs = {p.executable for p in self._processes.values()}
        alone = _program(self._command)
        seen = list(self._processes.values())
        if alone is not None and alone.executable not in programs:  # it ended before it could be looked at
            seen.insert(0, alone)
        plugin = os.path.realpath(ggml_plugin())
        kinds = {plugin: ""}
        return Watched(
            tuple(_judged(p, kinds, plugin) for p in seen), self._limit_s if self._stopped else None
        )


def _program(command: Sequence[str]) -> _Process | None:
    """Return what is known of a command by its file alone."""
    found = shutil.which(command[0]) if command else None
    if found is None:
        return None
    path = os.path.realpath(found)
    secure = False
    with suppress(OSError):
        secure = bool(os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)) and os.geteuid() != 0
    return _Process(path, tuple(command), True, secure, {path})


def _judged(p: _Process, kinds: dict[str, str], plugin: str) -> Seen:
    for path in p.mapped:
        if path not in kinds:
            kinds[path] = holds_ggml(Path(path)) if _may_hold(path, p.executable) else ""
    return Seen(
        p.command,
        p.executable,
        p.environment,
        p.secure,
        plugin in p.mapped,
        tuple(sorted(path for path in p.mapped if kinds[path] == "exporting")),
        tuple(sorted(path for path in p.mapped if kinds[path] == "hidden")),
    )


def _may_hold(path: str, executable: str) -> bool:
    """Whether a file is worth reading: libraries of the system are not, unless their name says so."""
    name = Path(path).name
    if _OURS in name:
        return False
    named = any(word in name for word in ("ggml", "llama", "whisper"))
    return path == executable or named or not path.startswith(_SYSTEM)


class _Family:
    """The processes below this one. Those of others are looked at once, so that a look costs little."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def members(self) -> list[int]:
        """Return them, nearest first."""
        now = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        parents = {p: parent for p, parent in self._parents.items() if p in now}
        below: dict[int, list[int]] = {}
        for p in now:
            if p not in parents:
                with suppress(OSError, IndexError, ValueError):  # it ends meanwhile
                    stat_line = Path(f"/proc/{p}/stat").read_bytes()
                    parents[p] = int(stat_line.rpartition(b")")[2].split()[1])
            below.setdefault(parents.get(p, 0), []).append(p)
        self._parents = parents
        found = [os.getpid()]
        for p in found:
            found += below.get(p, ())
        return found[1:]


def _secure(vector: bytes) -> bool:
    """Return whether the auxiliary vector says that user, group or capabilities changed at the start."""
    pair = struct.Struct("QQ")
    for at in range(0, len(vector) - pair.size + 1, pair.size):
        key, value = pair.unpack_from(vector, at)
        if key == _AT_SECURE:
            return bool(value)
        if key == _AT_NULL:
            break
    return False
