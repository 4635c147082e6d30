"""Steps of vLLM's real scheduler with many running requests, with or without the recorder's hooks.

Runs in a Python that has vLLM: ``vllm_steps.py FOLDER REQUESTS STEPS [SPOOL]``. The engine, its scheduler and
its KV cache are vLLM's own; only the model is pretended. Steps as `turns.in_turns` asks: so two of these take
turns and meet the same machine, each in a process of its own, as an engine is.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "engines" / "programs"))

import vllm_core  # type: ignore[import-not-found]
from asked import answer
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched import scheduler as module
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore

from tapedelay.recorder.engines.vllm import recording


def engine(folder: Path, requests: int) -> EngineCore:
    """Build an engine that runs so many requests at once."""
    config = EngineArgs(
        model=str(vllm_core.model_folder(folder / "model")),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=2048,
        max_num_seqs=requests,
        max_num_batched_tokens=16384,
        num_gpu_blocks_override=requests * 24,
        enable_prefix_caching=True,
        disable_log_stats=True,
    ).create_engine_config()
    config.cache_config.block_size = vllm_core.BLOCK_TOKENS
    core = EngineCore(config, vllm_core.FakeExecutor, log_stats=False)
    core.model_executor.scheduler = core.scheduler
    return core


def fill(core: EngineCore, requests: int, steps: int) -> None:
    """Have so many requests arrive, and go on until all of them decode."""
    for i in range(requests):
        core.add_request(*core.preprocess_add_request(_request(f"{i:06d}-{i}", steps + 40)))
    while any(r.is_prefill_chunk or not r.num_computed_tokens for r in core.scheduler.requests.values()):
        core.step_fn()


def empty(core: EngineCore) -> None:
    """Abort all."""
    core.abort_requests(list(core.scheduler.requests))
    core.step_fn()


def _request(key: str, most: int) -> EngineCoreRequest:
    number = int(key.split("-")[1])  # lengths differ: in every step some requests fill a block
    return EngineCoreRequest(
        request_id=key,
        prompt_token_ids=[vllm_core.token(number, i) for i in range(40 + number % vllm_core.BLOCK_TOKENS)],
        mm_features=None,
        sampling_params=SamplingParams(temperature=0, max_tokens=most, ignore_eos=True, detokenize=False),
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def main(folder: str, requests: str, steps: str, spool: str = "") -> None:
    if spool:
        os.environ["TAPEDELAY_SPOOL"] = spool
        recording.start(module)
    core = engine(Path(folder), int(requests))

    def refill() -> int:
        before = core.scheduler.current_step
        empty(core)
        fill(core, int(requests), int(steps))
        return int(core.scheduler.current_step - before)

    answer(refill, int(steps), core.step_fn)


if __name__ == "__main__":
    main(*sys.argv[1:])
