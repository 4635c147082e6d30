"""What the hooks cost vLLM's real scheduler, per step; needs a Python that has vLLM."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from figures import Figures
from reruns import engine_python

__all__ = ["vllm_hook"]

RUNNING = 256
STEP_MS_MAX = 0.5
STEP_BYTES_MAX = 2000


def vllm_hook(folder: Path, figures: Figures, *, quick: bool) -> None:
    """Print what a step of 256 decoding requests costs more with the hooks, and what it writes."""
    what = f"vLLM's own scheduler, {RUNNING} running, hooks"
    python = engine_python("vllm")
    if python is None:
        figures.absent(what, "vllm is not installed: make engine-vllm")
        return
    spool = folder / "vllm-spool"
    spool.mkdir()
    program = Path(__file__).parent / "vllm_steps.py"
    words = [str(folder / "vllm"), str(spool), str(RUNNING), "50" if quick else "300"]
    env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run([python, str(program), *words], env=env, capture_output=True, text=True)
    if done.returncode:
        figures.absent(what, (done.stderr.strip().splitlines() or ["it failed"])[-1][:120])
        return
    told = json.loads(done.stdout.strip().splitlines()[-1])
    remark = f"beside {told['plain_ms']:.2f} ms that its scheduler takes without, model pretended"
    figures.show(what, told["more_ms"], "ms/step", most=STEP_MS_MAX, remark=remark)
    figures.show("raw recording of vLLM", told["bytes_per_step"], "B/step", most=STEP_BYTES_MAX)
