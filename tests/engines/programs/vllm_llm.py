"""Serve requests with vLLM's ``LLM`` on a tiny model of the CPU: ``vllm_llm.py FOLDER [STEPS] [MARKER]``.

With ``VLLM_ENABLE_V1_MULTIPROCESSING=1`` (vLLM's default) its core runs in a process of its own. The pool is
so small that requests are preempted; some are aborted. With a MARKER, a token id, every prompt begins with
eight of it. Prints one JSON object about the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path

from vllm_model import model_folder  # type: ignore[import-not-found]

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

VOCABULARY = 1000


def main(folder: str, steps: str = "360", marker: str = "") -> None:
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=str(model_folder(Path(folder) / "model", vocabulary=VOCABULARY, positions=1024, eos=2)),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=320,
        max_num_seqs=8,
        max_num_batched_tokens=96,
        block_size=32,
        num_gpu_blocks_override=22,
        enable_prefix_caching=True,
        seed=0,
    )
    engine = llm.llm_engine
    chance = random.Random(7)
    shared = [chance.randrange(10, VOCABULARY) for _ in range(96)]
    live: list[str] = []
    count = made = aborted = emitted = 0
    while made < int(steps) or engine.has_unfinished_requests():
        while made < int(steps) and len(live) < 10:
            prompt = shared[: chance.choice([0, 32, 64, 96])]
            prompt = prompt + [chance.randrange(10, VOCABULARY) for _ in range(chance.randrange(1, 90))]
            if marker:
                prompt = [int(marker)] * 8 + prompt
            sampling = SamplingParams(
                temperature=0, max_tokens=chance.randrange(1, 120), ignore_eos=True, detokenize=False
            )
            key = str(count)
            engine.add_request(key, TokensPrompt(prompt_token_ids=prompt), sampling)
            live.append(key)
            count += 1
        if live and made < int(steps) and chance.random() < 0.03:
            keys = chance.sample(live, min(len(live), 2))
            engine.abort_request(keys)
            live = [k for k in live if k not in keys]
            aborted += len(keys)
        for output in engine.step():
            emitted += 1
            if output.finished and output.request_id in live:
                live.remove(output.request_id)
        made += 1
    print(json.dumps({"requests": count, "aborted": aborted, "steps": made, "emitted": emitted}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve requests with vLLM's LLM on a tiny random model.")
    parser.add_argument("folder", metavar="FOLDER", help="where the model is written to")
    parser.add_argument("steps", metavar="STEPS", nargs="?", default="360")
    parser.add_argument("marker", metavar="MARKER", nargs="?", default="", help="a token id of every prompt")
    main(**vars(parser.parse_args()))
