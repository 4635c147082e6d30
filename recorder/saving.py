"""Save a recording while the engine goes on: on SIGUSR1 to `record`, or when the program asks for it.

Asking is a file in the spool's folder (``save-<CLOCK_MONOTONIC ns>-<pid>.request``). While a file ``hold``
lies there a flight recorder drops nothing. Collecting is done in a process of its own: `record` goes on
passing signals to the command, and the recorded program loads nothing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ..formats.commands.common import printable, say
from ..formats.errors import InfrastructureError, TapedelayError
from ..formats.shown import plural
from .environment import plain_environment
from .outcome import Recording
from .spools import any_recorded
from .threads import start_without_signals

__all__ = ["Saver", "numbered", "save", "save_living"]

_REQUEST = re.compile(r"save-([0-9]{1,19})-[0-9]{1,10}\.request")
_HOLD = "hold"
_LISTENS = "TAPEDELAY_SAVE"
_LOOK_S = 0.2
_SETTLE_S = 0.05
"""So long may a call take from its time stamp to its record, and a flight recorder to hold."""
_TIMEOUT_S = 600
_LATER = "the engine goes on and its recording, too: ask again, or collect it when the command has ended"
_CHILD = "from tapedelay.recorder.saving import child; child()"


def save() -> bool:
    """Ask the recorder of this process to save what it has recorded so far; the engine goes on.

    Under ``tapedelay record -o NAME.tape`` the tape appears a moment later as ``NAME.1.tape``, then
    ``NAME.2.tape`` and so on. A C program calls ``tapedelay_save()`` of the plugin instead. Inside of
    ``with record(...) as r`` call ``r.save(path)``, which returns when the tape is there.

    Returns
    -------
    bool
        Whether it was asked. False where nobody listens, as outside of ``tapedelay record``: a program that
        asks runs there, too.

    Raises
    ------
    InfrastructureError
        The recorder cannot be asked.
    """
    spool = os.environ.get("TAPEDELAY_SPOOL", "")
    if not os.environ.get(_LISTENS) or not os.path.isdir(spool):
        return False
    try:
        _ask(Path(spool))
    except OSError as e:
        raise InfrastructureError(
            f"the recorder cannot be asked: {e.strerror}",
            where=spool,
            next_step="see that the folder is there and can be written",
        ) from e
    return True


def _ask(spool: Path) -> None:
    (spool / _HOLD).touch()
    (spool / f"save-{time.monotonic_ns()}-{os.getpid()}.request").touch()


def numbered(output: Path, number: int) -> Path:
    """Return the name of a tape saved on the way: ``run.1.tape`` for ``run.tape``."""
    stem = output.name.removesuffix(".zip").removesuffix(".tape")
    return output.with_name(f"{stem}.{number}{output.name[len(stem) :]}")


def save_living(spool: Path, output: Path, until_ns: int | None = None) -> dict[str, Any]:
    """Collect a spool whose processes go on, in a process of its own.

    Parameters
    ----------
    spool, output : Path
        Where it lies, and the tape.
    until_ns : int, optional
        CLOCK_MONOTONIC: later records are left out. By default the time of the call.

    Returns
    -------
    dict
        ``ops`` and ``dropped`` of the tape.

    Raises
    ------
    InfrastructureError
        It could not be done.
    """
    hold = spool / _HOLD
    with suppress(OSError):
        hold.touch()
    time.sleep(_SETTLE_S)
    until = time.monotonic_ns() if until_ns is None else until_ns
    time.sleep(_SETTLE_S)
    words = [sys.executable, "-c", _CHILD, str(spool), str(output), str(until)]
    try:
        done = subprocess.run(
            words, env=plain_environment(), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        found = json.loads((done.stdout.splitlines() or [""])[-1])
    except (OSError, ValueError, subprocess.TimeoutExpired) as e:
        raise InfrastructureError(f"saving did not work: {e}", where=str(output), next_step=_LATER) from e
    finally:
        if not any(spool.glob("save-*.request")):
            hold.unlink(missing_ok=True)
    if "error" in found:
        raise InfrastructureError(
            f"saving did not work: {found['error']}", where=str(output), next_step=_LATER
        )
    return dict(found)


def child() -> None:
    """Collect a living spool; the arguments are its folder, the tape and the time at which records end."""
    spool, output, until = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    try:
        from ..formats.validate import validate
        from ..formats.write import write_tape
        from .spools import collect_all

        tape = collect_all(spool, until_ns=until)
        broken = validate(tape)
        if broken:
            raise InfrastructureError(
                f"it gives a tape that breaks a rule: {broken[0].text()}", next_step=_LATER
            )
        write_tape(tape, output)
        said: dict[str, Any] = {"ops": tape.rows("ops"), "dropped": tape.manifest.dropped}
    except TapedelayError as e:
        said = {"error": e.text()}
    print(json.dumps(said))


class Saver:
    """Answers requests while a command is recorded; a companion of `record_command`."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._over = threading.Event()
        self._number = 0

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Listen, from before the command to its end; what was asked before its end is still done."""
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGUSR1, self._on_signal) if in_main else None
        thread = threading.Thread(
            target=self._listen, args=(result, spool), name="tapedelay saver", daemon=True
        )
        start_without_signals(thread)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1} if in_main else ())
        try:
            yield {_LISTENS: "1"}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._over.set()
            thread.join()
            if in_main:
                signal.signal(signal.SIGUSR1, before if before is not None else signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked.set()

    def _listen(self, result: Recording, spool: Path) -> None:
        try:
            self._answer(result, spool)
        except OSError as e:  # said once: what cannot be taken away would be asked for again and again
            self._fault(
                result,
                InfrastructureError(
                    f"requests to save are not answered any more: {e.strerror}",
                    where=str(e.filename or spool),
                    next_step="see what is wrong with that folder, and record again",
                ),
            )

    def _answer(self, result: Recording, spool: Path) -> None:
        while True:
            over = self._over.wait(_LOOK_S)
            if self._asked.is_set():
                self._asked.clear()
                self._save(result, spool, None)
            requests = ((int(m[1]), p) for p in spool.glob("save-*") if (m := _REQUEST.fullmatch(p.name)))
            for until, path in sorted(requests):
                path.unlink(missing_ok=True)
                self._save(result, spool, until)
            if over:
                return

    def _save(self, result: Recording, spool: Path, until_ns: int | None) -> None:
        if not any_recorded(spool):
            say("tapedelay: nothing was recorded yet, so nothing is saved")
            return
        while True:
            self._number += 1
            output = numbered(result.output, self._number)
            if not os.path.lexists(output):
                break
        try:
            found = save_living(spool, output, until_ns)
        except TapedelayError as e:
            self._fault(result, e)
            return
        result.saved.append(output)
        say(printable(f"tapedelay: saved {plural(found['ops'], 'op')} in {output}"))

    def _fault(self, result: Recording, error: TapedelayError) -> None:
        result.faults.append(error)
        say(printable(f"tapedelay: ERROR: {error.text()}"))
