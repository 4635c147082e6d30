"""Runs transformers' real batch processor on a model that is only pretended.

``transformers_core.py FIRST LAST [STEPS]``: a run for each seed from FIRST to LAST, each with a cache and a
scheduler of its own, driven at random. The cache, the scheduler, the offloading manager and the processor are
the real ones; only the tensors of a batch and the model behind them are not there, so that asynchronous
batching works without a GPU and hundreds of steps take a second. Prints a JSON object about each run.
"""

from __future__ import annotations

import importlib
import json
import logging
import random
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import transformers_serve as serving  # type: ignore[import-not-found]

transformers: Any = importlib.import_module("transformers")
api: Any = importlib.import_module("transformers.generation.continuous_batching.continuous_api")
requests: Any = importlib.import_module("transformers.generation.continuous_batching.requests")

END = 7
"""The token that ends a request; no other token is that small."""
BLOCK_TOKENS = 16


class Batches:
    """Stands for the tensors of the batches: moves the requests on as the engine's own does, nothing else."""

    compute_stream = None

    def __init__(self, cache: Any, **_: Any) -> None:
        self.cache = cache
        self.requests_in_batch: list[Any] = []
        self.flying: deque[tuple[list[Any], list[int]]] = deque()
        self.stops: dict[str, int] = {}
        """After how many positions each request ends by itself."""

    def prepare_batch_tensors(self, requests_in_batch: list[Any], **_: Any) -> None:
        tokens = []
        for future in requests_in_batch:
            state = future.state
            state.position_offset += future.query_length
            if future.has_new_token:
                state.tokens_to_process = [requests.TMP_TOKEN_ID]
                tokens.append(self.token(state.request_id, state.position_offset))
        self.requests_in_batch = list(requests_in_batch)
        self.flying.append((self.requests_in_batch, tokens))

    def token(self, request_id: str, position: int) -> int:
        """Return the content of an answer: that of every other request of its family."""
        if position >= self.stops.get(request_id, position + 1):
            return END
        return content(int(request_id.split("-")[1]) % 3, position)

    def next_output(self) -> None:
        """Turn to the oldest batch, as asynchronous batching does with its pairs."""
        self.requests_in_batch = self.flying[0][0]

    def prepare_batch_update(self) -> tuple[list[Any], list[int], None]:
        return (*self.flying.popleft(), None)

    def reset(self) -> None:
        self.requests_in_batch = []
        self.flying.clear()


def content(family: int, position: int) -> int:
    return 10 + (family * 89 + position * 7) % 240


def processor(model: Any, *, asynchronous: bool = False, **settings: Any) -> Any:
    """Build a processor as a manager does."""
    manager = serving.managed(model, **settings)
    manager.continuous_batching_config.use_async_batching = asynchronous  # the CPU switches it off
    saved = api.ContinuousBatchingIOs, api.ContinuousBatchingAsyncIOs
    api.ContinuousBatchingIOs = api.ContinuousBatchingAsyncIOs = Batches
    try:
        return manager._create_batch_processor()
    finally:
        api.ContinuousBatchingIOs, api.ContinuousBatchingAsyncIOs = saved


@dataclass
class Run:
    """Drives a processor as the loop of its manager does, at random moments that hang on a seed."""

    core: Any
    chance: random.Random
    left: int
    longest: int
    """Tokens of a request, at most: the cache can hold one alone."""
    depth: int = 1
    count: int = 0
    steps: int = 0
    idle: int = 0
    cancelled: int = 0
    failed: str = ""
    live: list[str] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    """All that users get."""

    def submit(self) -> None:
        chance = self.chance
        key = f"PRIVATE{chance.randrange(10**6)}-{self.count}"
        self.count += 1
        self.left -= 1
        most = chance.randrange(1, 40)
        length, family = chance.randrange(1, min(70, self.longest - most)), chance.randrange(3)
        prompt = [content(family, i) for i in range(length)]
        if chance.random() < 0.3:
            prompt[chance.randrange(length)] = 9
        if chance.random() < 0.3:
            self.core.inputs_and_outputs.stops[key] = length + chance.randrange(1, 20)
        state = requests.RequestState(
            request_id=key,
            initial_tokens=prompt,
            max_new_tokens=most,
            eos_token_id=END,
            streaming=chance.random() < 0.5,
        )
        self.live.append(key)
        self.core.input_queue.put(state)

    def cancel(self) -> None:
        for key in self.chance.sample(self.live, min(len(self.live), self.chance.choice([1, 1, 2]))):
            self.cancelled += 1
            self.core.cancel_queue.put(key)

    def disturb(self, cancels: float) -> None:
        chance = self.chance
        while self.left and len(self.live) < 10 and chance.random() < 0.4:
            self.submit()
        if self.live and chance.random() < cancels:
            self.cancel()

    def step(self) -> None:
        """Schedule a batch, and take outputs until no more of them may be outstanding."""
        batches = self.core.inputs_and_outputs
        scheduled = self.core.prepare_next_batch()
        self.steps += scheduled
        self.idle = 0 if scheduled or batches.flying else self.idle + 1
        while batches.flying and (not scheduled or len(batches.flying) >= self.depth):
            self.output()
        self.take()

    def output(self) -> None:
        self.core.inputs_and_outputs.next_output()
        self.core.update_batch()

    def take(self) -> None:
        """Take what has come for users."""
        results = self.core.output_router.output_queue
        while not results.empty():
            out = results.get()
            self.given.append([self.steps, out.request_id, list(out.generated_tokens), out.error])
        scheduler = self.core.scheduler
        self.live = [
            k for k in self.live if k in scheduler.active_requests or k in scheduler.waiting_requests
        ]

    def go(self, at_least: int, cancels: float, resets: float = 0.0) -> None:
        """Go on until nothing is left, or nothing moves any more."""
        while self.left or self.live:
            if self.steps < at_least and not self.left:
                self.left = 3
            self.disturb(cancels)
            try:
                self.step()
            except Exception as e:  # the loop gives up all requests and ends
                self.failed = type(e).__name__
                self.core.fail_all_requests(e)
                self.take()
                return
            if self.idle > 20:
                self.failed = "stall"
                return
            if self.chance.random() < resets and not self.core.inputs_and_outputs.flying:
                self.core.fail_all_requests(RuntimeError("a hard stop"))  # and another session
                self.core.reset()
                self.take()


def random_run(seed: int, at_least: int) -> tuple[Run, dict[str, Any]]:
    """Drive one processor of a configuration that hangs on the seed; return it and what it is."""
    chance = random.Random(seed)
    asynchronous = chance.random() < 0.5
    sliding = chance.random() < 0.25
    settings: dict[str, Any] = {
        "num_blocks": chance.choice([5, 6, 8, 12, 40]) * (2 if sliding else 1),
        "max_batch_tokens": chance.choice([24, 32, 64]),
        "page_size": BLOCK_TOKENS,
        "scheduler_type": chance.choice(["fifo", "prefill_first"]),
        "allow_block_sharing": chance.random() < 0.7,
    }
    model = serving.gemma() if sliding else serving.llama()
    core = processor(model, asynchronous=asynchronous, **settings)
    longest = settings["num_blocks"] // (2 if sliding else 1) * BLOCK_TOKENS
    run = Run(core, chance, left=12, longest=longest, depth=2 if asynchronous else 1)
    run.go(at_least, cancels=chance.choice([0.0, 0.03]), resets=chance.choice([0.0, 0.01]))
    return run, {"asynchronous": asynchronous, "sliding": sliding, **settings}


def main(first: str, last: str, steps: str = "120") -> None:
    """Drive a run for each seed."""
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    told = []
    for seed in range(int(first), int(last) + 1):
        run, what = random_run(seed, int(steps))
        told.append(
            {
                "seed": seed,
                **what,
                "steps": run.steps,
                "requests": run.count,
                "cancelled": run.cancelled,
                "failed": run.failed,
                "emitted": len(run.given),
            }
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
