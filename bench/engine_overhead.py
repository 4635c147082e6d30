"""What recording costs a real engine: records and CPU time per token, bytes per op of the tapes.

The same program with the same test device, plugin loaded, once with and once without a spool, in turns; the
difference of CPU time stands beside its spread. On a machine that does other work the spread is the larger.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import record_ns

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.write import write_tape
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import engine_environment, prompt_program
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.recorder.launch import environment
from tapedelay.recorder.plugin import ggml_plugin

PAIRS = 7


def run(program: list[str], env: dict[str, str]) -> float:
    """Return the CPU seconds that the program spent on its prompts."""
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=600, check=True)
    return float(json.loads(done.stdout)["cpu_seconds"])


def measure(
    name: str,
    model: Path,
    packages: Path,
    tokens: int,
    repeat: int,
    *,
    record_cost_ns: float | None,
    budget_percent: float,
) -> None:
    """Print the figures of one model."""

    def program(repeat: int) -> list[str]:
        return prompt_program(
            model, "--prompt-tokens", "8", "--n-predict", str(tokens), "--repeat", str(repeat)
        )

    base = {**os.environ, **engine_environment(packages)}
    plugin = ggml_plugin()
    asked = Asked(devices=1)
    off, on = [], []
    records, lost = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(PAIRS):
            spool = Path(folder) / f"{number}.spool"
            spool.mkdir()
            recorded = environment(base, asked, spool=spool, plugin=plugin)
            unrecorded = {k: v for k, v in recorded.items() if k != "TAPEDELAY_SPOOL"}
            repeats = 1 if number == 0 else repeat  # the first pair warms up and counts records
            off.append(run(program(repeats), unrecorded))
            on.append(run(program(repeats), recorded))
            spools = read_spools(spool)
            records[repeats] = sum(len(s.records) for s in spools)
            lost += sum(s.lost for s in spools)
        tape = collect(spools)
        path = Path(folder) / "a.tape.zip"
        write_tape(tape, path)
        size_bytes, ops = path.stat().st_size, tape.table("ops").num_rows
    per_token = (records[repeat] - records[1]) / ((repeat - 1) * tokens)
    off_us = [1e6 * s / (tokens * repeat) for s in off[1:]]
    on_us = [1e6 * s / (tokens * repeat) for s in on[1:]]
    differences = [b - a for a, b in zip(off_us, on_us, strict=True)]
    middle = statistics.median(off_us)
    difference = statistics.median(differences)
    spread = max(differences) - min(differences)
    _print(f"{name}: {tokens * repeat} tokens a run, {len(off_us)} pairs of runs", None)
    _print("records per token", per_token, f"{lost} lost")
    _print("CPU us per token, not recorded", middle, f"min {min(off_us):.1f}, max {max(off_us):.1f}")
    _print(
        "CPU us per token, recorded", statistics.median(on_us), f"min {min(on_us):.1f}, max {max(on_us):.1f}"
    )
    _print("difference, us", difference, f"{100 * difference / middle:+.1f} %, spread {spread:.1f} us")
    if record_cost_ns is not None:
        share = 100 * per_token * record_cost_ns / 1000 / middle
        verdict = "within" if share <= budget_percent else "OVER"
        _print("records times ns per record, % of CPU", share, f"budget {budget_percent} %: {verdict}")
    _print("bytes per op of the tape", size_bytes / ops, f"{size_bytes:,} bytes, {ops:,} ops")


def _print(what: str, value: float | None, remark: str = "") -> None:
    print(what if value is None else f"  {what:38} {value:10.2f}   ({remark})")


def main() -> int:
    """Run the benchmark; 4 where an engine cannot be had, which is said."""
    measured = record_ns.measure()
    one_ns = None
    if isinstance(measured, str):
        print(f"ns per record: {measured}, not measured")
    else:
        one_ns = measured[4]  # a copy, the dearest kind that does not block
        print(
            f"ns per record: {measured[1]:.1f}, of a copy: {one_ns:.1f}, of clock_gettime: {measured[0]:.1f}"
        )
    try:
        packages = engines.xllamacpp(engines.XLLAMACPP_NEWEST)
        tiny, real = engines.tiny_model(), engines.smollm2_model()
    except InfrastructureError as error:
        print(f"engine_overhead: {error.text()}\nnot measured")
        return 4
    measure(
        "tiny random qwen35, 1 test device", tiny, packages, 256, 4, record_cost_ns=one_ns, budget_percent=5
    )
    measure("SmolLM2-135M, 1 test device", real, packages, 48, 3, record_cost_ns=one_ns, budget_percent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
