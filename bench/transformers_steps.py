"""Steps of transformers' real scheduler with many running requests, with or without the recorder's hooks.

Runs in a Python that has transformers: ``transformers_steps.py REQUESTS STEPS [SPOOL]``. The cache, the
scheduler and the processor are the real ones; the tensors of a batch and the model are pretended. Answers as
`turns.in_turns` asks. Once in STEPS steps all requests are replaced, which is not counted.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "engines" / "programs"))

import transformers_core  # type: ignore[import-not-found]
import transformers_serve  # type: ignore[import-not-found]
from asked import answer

from tapedelay.recorder.engines.transformers import hook

PROMPT = 40


def build(requests: int, steps: int) -> Any:
    """Build a processor that runs so many requests at once."""
    core = transformers_core.processor(
        transformers_serve.llama(),
        num_blocks=2 * requests * (PROMPT + steps) // transformers_core.BLOCK_TOKENS,
        max_batch_tokens=16384,
        max_requests_per_batch=requests,
    )
    return transformers_core.Run(core, random.Random(0), left=0, longest=1 << 20)


def fill(run: Any, requests: int, steps: int) -> None:
    """Have so many requests arrive, of different lengths, and go on until all of them decode."""
    for i in range(requests):
        length = PROMPT + i % transformers_core.BLOCK_TOKENS
        state = transformers_core.requests.RequestState(
            request_id=f"{run.steps:06d}-{i}",
            initial_tokens=[transformers_core.content(i, p) for p in range(length)],
            max_new_tokens=steps + 40,
            eos_token_id=transformers_core.END,
        )
        run.live.append(state.request_id)
        run.core.input_queue.put(state)
    active = run.core.scheduler.active_requests
    while len(active) < requests or any(not state.generated_tokens for state in active.values()):
        run.step()


def main(requests: str, steps: str, spool: str = "") -> None:
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    if spool:
        os.environ["TAPEDELAY_SPOOL"] = spool
        hook.start(None)
    run = build(int(requests), int(steps))

    def refill() -> int:
        before = run.steps
        for key in run.live:
            run.core.cancel_queue.put(key)
        run.step()
        fill(run, int(requests), int(steps))
        return int(run.steps - before)

    answer(refill, int(steps), run.step)


if __name__ == "__main__":
    main(*sys.argv[1:])
