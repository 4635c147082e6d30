"""Processes that have the engine: one scheduler that crashes or hangs ends one of them, and is found."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ...formats.errors import InfrastructureError, InputError, Unsupported
from .violation import CRASH, HANG, Violation
from .vitals import Vitals, own_bytes
from .worker import BUILD, IDLE

__all__ = ["END_S", "MEMORY_BYTES", "START_S", "Died", "Worker"]

START_S = 300.0
"""How long an engine's import may take."""

END_S = 10.0
"""How long a process that has closed its pipe may take to end."""

MEMORY_BYTES = 4 << 30
"""Memory of its own that a worker may have, the engine's import included."""

_LOOK_S = 0.05
"""How often a worker that does not answer is looked at: it must not get far beyond its memory meanwhile."""
_READ_BYTES = 1 << 20
_FIRST_BYTES_MAX, _ANSWER_BYTES_MAX = 1 << 20, 1 << 30
"""How much it may answer, before it is known to be a worker and then."""
_FATAL = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})

_ENTRY = (
    "import json, sys; path = json.loads(sys.argv.pop(1)); status = int(sys.argv.pop(1)); "
    "sys.path += [p for p in path if p not in sys.path]; "
    # this very package, though that Python may have another version of it, to record with
    "from importlib.machinery import PathFinder; from importlib.util import module_from_spec; "
    "spec = PathFinder.find_spec('tapedelay', path); sys.modules['tapedelay'] = module_from_spec(spec); "
    "spec.loader.exec_module(sys.modules['tapedelay']); "
    "from tapedelay.replayer.rerun.worker import main; main(status)"
)


class Died(Exception):
    """A worker ended, or did not answer, in the middle of a message.

    Attributes
    ----------
    violation : Violation or None
        What that says about the scheduler: it crashed or hung inside a call; None: it says nothing.
    words : str
        What happened.
    next_step : str
        What can be done about it, where it says nothing about the scheduler.
    """

    def __init__(self, words: str, violation: Violation | None, next_step: str = "") -> None:
        super().__init__(words)
        self.words = words
        self.violation = violation
        self.next_step = next_step or "run it again; if it happens again, see what ended the process"


class Worker:
    """One process with one engine.

    Parameters
    ----------
    engine : str
        Name of the engine adapter.
    python : str or None
        Interpreter that has the engine, None: this one.
    timeout_s : float
        How long one call into the engine may take.
    memory_bytes : int
        Memory of its own that the process may have; one that grows beyond it is ended.

    Attributes
    ----------
    facts : dict
        What it said about the engine when it was opened.
    """

    def __init__(
        self,
        engine: str,
        *,
        python: str | None = None,
        timeout_s: float = 60.0,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self.facts: dict[str, Any] = {}
        self._engine = engine
        self._python = python
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._vitals: Vitals | None = None
        self._parts: list[bytes] = []
        self._bytes = 0
        self._sent = 0
        self._since = 0.0
        self._seen: tuple[int, int, int, str] = (0, 0, 0, "")
        self._limit_s = timeout_s

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def started(self) -> bool:
        """Whether the process is there."""
        return self._process is not None

    def start(self) -> None:
        """Start the process and open the engine.

        Raises
        ------
        Unsupported
            The engine or its adapter is not there.
        InfrastructureError
            The process cannot be started or ended at once.
        """
        self._parts, self._bytes, self._sent = [], 0, 0
        python = self._python or sys.executable
        try:
            self._vitals = Vitals()
            self._process = subprocess.Popen(
                [python, "-P", "-c", _ENTRY, json.dumps(_path(self._python)), str(self._vitals.status)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._vitals.said,
                pass_fds=[self._vitals.status],
                start_new_session=True,
            )
        except OSError as e:
            self.kill()
            raise InfrastructureError(
                f"{python} cannot be started: {e.strerror or e}",
                where="rerun",
                next_step="--python names the interpreter that has the engine",
            ) from None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self.fileno(), False)
        try:
            self.facts = self.ask({"do": "open", "engine": self._engine}, limit_s=START_S)
            if not isinstance(self.facts.get("version"), str):
                raise self._foreign(json.dumps(self.facts).encode())
        except Died as e:
            raise InfrastructureError(
                f"the process for {self._engine} ended at its start: {e.words}",
                where=python,
                next_step="import the engine in that Python by hand to see why",
            ) from None

    def ask(self, message: Mapping[str, Any], *, limit_s: float | None = None) -> dict[str, Any]:
        """Send a message and wait for the answer.

        Raises
        ------
        Died
            It crashed, or a call did not come back.
        Unsupported, InputError, InfrastructureError
            What the worker answers.
        """
        self.send(message, limit_s=limit_s)
        while True:
            answer = self.receive(_LOOK_S)
            if answer is not None:
                return answer

    def send(self, message: Mapping[str, Any], *, limit_s: float | None = None) -> None:
        """Send a message; the answer comes with `receive`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._sent += 1
        self._since = time.monotonic()
        self._seen = (0, 0, 0, "")
        self._limit_s = self._timeout_s if limit_s is None else limit_s
        pipe = self._process.stdin.fileno()
        left = memoryview(json.dumps(message).encode() + b"\n")
        while left:
            try:
                left = left[os.write(pipe, left) :]
            except BlockingIOError:  # it does not read
                _wait(pipe, selectors.EVENT_WRITE)
                self._look()
            except OSError:
                raise self._died() from None

    def fileno(self) -> int:
        """Return the descriptor that is ready when an answer comes."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self, wait_s: float = 0.0) -> dict[str, Any] | None:
        """Return the answer, None while there is none."""
        if wait_s:
            _wait(self.fileno(), selectors.EVENT_READ, wait_s)
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            self._look()
            return None
        if not data:
            raise self._died()
        self._parts.append(data)
        self._bytes += len(data)
        if b"\n" not in data:
            if self._bytes > (_ANSWER_BYTES_MAX if self._sent > 1 else _FIRST_BYTES_MAX):
                raise self._foreign(b"".join(self._parts))
            self._look()
            return None
        line, _, rest = b"".join(self._parts).partition(b"\n")
        self._parts, self._bytes = [], 0
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or rest:
            raise self._foreign(line)
        words = str(answer.get("words", ""))
        if answer.get("error") == "unsupported":
            # Once it is open, the engine is there: what it refuses is what it was given.
            next_step = _install(self._engine) if self._sent == 1 else _OTHER
            raise Unsupported(words, where=self._engine, next_step=next_step)
        if answer.get("error") == "incomplete":
            raise InputError(
                words,
                expected="every setting that the scheduler was built with; without it no rerun is exact",
                where=self._engine,
                next_step="record it again",
            )
        if answer.get("error"):
            raise InfrastructureError(
                words, where=self._engine, next_step="run it again; if it stays, report it with the tape"
            )
        return answer

    def close(self) -> None:
        """End the process."""
        self.kill()

    def kill(self) -> None:
        """End the process; `start` makes another one."""
        process, self._process = self._process, None
        vitals, self._vitals = self._vitals, None
        if vitals is not None:
            vitals.close()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def _foreign(self, said: bytes) -> InfrastructureError:
        """Return the error for what no worker says."""
        self.kill()
        return InfrastructureError(
            f"it says {said[:60].decode(errors='replace')!r}",
            expected="an answer of a worker",
            where=self._python or sys.executable,
            next_step="--python names an interpreter, or a script that prints nothing and then is one (exec)",
        )

    def _look(self) -> None:
        """Find a call that does not come back, or a process that grows beyond its memory."""
        assert self._vitals is not None
        now = self._vitals.doing()
        self._vitals.trim()
        self._weigh(now)
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        elif time.monotonic() - self._since > self._limit_s:
            _, call, _, kind = now
            more = "say --timeout with more seconds"
            if call == IDLE:
                raise Died(f"the worker gives no answer for {self._limit_s:g} s", None, more)
            words = f"{kind} (call {call}) did not come back within {self._limit_s:g} s"
            if kind == BUILD:  # a matter of how large the configuration is
                raise Died(words, None, more)
            raise Died(words, Violation(HANG, f"{kind} does not come back", words, call=call))

    def _weigh(self, now: tuple[int, int, int, str]) -> None:
        """End a process that has more memory than it may have, before the machine suffers."""
        assert self._process is not None
        taken = own_bytes(self._process.pid)
        if taken <= self._memory_bytes:
            return
        self.kill()
        _, call, _, kind = now
        during = f" during {kind}" if call != IDLE else ""
        raise Died(
            f"the worker was ended{during}: it had {taken / 2**30:.1f} GiB of memory of its own, "
            f"more than the {self._memory_bytes / 2**30:.1f} GiB that it may have",
            None,
            "look for huge numbers in its input (tapedelay info --dump); a shorter recording takes less",
        )

    def _died(self) -> Died:
        """Return what the end of the process says."""
        assert self._process is not None
        assert self._vitals is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.poll()
        if code is None:
            return Died(
                "the worker closed its pipe and goes on", None, "an engine must leave other files open"
            )
        number, call, _, kind = self._vitals.doing()
        name = _signal_name(code)
        how = f"ended with {name or f'exit code {code}'}"
        said = self._vitals.last_words()
        next_step = _OUT_OF_MEMORY if name == "SIGKILL" else ""
        if call == IDLE or number != self._sent:
            return Died(f"the worker {how}{said}", None, next_step)
        if name and name not in _FATAL:  # somebody else ended it, or memory ran out
            return Died(f"the worker {how} during {kind}{said}", None, next_step)
        words = f"{kind} (call {call}) {how}{said}"
        return Died(words, Violation(CRASH, f"{kind} {how}", words, call=call))


_OUT_OF_MEMORY = "see whether the machine ran out of memory (dmesg), or say --jobs 1"


def _wait(fd: int, event: int, wait_s: float = _LOOK_S) -> None:
    with selectors.DefaultSelector() as waiting:
        waiting.register(fd, event)
        waiting.select(wait_s)


def _signal_name(code: int | None) -> str:
    if code is None or code >= 0:
        return ""
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _path(python: str | None) -> list[str]:
    """Return what a worker must import from: all that we can, in another Python our package alone."""
    if python is None:
        return [os.path.abspath(p) for p in sys.path]
    import tapedelay

    (package,) = list(tapedelay.__path__)[:1]
    return [str(Path(package).parent)]


_OTHER = "record a run without it, or rerun with the version of the engine that was recorded"


def _install(engine: str) -> str:
    return (
        f"`make engine-{engine}` installs it; --python names the interpreter that has it"
        if engine in ("vllm", "deepinfer", "transformers")
        else "--python names the interpreter that has it"
    )
