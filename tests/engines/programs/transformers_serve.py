"""Serves requests with transformers' continuous batching: tiny random models on the CPU.

``transformers_serve.py NAME...`` runs these, one after the other, each with a manager of its own:
``fifo`` (a small cache: preemptions; cancelled requests; equal prompts), ``prefill_first``, ``unshared``,
``window`` (one attention type slides), ``sessions`` (one manager that is stopped and started again).
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

transformers: Any = importlib.import_module("transformers")

VOCABULARY = 256


def llama(**changes: Any) -> Any:
    """Return a model of two layers with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        **changes,
    )
    return transformers.LlamaForCausalLM(config).eval()


def gemma() -> Any:
    """Return a model in which every second layer looks back 24 tokens."""
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
    )
    return transformers.Gemma3ForCausalLM(config).eval()


def prompts(count: int) -> list[list[int]]:
    """Return prompts of 20 to 47 tokens, every third one of the same text."""
    return [[(i % 3 * 7 + j) % 250 + 2 for j in range(20 + 9 * (i % 4))] for i in range(count)]


def serve(manager: Any, cancelled: Iterable[int] = (), *, max_new_tokens: int = 30, count: int = 10) -> None:
    """Submit requests, half of them while the others run; cancel some; take all outputs."""
    cancel = set(cancelled)
    ids: list[str] = []
    waiting = prompts(count)
    left: set[str] = set()

    def submit(tokens: list[int]) -> None:
        name = f"PRIVATE-{time.monotonic_ns()}"  # no part of a recording
        added = manager.add_request(tokens, name, max_new_tokens=max_new_tokens, streaming=True)
        ids.append(added)
        left.add(added)

    for tokens in waiting[: count // 2]:
        submit(tokens)
    late = waiting[count // 2 :]
    seen = 0
    while left or late:
        output = manager.get_result(timeout=60)
        if output is None:
            raise RuntimeError(f"no output for a minute, {sorted(left)} are left")
        seen += 1
        if seen % 10 == 0 and late:
            submit(late.pop(0))
        if seen % 25 == 0 and cancel:
            index = cancel.pop()
            if index < len(ids) and ids[index] in left:
                manager.cancel_request(ids[index])
                left.discard(ids[index])
        if output.is_finished():
            left.discard(output.request_id)


def managed(model: Any, **settings: Any) -> Any:
    """Return a manager that is not started."""
    config = transformers.ContinuousBatchingConfig(
        **{"page_size": 16, "num_blocks": 12, "max_batch_tokens": 32, **settings}
    )
    greedy = transformers.GenerationConfig(max_new_tokens=30, do_sample=False, eos_token_id=7, pad_token_id=0)
    return model.init_continuous_batching(generation_config=greedy, continuous_batching_config=config)


def run(model: Any, *cancelled: int, **settings: Any) -> None:
    """Serve with one manager."""
    manager = managed(model, **settings)
    manager.start()
    serve(manager, cancelled)
    manager.stop(block=True)


def sessions() -> None:
    """Serve twice with one manager."""
    manager = managed(llama())
    for _ in range(2):
        manager.start()
        serve(manager, count=4)
        manager.stop(block=True, keep_for_next_session=True)


RUNS: dict[str, Callable[[], None]] = {
    "fifo": lambda: run(llama(), 3, 6, num_blocks=10),
    "prefill_first": lambda: run(llama(), 1, scheduler_type="prefill_first"),
    "unshared": lambda: run(llama(), allow_block_sharing=False),
    "window": lambda: run(gemma(), 2, num_blocks=8),
    "sessions": sessions,
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description="Serve requests with transformers' continuous batching.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(RUNS)}; all of them")
    names = parser.parse_args().names or list(RUNS)
    if unknown := sorted(set(names) - set(RUNS)):
        parser.error(f"no run {unknown[0]!r}: choose from {', '.join(RUNS)}")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in names:
        RUNS[name]()
        print(f"served: {name}", flush=True)


if __name__ == "__main__":
    main()
