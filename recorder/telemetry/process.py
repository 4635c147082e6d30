"""Starts and ends the process in which NVML is used."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ..environment import plain_environment
from .child import DONE

__all__ = ["NO_ANSWER", "NvmlProcess"]

NO_ANSWER = "did not answer"
_ROOT = str(Path(__file__).parents[3])
# At the end of the path, so that neither it nor the working directory (-P) hides a module of Python's.
_CODE = "import sys; sys.path.append(sys.argv.pop(1)); from tapedelay.recorder.telemetry import child; child."
_KILLED_S = 1.0
"""A process that the kernel does not let die is left behind."""


class NvmlProcess:
    """A process that uses NVML: in its own session, so that the terminal's Ctrl-C does not reach it.

    Parameters
    ----------
    what : str
        ``sample`` or ``look`` of `child`.
    *words : str
        Its arguments.
    answers : bool
        Whether its standard output is wanted.

    Raises
    ------
    OSError
        It cannot be started.
    """

    def __init__(self, what: str, *words: str, answers: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{_CODE}{what}()", _ROOT, str(os.getpid()), *words],
            env=plain_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self, patience_s: float) -> tuple[str, bytes]:
        """Tell it to end, and kill it if it does not.

        Parameters
        ----------
        patience_s : float
            How long it is waited for.

        Returns
        -------
        str
            What went wrong, in words that follow "NVML"; empty if it ended by itself.
        bytes
            Its answer; at most 64 KiB.
        """
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        wrong = ""
        try:
            code = process.wait(patience_s)
            if code < 0:
                wrong = f"ended with signal {-code}"
            elif code != DONE:
                wrong = f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            wrong = NO_ANSWER
        finally:  # also when we are interrupted
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_S)
        answer = b""
        if process.stdout is not None:
            with process.stdout as pipe:
                os.set_blocking(pipe.fileno(), False)
                with suppress(OSError):
                    answer = os.read(pipe.fileno(), 1 << 16)
        return wrong, answer
