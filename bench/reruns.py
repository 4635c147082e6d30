"""How fast request schedulers are rerun: those that are installed, and the toy of the tests."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from figures import Figures

from tapedelay.formats.load import load_tape
from tapedelay.replayer.rerun.from_tape import recording_of

__all__ = ["engine_python", "reruns"]

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "tests" / "engines" / "programs"
RUNS_PER_SECOND = 20
"""Perturbed runs per second and core that the prototype made, at least."""
STEP_BYTES_MAX = 2000

RECORDED: dict[str, tuple[str, ...]] = {
    "vllm": ("vllm_core.py", "async", "FOLDER"),
    "deepinfer": ("deepinfer_engine.py", "disturbed-states"),
    "transformers": ("transformers_serve.py", "fifo"),
}
"""Programs of the tests that are recorded, and their arguments."""


def reruns(folder: Path, figures: Figures) -> None:
    """Print rates of exact and of perturbed reruns, and what a recorded step takes in a tape."""
    figures.title("reruns of request schedulers: one core, processor time, all checks on")
    _show(figures, "the toy", _measured(sys.executable))
    for engine, program in RECORDED.items():
        python = engine_python(engine)
        if python is None:
            figures.absent(f"reruns of {engine}", f"{engine} is not installed: make engine-{engine}")
            continue
        where = folder / f"rerun-{engine}"
        where.mkdir()
        words = [str(where) if w == "FOLDER" else w for w in program]
        told = _recorded(python, words, where)
        _show(figures, engine, told)


def engine_python(engine: str) -> str | None:
    """Return the Python that has an engine, None for none; ``TAPEDELAY_PYTHON_<ENGINE>`` names another."""
    named = os.environ.get(f"TAPEDELAY_PYTHON_{engine.upper()}")
    if named is None:
        return sys.executable if importlib.util.find_spec(engine) is not None else None
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({engine!r}) is None)"
    return named if subprocess.run([named, "-c", code], capture_output=True).returncode == 0 else None


def _recorded(python: str, program: list[str], folder: Path) -> dict[str, Any]:
    """Record a program and measure reruns of its scheduler; ``absent`` says why that was not possible."""
    tape, file = folder / "tape", folder / "scheduler.json"
    name, *words = program
    command = [sys.executable, "-m", "tapedelay", "record", "-o", str(tape), "--"]
    command += [python, str(PROGRAMS / name), *words]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if not tape.exists():
        return {"absent": (done.stderr.strip().splitlines() or ["it was not recorded"])[-1][:120]}
    found = recording_of(load_tape(tape))
    recorded = [r.as_dict() for r in found.recorded]
    file.write_text(json.dumps({"scenario": found.scenario.as_dict(), "recorded": recorded}))
    told = _measured(python, str(file))
    return {**told, "bytes": sum(p.stat().st_size for p in tape.iterdir())}


def _measured(python: str, *words: str) -> dict[str, Any]:
    command = [python, str(HERE / "rerun_steps.py"), *words]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        return {"absent": (done.stderr.strip().splitlines() or ["it failed"])[-1][:120]}
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def _show(figures: Figures, engine: str, told: dict[str, Any]) -> None:
    if "absent" in told:
        figures.absent(f"reruns of {engine}", told["absent"])
        return
    steps, strict, unchecked = told["steps"], told["strict_s"], told["unchecked_s"]
    if told["diverged"]:
        figures.absent(f"{engine}: exact", "IT DIVERGED FROM WHAT WAS RECORDED")
    else:
        remark = f"{steps:,} steps as recorded; without checks "
        remark += f"{steps / unchecked:,.0f} ({strict / unchecked:.1f} x)"
        figures.show(f"{engine}: exact", steps / strict, "steps/s", remark=remark)
    each = told["runs_steps"] / told["runs"]
    remark = f"{told['runs']} runs of a campaign, {each:,.0f} steps each"
    least = None if engine in ("the toy", "transformers") else RUNS_PER_SECOND
    figures.show(f"{engine}: perturbed", told["runs"] / told["runs_s"], "runs/s", least=least, remark=remark)
    remark = f"all {told['whole_steps']:,} steps, one abort"
    figures.show(f"{engine}: perturbed as a whole", 1 / told["whole_s"], "runs/s", remark=remark)
    if "bytes" in told:
        figures.show(f"{engine}: tape", told["bytes"] / steps, "bytes/step", most=STEP_BYTES_MAX)


def _environment() -> dict[str, str]:
    return {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
