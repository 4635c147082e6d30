"""Steps of vLLM's real scheduler with many running requests, with and without the recorder's hooks.

Runs in a Python that has vLLM: ``vllm_steps.py FOLDER SPOOL REQUESTS STEPS``. The engine, its scheduler and
its KV cache are vLLM's own; only the model is pretended. Both ways run in turns in one process, so that they
meet the same machine. Prints one JSON object with processor times.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "engines" / "programs"))

import vllm_core  # type: ignore[import-not-found]
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched import scheduler as module
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore

from tapedelay.recorder.engines.vllm import recording

ROUNDS = 5


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


def serve(core: EngineCore, requests: int, steps: int) -> list[float]:
    """Return the processor time of each step in which all requests decode, in ms."""
    for i in range(requests):
        core.add_request(*core.preprocess_add_request(_request(f"{i:06d}-{i}", steps + 40)))
    while any(r.is_prefill_chunk or not r.num_computed_tokens for r in core.scheduler.requests.values()):
        core.step_fn()
    times = []
    for _ in range(steps):
        begin = time.process_time()
        core.step_fn()
        times.append(1e3 * (time.process_time() - begin))
    core.abort_requests(list(core.scheduler.requests))
    core.step_fn()
    return times


def _request(key: str, most: int) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=key,
        prompt_token_ids=[vllm_core.token(int(key.split("-")[1]), i) for i in range(40)],
        mm_features=None,
        sampling_params=SamplingParams(temperature=0, max_tokens=most, ignore_eos=True, detokenize=False),
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )


def main(folder: str, spool: str, requests: str, steps: str) -> None:
    plain: list[float] = []
    hooked: list[float] = []
    without = engine(Path(folder), int(requests))
    os.environ["TAPEDELAY_SPOOL"] = spool
    recording.start(module)
    core = engine(Path(folder), int(requests))
    for _ in range(ROUNDS):
        plain.append(statistics.median(serve(without, int(requests), int(steps))))
        hooked.append(statistics.median(serve(core, int(requests), int(steps))))
    written = sum(p.stat().st_size for p in Path(spool).glob("requests-*.frames"))
    result: dict[str, Any] = {
        # what else the machine does only adds to a round
        "plain_ms": min(plain),
        "hooked_ms": min(hooked),
        "bytes_per_step": written / core.scheduler.current_step,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
