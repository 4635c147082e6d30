"""Steps of an engine's scheduler with and without the recorder's hooks, in turns."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Turns", "in_turns"]


class Turns(NamedTuple):
    """Medians of processor times of a step, in ms, and what the recording of one takes.

    Attributes
    ----------
    plain_ms : float
        Without hooks.
    more_ms : float
        What the step with hooks takes more than the one without that was made right before it.
    least_ms, most_ms : float
        The same of the two processes for which it is least and most: where in memory things come to lie alone
        makes a step some percent faster or slower, for all the time that a process lives.
    bytes_per_step : float
        Raw recording.
    """

    plain_ms: float
    more_ms: float
    least_ms: float
    most_ms: float
    bytes_per_step: float


def in_turns(command: list[str], spool: Path, steps: int, pairs: int) -> Turns:
    """Return the median of so many pairs of processes, each pair as `_pair` has them step."""
    runs = [_pair(command, spool / str(i), steps) for i in range(pairs)]
    more = [m for _, m, _ in runs]
    return Turns(
        statistics.median(plain for plain, _, _ in runs),
        statistics.median(more),
        min(more),
        max(more),
        statistics.median(b for _, _, b in runs),
    )


def _pair(command: list[str], spool: Path, steps: int) -> tuple[float, float, float]:
    """Run a program twice, the second time with `spool` as its last word, and let both step by turns.

    The program answers each line on stdin with the next step's processor time in ms and how many steps were
    made in all.

    Returns
    -------
    tuple of (float, float, float)
        Medians of a step without hooks and of what one with hooks takes more, in ms; bytes of a step.

    Raises
    ------
    RuntimeError
        One of them ended; with the last line of what it said.
    """
    env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    spool.mkdir(parents=True)
    errors = [spool / "plain.err", spool / "hooked.err"]
    plain, more = [], []
    with contextlib.ExitStack() as stack:
        runs = []
        for words, error in zip((command, [*command, str(spool)]), errors, strict=True):
            run = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True,
                stderr=stack.enter_context(error.open("w")),
            )  # fmt: skip
            stack.callback(run.wait)
            stack.callback(run.kill)
            runs.append(run)
        made = 0
        for _ in range(steps):
            took = []
            for run, error in zip(runs, errors, strict=True):
                answer = _asked(run)
                if not answer:
                    raise RuntimeError((error.read_text().strip().splitlines() or ["it ended"])[-1])
                took.append(float(answer[0]))
                made = int(answer[1])
            plain.append(took[0])
            more.append(took[1] - took[0])
    written = sum(p.stat().st_size for p in spool.glob("requests-*.frames"))
    return statistics.median(plain), statistics.median(more), written / made


def _asked(run: subprocess.Popen[str]) -> list[str]:
    """Return what a program answers, nothing if it has ended; its libraries may print on stdout too."""
    assert run.stdin is not None
    assert run.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        run.stdin.write("\n")
        run.stdin.flush()
    for line in run.stdout:
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            return words
    return []
