"""Looks at a command's processes from outside while they run: what they have mapped, how they began."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..evidence import Seen, Watched, write_watched
from ..outcome import Recording
from ..plugin import ggml_plugin
from ..requests.layout import PATTERN
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
    first_s: float = 0.0
    last_s: float = 0.0
    scheduler: bool = False


class Watch:
    """Watches a command, and ends it after a while (a `Companion`).

    Where it cannot look any more it still ends the command.

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
    fault : str
        Why it was not all that there was to see; empty: it was.
    """

    def __init__(self, command: Sequence[str], limit_s: float) -> None:
        self.watched = Watched()
        self.fault = ""
        self._command = command
        self._limit_s = limit_s
        self._stop = threading.Event()
        self._processes: dict[tuple[int, str], _Process] = {}
        self._stopped = False
        self._family = _Family()
        self._known: list[int] = []
        self._caller = 0

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Watch until the context is left; what was seen is left in the spool."""
        self._caller = threading.get_ident()
        self._members()  # the first look is the longest
        thread = threading.Thread(target=self._run, name="watch", daemon=True)
        start_without_signals(thread)
        try:
            yield {}
        finally:
            self._stop.set()
            thread.join()
            try:
                self.watched = self._judge(spool)
            except Exception as e:
                self._fail(e)
                self.watched = Watched((), self._stopped_s)
            if self._stopped:
                result.command_code = 0
            with suppress(OSError):
                write_watched(spool, self.watched)

    def _run(self) -> None:
        begun_s = time.monotonic()
        killed_s = begun_s + self._limit_s + _MERCY_S
        while True:
            looked_s = time.monotonic()
            for pid in self._members():
                try:
                    self._look(pid)
                except Exception as e:  # the command is to be ended all the same
                    self._fail(e)
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
        members = self._members()
        if not members and self.fault and number == signal.SIGTERM:
            signal.pthread_kill(self._caller, number)  # it waits for the command, and hands it on
        for pid in members:
            with suppress(OSError):
                os.kill(pid, number)

    def _members(self) -> list[int]:
        """Return the command's processes; where that cannot be found out, our children that are known."""
        try:
            self._known = self._family.members()
        except Exception as e:
            self._fail(e)
            self._known = [pid for pid in self._known if _is_child(pid)]
        return self._known

    def _fail(self, error: Exception) -> None:
        self.fault = self.fault or f"{type(error).__name__}: {error}".rstrip(": ")

    @property
    def _stopped_s(self) -> float | None:
        return self._limit_s if self._stopped else None

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
        seen.last_s = time.monotonic()
        seen.first_s = seen.first_s or seen.last_s
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

    def _judge(self, spool: Path) -> Watched:
        plugin = os.path.realpath(ggml_plugin())
        proven = _pids(spool)
        last = {pid: p for (pid, _), p in self._processes.items()}  # what a process became in the end
        for pid in proven & set(last):
            last[pid].mapped.add(plugin)
        for pid in _numbers(p.name.split("-")[1] for p in spool.glob(PATTERN)) & set(last):
            last[pid].scheduler = True
        programs = {p.executable for p in self._processes.values()}
        alone = _program(self._command)
        seen = list(self._processes.values())
        if alone is not None and alone.executable not in programs:  # it ended before it could be looked at
            seen.insert(0, alone)
        kinds = {plugin: ""}
        return Watched(tuple(_judged(p, kinds, plugin) for p in seen), self._stopped_s)


def _pids(spool: Path) -> set[int]:
    """Return the processes that loaded the plugin, by what it left in the spool: a look may come too late."""
    names = [p.name.partition("-")[0] for p in spool.glob("*.rec")]
    names += [p.stem.removeprefix("refused-") for p in spool.glob("refused-*.txt")]
    return _numbers(names)


def _numbers(names: Iterable[str]) -> set[int]:
    return {int(name) for name in names if name.isascii() and name.isdigit()}


def _is_child(pid: int) -> bool:
    """Whether this is a child of ours that was not waited for: nobody else has its number then."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return False
    return True


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
        p.last_s - p.first_s,
        p.scheduler,
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
