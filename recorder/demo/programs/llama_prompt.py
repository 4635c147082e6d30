"""Run one prompt through llama.cpp (xllamacpp) and print what came out, as one line of JSON.

An ordinary program of an ordinary user: it imports the engine and nothing of this toolkit, and it runs the
same whether somebody records it or not::

    python llama_prompt.py --model model.gguf --prompt "Three facts about the sea:" --n-predict 24

The line holds ``tokens`` (ids), ``logprobs``, ``text``, ``prompt_tokens``, ``devices`` and how long it took
(``load_seconds``, ``seconds``, ``cpu_seconds``: the last two for the prompt and what it predicts).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

CONTEXT_TOKENS = 1024
BATCH_TOKENS = 2048
SPLIT_MODES = ("none", "layer", "row", "tensor")


def main(arguments: list[str] | None = None) -> int:
    """Run the prompt; return 0, or 1 with the engine's answer on stderr."""
    options = _parser().parse_args(arguments)
    import xllamacpp as engine

    load_start = time.perf_counter()
    try:
        server = engine.Server(_params(engine, options))
    except RuntimeError as error:
        print(f"the engine refused the model or its settings: {error}", file=sys.stderr)
        return 1
    load_seconds = time.perf_counter() - load_start
    prompt: str | list[int] = options.prompt
    if options.prompt_file:
        prompt = options.prompt_file.read_text(encoding="utf-8").strip()
    if options.prompt_tokens:
        prompt = [(i * 37 + 11) % 512 for i in range(options.prompt_tokens)]
    request = {
        "prompt": prompt,
        "max_tokens": options.n_predict,
        "temperature": 0,
        "seed": 1,
        "logprobs": 1,
        "n_probs": 1,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    answers = []
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(options.repeat):
        answer: Any = server.handle_completions(request)
        answers.append(json.loads(answer) if isinstance(answer, str | bytes) else answer)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    for answer in answers:
        if "choices" not in answer:
            print(f"the engine refused the prompt: {json.dumps(answer)[:500]}", file=sys.stderr)
            return 1
    result = _result(answers[-1])
    result["repeats_equal"] = all(_result(answer) == _result(answers[0]) for answer in answers)
    result["devices"] = [device["name"] for device in engine.get_device_info()]
    result["load_seconds"] = round(load_seconds, 3)
    result["seconds"] = round(seconds, 3)
    result["cpu_seconds"] = round(cpu_seconds, 4)
    # One write: threads of one process may print at once, and print() writes the newline by itself.
    print(json.dumps(result) + "\n", end="", flush=True)
    return 0


def _params(engine: Any, options: argparse.Namespace) -> Any:
    params = engine.CommonParams()
    params.model.path = options.model
    params.n_ctx = options.context
    params.n_batch = min(options.context, BATCH_TOKENS)
    params.n_ubatch = options.ubatch
    params.n_gpu_layers = options.gpu_layers
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.no_kv_offload = options.kv_host
    params.split_mode = getattr(engine.llama_split_mode, f"LLAMA_SPLIT_MODE_{options.split_mode.upper()}")
    params.verbosity = options.verbosity
    # What would make one run differ from the next: fitting to free memory, a warm-up batch, prompt caches,
    # repacked weights.
    if not options.defaults:
        params.fit_params = False
        params.warmup = False
        params.cache_prompt = False
        params.no_extra_bufts = True
    return params


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    choice = answer["choices"][0]
    content = (choice.get("logprobs") or {}).get("content") or []
    return {
        "tokens": [entry["id"] for entry in content],
        "logprobs": [round(entry["logprob"], 6) for entry in content],
        "text": choice["text"],
        "prompt_tokens": (answer.get("usage") or {}).get("prompt_tokens"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="GGUF file")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", help="text of the prompt")
    prompt.add_argument("--prompt-file", type=Path, help="or a file that holds it")
    prompt.add_argument("--prompt-tokens", type=int, default=0, help="or so many tokens of a fixed series")
    parser.add_argument("--n-predict", type=int, default=12, help="tokens to predict, greedily")
    parser.add_argument("--repeat", type=int, default=1, help="run the prompt so many times")
    parser.add_argument("--context", type=int, default=CONTEXT_TOKENS, help="tokens of the context")
    parser.add_argument("--ubatch", type=int, default=512, help="tokens per ubatch")
    parser.add_argument("--gpu-layers", type=int, default=99, help="layers on devices; 0 = all on the CPU")
    parser.add_argument("--kv-host", action="store_true", help="keep KV and recurrent state in host memory")
    parser.add_argument(
        "--split-mode", choices=SPLIT_MODES, default="layer", help="how devices share the model"
    )
    parser.add_argument("--defaults", action="store_true", help="leave the engine's other settings alone")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--verbosity", type=int, default=0, help="of the engine")
    return parser


if __name__ == "__main__":
    sys.exit(main())
