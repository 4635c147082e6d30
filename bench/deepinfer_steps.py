"""Steps of DeepInfer's real scheduler with many running requests, with or without the recorder's hooks.

Runs in a Python that has DeepInfer: ``deepinfer_steps.py REQUESTS STEPS [SPOOL]``. The scheduler is the real
one, with what ``LLMEngine`` does around it; the model is pretended. Answers as `turns.in_turns` asks. Once in
STEPS steps all requests are replaced, which is not counted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "engines" / "programs"))

import deepinfer_engine  # type: ignore[import-not-found]
from asked import answer
from deepinfer import _C

from tapedelay.recorder.engines.deepinfer import hooks

PROMPT = 40
BLOCK_TOKENS = 16


def build(requests: int, steps: int) -> Any:
    """Build an engine that runs so many requests at once."""
    longest = PROMPT + 2 * steps
    configuration = deepinfer_engine.Configuration(
        (),
        blocks=2 * requests * longest // BLOCK_TOKENS,
        budget=16384,
        seqs=requests,
        block_tokens=BLOCK_TOKENS,
        longest=longest,
    )
    return deepinfer_engine.Engine(configuration)


def fill(engine: Any, requests: int, steps: int) -> int:
    """Have so many requests arrive, of different lengths, and go on until all decode; return the steps."""
    for i in range(requests):
        engine.add_request(deepinfer_engine.Request(PROMPT + i % BLOCK_TOKENS, steps + 40))
    made = 0
    while len(engine.scheduler.running) < requests:
        engine.step()
        made += 1
    return made


def empty(engine: Any) -> int:
    """Abort all that are left; return the steps."""
    if not engine.sequences:
        return 0
    engine.scheduler.abort_sequence([s.request_id for s in engine.sequences])
    engine.sequences.clear()
    engine.step()
    engine.step()
    return 2


def main(requests: str, steps: str, spool: str = "") -> None:
    if spool:
        os.environ["TAPEDELAY_SPOOL"] = spool
        hooks.start(_C)
    engine = build(int(requests), int(steps))

    def refill() -> int:
        return empty(engine) + fill(engine, int(requests), int(steps))

    answer(refill, int(steps), engine.step)


if __name__ == "__main__":
    main(*sys.argv[1:])
