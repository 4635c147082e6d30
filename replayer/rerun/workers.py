"""Processes that have the engine: one scheduler that crashes or hangs ends one of them, and is found."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ...formats.errors import InfrastructureError, Unsupported
from .violation import CRASH, HANG, Violation
from .worker import IDLE, STATUS, status_of

__all__ = ["START_S", "Died", "Worker"]

START_S = 300.0
"""How long an engine's import may take."""

_TAIL_BYTES = 2_000
_FIRST_BYTES_MAX, _ANSWER_BYTES_MAX = 1 << 20, 1 << 30
"""How much it may answer, before it is known to be a worker and then."""
_FATAL = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})

_ENTRY = (
    "import json, sys; path = json.loads(sys.argv.pop(1)); status = sys.argv.pop(1); "
    "sys.path += [p for p in path if p not in sys.path]; "
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
    """

    def __init__(self, words: str, violation: Violation | None) -> None:
        super().__init__(words)
        self.words = words
        self.violation = violation


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

    Attributes
    ----------
    facts : dict
        What it said about the engine when it was opened.
    """

    def __init__(self, engine: str, *, python: str | None = None, timeout_s: float = 60.0) -> None:
        self.facts: dict[str, Any] = {}
        self._engine = engine
        self._python = python
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="tapedelay-rerun-")
        self._status = Path(self._folder.name) / "status"
        self._said = Path(self._folder.name) / "said"
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
        self._status.write_bytes(STATUS.pack(0, IDLE, 0, b""))
        self._parts, self._bytes, self._sent = [], 0, 0
        python = self._python or sys.executable
        try:
            with self._said.open("wb") as said:
                self._process = subprocess.Popen(
                    [python, "-P", "-c", _ENTRY, json.dumps(_path(self._python)), str(self._status)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    start_new_session=True,
                )
        except OSError as e:
            raise InfrastructureError(
                f"{python} cannot be started: {e.strerror or e}",
                where="rerun",
                next_step="--python names the interpreter that has the engine",
            ) from None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
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
        Unsupported, InfrastructureError
            What the worker answers.
        """
        self.send(message, limit_s=limit_s)
        while True:
            answer = self.receive(0.5)
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
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._died() from None

    def fileno(self) -> int:
        """Return the descriptor that is ready when an answer comes."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self, wait_s: float = 0.0) -> dict[str, Any] | None:
        """Return the answer, None while there is none."""
        assert self._process is not None
        assert self._process.stdout is not None
        if wait_s:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._process.stdout, selectors.EVENT_READ)
                waiting.select(wait_s)
        data = self._process.stdout.read()
        if data == b"":
            raise self._died()
        if data:
            self._parts.append(data)
            self._bytes += len(data)
        if b"\n" not in (data or b""):
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
            raise Unsupported(words, where=self._engine, next_step=_install(self._engine))
        if answer.get("error"):
            raise InfrastructureError(
                words, where=self._engine, next_step="run it again; if it stays, report it with the tape"
            )
        return answer

    def close(self) -> None:
        """End the process."""
        self.kill()
        self._folder.cleanup()

    def kill(self) -> None:
        """End the process; `start` makes another one."""
        process, self._process = self._process, None
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
        """Find a call that does not come back: the same one since longer than it may take."""
        now = status_of(self._status.read_bytes())
        if now != self._seen:
            self._seen, self._since = now, time.monotonic()
        elif time.monotonic() - self._since > self._limit_s:
            _, call, _, kind = now
            words = f"no answer for {self._limit_s:g} s"
            if call == IDLE:
                raise Died(f"the worker gives {words}", None)
            words = f"{kind} (call {call}) did not come back within {self._limit_s:g} s"
            raise Died(words, Violation(HANG, f"{kind} does not come back", words, call=call))

    def _died(self) -> Died:
        """Return what the end of the process says."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code = self._process.poll()
        number, call, _, kind = status_of(self._status.read_bytes())
        name = _signal_name(code)
        how = f"ended with {name or f'exit code {code}'}"
        said = self._tail()
        if call == IDLE or number != self._sent:
            return Died(f"the worker {how}{said}", None)
        if name and name not in _FATAL:  # somebody else ended it, or memory ran out
            return Died(f"the worker {how} during {kind}{said}", None)
        words = f"{kind} (call {call}) {how}{said}"
        return Died(words, Violation(CRASH, f"{kind} {how}", words, call=call))

    def _tail(self) -> str:
        try:
            with self._said.open("rb") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = f.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1][:300]}" if lines else ""


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


def _install(engine: str) -> str:
    return (
        f"`make engine-{engine}` installs it; --python names the interpreter that has it"
        if engine in ("vllm", "deepinfer", "transformers")
        else "--python names the interpreter that has it"
    )
