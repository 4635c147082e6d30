"""What the hooks cost vLLM's real scheduler, per step; needs a Python that has vLLM."""

from __future__ import annotations

from pathlib import Path

from figures import Figures
from reruns import engine_python
from turns import in_turns

__all__ = ["vllm_hook"]

RUNNING = 256
STEP_MS_MAX = 0.5
STEP_BYTES_MAX = 2000
EACH = 300
"""Steps after which all requests are replaced."""


def vllm_hook(folder: Path, figures: Figures, *, quick: bool) -> None:
    """Print what a step of 256 decoding requests costs more with the hooks, and what it writes."""
    what = f"vLLM's own scheduler, {RUNNING} running, hooks"
    python = engine_python("vllm")
    if python is None:
        figures.absent(what, "vllm is not installed: make engine-vllm")
        return
    program = str(Path(__file__).parent / "vllm_steps.py")
    words = [python, program, str(folder / "vllm"), str(RUNNING), str(EACH)]
    try:
        told = in_turns(words, folder / "vllm-spool", EACH if quick else 5 * EACH)
    except RuntimeError as e:
        figures.absent(what, str(e)[:120])
        return
    remark = f"beside {told.plain_ms:.2f} ms that its scheduler takes without, model pretended"
    figures.show(what, told.more_ms, "ms/step", most=STEP_MS_MAX, remark=remark)
    figures.show("raw recording of vLLM", told.bytes_per_step, "B/step", most=STEP_BYTES_MAX)
