"""What the hooks cost each engine's real scheduler, per step; needs Pythons that have the engines."""

from __future__ import annotations

from pathlib import Path

from figures import Figures
from reruns import engine_python
from turns import in_turns

__all__ = ["engine_hooks"]

RUNNING = 256
STEP_MS_MAX = 0.5
STEP_BYTES_MAX = 2000
PAIRS = 7
STEPS = 160
"""Of one process."""
ENGINES = {"vllm": "vLLM", "deepinfer": "DeepInfer", "transformers": "transformers"}


def engine_hooks(folder: Path, figures: Figures, *, quick: bool) -> None:
    """Print what a step of 256 decoding requests costs more with the hooks, and what it writes."""
    for engine, named in ENGINES.items():
        what = f"hooks in the scheduler of {named}"
        python = engine_python(engine)
        if python is None:
            figures.absent(what, f"{engine} is not installed: make engine-{engine}")
            continue
        words = [python, str(Path(__file__).parent / f"{engine}_steps.py")]
        words += [str(folder / engine)] * (engine == "vllm")
        try:
            spool = folder / f"{engine}-spool"
            told = in_turns([*words, str(RUNNING), str(STEPS)], spool, STEPS, 3 if quick else PAIRS)
        except RuntimeError as e:
            figures.absent(what, str(e)[:120])
            continue
        remark = (
            f"{RUNNING} running; {told.least_ms:.2f} to {told.most_ms:.2f} by process; beside "
            f"{told.plain_ms:.2f} ms that it takes without, model pretended"
        )
        figures.show(what, told.more_ms, "ms/step", most=STEP_MS_MAX, remark=remark)
        figures.show(f"raw recording of {named}", told.bytes_per_step, "B/step", most=STEP_BYTES_MAX)
