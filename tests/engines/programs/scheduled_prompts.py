"""An engine of two halves: a scheduler recorded through the API, and llama.cpp that computes its steps."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

from tapedelay.recorder.requests import PoolRow, SchedulerRecorder

STEPS = 4


def main(programs: str, model: str) -> None:
    """Decode one prompt per step, between the step and its output; one more step has nothing to compute."""
    sys.path.insert(0, programs)
    import xllamacpp

    llama_prompt: Any = importlib.import_module("llama_prompt")

    options = SimpleNamespace(
        model=model, context=256, ubatch=32, gpu_layers=99, threads=1, kv_host=False, split_mode="layer",
        verbosity=0, defaults=False,
    )  # fmt: skip
    server = xllamacpp.Server(llama_prompt._params(xllamacpp, options))
    recorder = SchedulerRecorder("halves", "1", {"slots": 1}, [PoolRow("kv", 16, 1, 16)])
    for step in range(STEPS):
        key = f"request {step}"
        recorder.submit(key, prompt_tokens=8)
        recorder.begin("step")
        recorder.schedule([(key, 8, 0, True)])
        recorder.end()
        answer: Any = server.handle_completions(
            {"prompt": [5 + step] * 8, "max_tokens": 1, "temperature": 0, "cache_prompt": False}
        )
        assert b"choices" in answer if isinstance(answer, bytes) else "choices" in answer
        recorder.begin("output")
        recorder.answers([(key, 1, "length")])
        recorder.decision("finish", key)
        recorder.end()
    recorder.begin("step", step=STEPS)
    recorder.schedule([])
    recorder.end()
    recorder.begin("output", step=STEPS)
    recorder.answers([])
    recorder.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
