"""Break the hooks of transformers' continuous batching: ``transformers_broken.py FOLDER``.

See `broken_hooks`.
"""

from __future__ import annotations

import json
import logging
import random
import sys
from pathlib import Path
from typing import Any

import broken_hooks  # type: ignore[import-not-found]
import transformers_core as engine  # type: ignore[import-not-found]
import transformers_serve as serving  # type: ignore[import-not-found]

from tapedelay.recorder.engines.transformers import hook, watch

MODEL = serving.llama()


def serve() -> list[Any]:
    """Serve with two schedulers; each fails and resets at the end, one has a request that is too long."""
    told = []
    for asynchronous in (False, True):
        core = engine.processor(
            MODEL, asynchronous=asynchronous, num_blocks=6, max_batch_tokens=24, page_size=16
        )
        run = engine.Run(core, random.Random(4), left=6, longest=96, depth=2 if asynchronous else 1)
        run.go(0, cancels=0.0 if asynchronous else 0.05)
        broken = []
        for length in (20, 500):
            run.left, run.longest = 2, 60
            run.submit()
            run.submit()
            core.input_queue.put(request(f"long-{length}", length))
            broken.append(until_it_fails(run, spoil=length < 100))
            core.fail_all_requests(RuntimeError("given up"))
            run.take()
            core.reset()
        told.append([run.steps, run.failed, broken, run.given])
    return told


def request(key: str, length: int) -> Any:
    return engine.requests.RequestState(request_id=f"{key}-1", initial_tokens=[9] * length, eos_token_id=7)


def until_it_fails(run: Any, *, spoil: bool) -> str:
    """Step; `spoil`: the tokens of an output are missing."""
    try:
        for step in range(20):
            if spoil and step > 1 and run.core.inputs_and_outputs.flying:
                run.core.inputs_and_outputs.flying[0][1].clear()
            run.step()
    except (RuntimeError, IndexError) as e:
        return type(e).__name__
    return ""


def main() -> None:
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)

    engine.processor(MODEL, num_blocks=6)  # what is imported by then need not be imported by every process
    tables, start = [watch.HOOKS, hook.HOOKS], lambda: hook.start(None)
    if len(sys.argv) > 1:
        print(json.dumps(broken_hooks.tried(Path(sys.argv[1]), tables, start, serve)))


if __name__ == "__main__":
    main()
