"""Serves requests as usual, then some with two answers each, which transformers computes as two requests.

``num_return_sequences`` makes the engine copy a request that is running: no recording tells of such copies.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

transformers: Any = importlib.import_module("transformers")
serving: Any = importlib.import_module("transformers_serve")  # beside this file


def main() -> None:
    """Serve both; print how many answers there were of the second kind."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    batching = transformers.ContinuousBatchingConfig(page_size=16, num_blocks=24, max_batch_tokens=32)
    generation = transformers.GenerationConfig(
        max_new_tokens=8,
        do_sample=True,
        eos_token_id=serving.VOCABULARY - 1,
        pad_token_id=0,
        num_return_sequences=2,
    )
    model = serving.llama()
    serving.run(model)
    manager = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=batching
    )
    manager.start()
    for at in range(3):
        manager.add_request([(7 * at + i) % 250 + 2 for i in range(20)], max_new_tokens=8)
    answers = 0
    while answers < 6:
        output = manager.get_result(timeout=60)
        if output is None:
            raise RuntimeError(f"no output for a minute after {answers}")
        answers += output.is_finished()
    manager.stop(block=True)
    print(f"answers: {answers}")


if __name__ == "__main__":
    main()
