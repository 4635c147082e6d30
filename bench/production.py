"""What recording a long run costs an operator, and that a flight recorder keeps what it promises.

The tiny model with a long context: the same program without and with a recording, in turns. Then as a flight
recorder, once to its end and once killed in the middle with SIGKILL.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import Figures

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.validate import validate
from tapedelay.formats.write import write_tape
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import engine_environment, prompt_program
from tapedelay.recorder.demo.tiny_model import TinyModel, write_tiny_model
from tapedelay.recorder.engines.ggml.collect import collect_directory
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.recorder.flight import Last
from tapedelay.recorder.launch import environment
from tapedelay.recorder.plugin import ggml_plugin

__all__ = ["production"]

MILLION = 1_000_000


def production(folder: Path, figures: Figures, *, quick: bool) -> None:
    """Measure and print all rows."""
    prompt, predicted, pairs = (2048, 64, 2) if quick else (20_480, 512, 4)
    figures.title(
        f"production: a tiny model of llama.cpp, {prompt:,} + {predicted} tokens, {pairs} pairs of runs"
    )
    try:
        packages = engines.xllamacpp(engines.XLLAMACPP_NEWEST)
        context = prompt + predicted + 512
        model = write_tiny_model(folder / "production.gguf", TinyModel(context=context))
        plugin = ggml_plugin()
    except InfrastructureError as error:
        figures.absent("production", error.text())
        return
    sizes = {"--prompt-tokens": prompt, "--n-predict": predicted, "--context": context}
    program = prompt_program(model, *(word for k, v in sizes.items() for word in (k, str(v))))
    base = {**os.environ, **engine_environment(packages)}
    tokens = prompt + predicted

    def run(name: str, last: Last | None = None, *, record: bool = True, end: float | None = None) -> _Run:
        spool = folder / f"{name}.spool"
        spool.mkdir()
        env = environment(base, Asked(devices=1), spool=spool, plugin=plugin)
        env |= {} if last is None else last.variables()
        if not record:
            del env["TAPEDELAY_SPOOL"]
        return _Run(program, env, spool, end)

    off, on = [], []
    for i in range(pairs):
        off.append(run(f"off{i}", record=False))
        on.append(run(f"on{i}"))
    whole = on[-1]
    show = figures.show
    records = sum(s.recorded for s in read_spools(whole.spool))
    lost = sum(s.lost for r in on for s in read_spools(r.spool))
    show("records lost in all runs", lost, "", most=0)
    show("records per token", records / tokens, "")
    definitions = sum(r.stat().st_size for r in whole.spool.glob("*.def"))
    grown = (64 * records + definitions) / tokens
    show("spool growth", grown, "bytes/token", remark=f"{definitions:,} bytes of it definitions")
    begin = time.process_time()
    tape = collect_directory(whole.spool)
    show("collecting", time.process_time() - begin, "CPU s", remark=f"{records:,} records")
    path = folder / "production.tape.zip"
    write_tape(tape, path)
    show("tape size", path.stat().st_size / MILLION, "MB", most=2, remark=f"{tape.rows('ops'):,} ops")
    extra = [b.peak_bytes - a.peak_bytes for a, b in zip(off, on, strict=True)]
    show("extra memory at the peak", statistics.median(extra) / MILLION, "MB", remark=_spread(extra, MILLION))
    costs = [1e6 * r.cpu_seconds / tokens for r in off], [1e6 * r.cpu_seconds / tokens for r in on]
    show("CPU time, not recorded", statistics.median(costs[0]), "us/token", remark=_spread(costs[0]))
    show("CPU time, recorded", statistics.median(costs[1]), "us/token", remark=_spread(costs[1]))
    differences = [b - a for a, b in zip(*costs, strict=True)]
    share = 100 * statistics.median(differences) / statistics.median(costs[0])
    show(
        "difference",
        share,
        "%",
        remark=f"spread of the differences {_spread(differences)} us/token; see record_ns",
    )

    last = records // 5
    ring = run("ring", Last(records=last))
    _flight(figures, "flight recorder", ring.spool, last, records)
    killed = run("killed", Last(records=last), end=0.7 * records)
    _flight(figures, "flight recorder, killed", killed.spool, last, None)


def _flight(figures: Figures, what: str, spool: Path, last: int, records: int | None) -> None:
    """Show that exactly the last records and all that they name are there."""
    kept = sum(p.stat().st_blocks * 512 for p in spool.iterdir())
    tape = collect_directory(spool)
    manifest = tape.manifest
    found = sum(p.records for p in manifest.processes)
    remark = f"{manifest.dropped:,} older ones dropped, {kept / MILLION:.1f} MB on disk"
    figures.show(f"{what}: records beyond {last:,}", found - last, "", most=0, remark=remark)
    missing = max(0, last - found) if manifest.dropped else 0
    figures.show(f"{what}: records missing", missing, "", most=0)
    figures.show(f"{what}: rules that its tape breaks", len(validate(tape)), "", most=0)
    if records is not None:
        difference = abs(found + manifest.dropped - records)
        figures.show(
            f"{what}: kept + dropped, off by", difference, "", most=0, remark="against the whole recording"
        )


class _Run:
    """One run of the program in a process of its own; `end`: killed when it has recorded so much."""

    def __init__(
        self, program: Sequence[str], env: Mapping[str, str], spool: Path, end: float | None
    ) -> None:
        self.spool = spool
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(program, env=dict(env), stdout=out, stderr=subprocess.DEVNULL)
            self.peak_bytes = 0
            while process.poll() is None:
                # not wait4: what that tells counts the memory of whoever started the process
                self.peak_bytes = max(self.peak_bytes, _peak_bytes(process.pid))
                if end is not None and sum(s.recorded + s.dropped for s in read_spools(spool)) > end:
                    process.send_signal(signal.SIGKILL)
                time.sleep(0.02)
            out.seek(0)
            answer: dict[str, Any] = {}
            if end is None:
                if process.returncode:
                    raise RuntimeError(f"the program ended with {process.returncode}")
                answer = json.loads(out.read())
            self.cpu_seconds = float(answer.get("cpu_seconds", 0))


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _spread(values: Sequence[float], unit: float = 1) -> str:
    return f"{min(values) / unit:.1f} to {max(values) / unit:.1f}"
