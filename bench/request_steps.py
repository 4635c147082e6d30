"""What recording a request scheduler costs per step, in time and bytes, through the API that hooks call."""

from __future__ import annotations

import os
import time
from pathlib import Path

from figures import Figures

from tapedelay.formats.requests.read import read_inputs
from tapedelay.formats.write import write_tape
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all

__all__ = ["request_steps"]

RUNNING = 256
UNIT_TOKENS = 16
ROUNDS = 5
STEP_US_MAX = 500
STEP_BYTES_MAX = 2000


class _Engine:
    """Steps as an engine makes them: all decode, some get a block, now and then one ends and one comes."""

    def __init__(self, steps: int) -> None:
        pool = PoolRow("kv", RUNNING * (steps // UNIT_TOKENS + 4), 1, UNIT_TOKENS)
        self.recorder = SchedulerRecorder("synthetic", "1", {"slots": RUNNING}, [pool])
        self.length = [UNIT_TOKENS + i % UNIT_TOKENS for i in range(RUNNING)]
        self.keys = [f"request-{i:06d}" for i in range(RUNNING)]
        self.born = RUNNING
        self.unit = 0
        for key, length in zip(self.keys, self.length, strict=True):
            self.recorder.submit(key, prompt_tokens=length, max_tokens=1000)
        self.step([(k, n, 0, True) for k, n in zip(self.keys, self.length, strict=True)], [])

    def step(self, rows: list[tuple[str, int, int, bool]], grown: list[str]) -> None:
        """Tell one step and its output."""
        r = self.recorder
        r.begin("step")
        for key in grown:
            self.unit += 1
            r.blocks("alloc", 0, (self.unit,), key)
        r.schedule(rows)
        r.resources(0, 1_000_000 - self.unit, self.unit)
        r.end()
        r.begin("output")
        r.answers([(key, 1, None) for key, *_ in rows])
        r.end()

    def decode(self, number: int) -> None:
        """Make one step in which all decode; every fourth one replaces a request."""
        rows = [(k, 1, n, False) for k, n in zip(self.keys, self.length, strict=True)]
        grown = [k for k, n in zip(self.keys, self.length, strict=True) if n % UNIT_TOKENS == 0]
        if number % 4 == 0:
            at = number // 4 % RUNNING
            self.recorder.begin("abort", key=self.keys[at])
            self.recorder.blocks("free", 0, range(1, 3), self.keys[at])
            self.recorder.end()
            self.keys[at], self.length[at] = f"request-{self.born:06d}", 0
            self.born += 1
            self.recorder.submit(self.keys[at], prompt_tokens=40, max_tokens=1000)
            rows[at] = (self.keys[at], 40, 0, True)
            self.length[at] = 39
        self.step(rows, grown)
        self.length = [n + 1 for n in self.length]


def request_steps(folder: Path, figures: Figures, *, quick: bool) -> None:
    """Print what a step costs that is told whole, beside what the same loop costs without a recording."""
    steps = 400 if quick else 4000
    figures.title(f"request scheduler: {RUNNING} running, {steps:,} steps, the fastest of {ROUNDS}")
    spool = folder / "requests-spool"
    found = [_timed(spool / str(i), steps) for i in range(ROUNDS)]
    bare = min(_timed(None, steps) for _ in range(ROUNDS))
    cost_us = 1e6 * (min(found) - bare) / steps
    figures.show(
        "recording a step",
        cost_us,
        "us",
        most=STEP_US_MAX,
        remark=f"{cost_us / 100:.1f} % of a step of 10 ms",
    )
    where = spool / "0"
    figures.show("raw recording", _bytes(where) / steps, "bytes/step", most=STEP_BYTES_MAX)
    begin = time.process_time()
    tape = collect_all(where)
    collected = time.process_time() - begin
    figures.show(
        "tape", _bytes(write_tape(tape, folder / "requests.tape")) / steps, "bytes/step", most=STEP_BYTES_MAX
    )
    figures.show("collecting", steps / collected, "steps/s")
    begin = time.process_time()
    scheduled = sum(len(i.scheduled) for i in read_inputs(tape))
    seconds = time.process_time() - begin
    figures.show("reading, deltas filled in", steps / seconds, "steps/s", remark=f"{scheduled:,} rows")


def _timed(spool: Path | None, steps: int) -> float:
    """Return the processor time of so many steps."""
    if spool is None:
        os.environ.pop("TAPEDELAY_SPOOL", None)
    else:
        spool.mkdir(parents=True)
        os.environ["TAPEDELAY_SPOOL"] = str(spool)
    try:
        engine = _Engine(steps)
        begin = time.process_time()
        for number in range(1, steps + 1):
            engine.decode(number)
        seconds = time.process_time() - begin
        if spool is not None and not engine.recorder.recording:
            raise RuntimeError("the recording stopped")
    finally:
        stop()
        os.environ.pop("TAPEDELAY_SPOOL", None)
    return seconds


def _bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in path.iterdir())
