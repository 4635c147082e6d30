"""Ask vLLM's ``LLM`` for whatever it can do, with and without hooks: ``vllm_answers.py FOLDER MARKER``.

Each part runs in processes of its own, copies of this one with vLLM imported, on a tiny model whose tokens
are bytes; its name, prompts, stop strings and grammars hold the text MARKER. What it answers, its raw
recording and its stderr lie in ``FOLDER/PART``; without hooks, in ``FOLDER/PART-plain``.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # a kernel of log probabilities would be compiled, for 10 s

import vllm_absent  # type: ignore[import-not-found]  # noqa: F401
from vllm import LLM, SamplingParams
from vllm.sampling_params import BeamSearchParams, StructuredOutputsParams
from vllm_model import bytes_model  # type: ignore[import-not-found]

from tapedelay.recorder.hook import engine_hook

PROMPTS = 4


def built(model: Path, **more: Any) -> LLM:
    return LLM(
        **{
            "model": str(model),
            "enforce_eager": True,
            "max_model_len": 320,
            "max_num_seqs": 6,
            "max_num_batched_tokens": 96,
            "block_size": 32,
            "num_gpu_blocks_override": 16,
            "seed": 0,
            "structured_outputs_config": {"backend": "xgrammar"},
        }
        | more
    )


def asked(marker: str) -> list[str]:
    return [f"{marker} says {i}, " * (1 + i % 3) for i in range(PROMPTS)]


def sampling(**about: Any) -> SamplingParams:
    return SamplingParams(**({"temperature": 1.0, "max_tokens": 24} | about))


def shown(outputs: list[Any]) -> list[Any]:
    """Return all that a user sees."""

    def chances(of: Any) -> Any:
        return of and [d and sorted((t, round(p.logprob, 4)) for t, p in d.items()) for d in of]

    return [
        [chances(o.prompt_logprobs)]
        + [
            [list(c.token_ids), c.text, c.finish_reason, c.stop_reason, chances(c.logprobs)]
            for c in o.outputs
        ]
        for o in outputs
    ]


def generated(model: Path, marker: str) -> dict[str, Any]:
    """Return answers to requests that can be rerun."""
    llm, other = built(model), built(model, num_gpu_blocks_override=24)
    asks = {
        "greedy": sampling(temperature=0),
        "several": sampling(n=3, max_tokens=60),
        "stop text": sampling(stop=["a", marker[:2], marker], max_tokens=60),
        "stop tokens": sampling(stop_token_ids=list(range(40, 80)), max_tokens=60),
        "beyond the end": sampling(ignore_eos=True, max_tokens=60),
        "at least": sampling(min_tokens=10, stop_token_ids=list(range(40, 200))),
        "chances": sampling(logprobs=3, prompt_logprobs=2, max_tokens=6),
        "bad words": sampling(bad_words=[marker, "a"]),
        "one token": sampling(max_tokens=1),
    }
    found: dict[str, Any] = {"two at once": taking_turns([llm, other], marker)}
    found |= {name: shown(llm.generate(asked(marker), ask, use_tqdm=False)) for name, ask in asks.items()}
    beams = llm.beam_search([{"prompt": p} for p in asked(marker)[:2]], BeamSearchParams(3, 6))
    found["beams"] = [[s.tokens for s in b.sequences] for b in beams]
    return found


def guided(model: Path, marker: str) -> Any:
    llm = built(model)
    grammars: list[dict[str, Any]] = [
        {"choice": [marker, "other"]},
        {"regex": f"[a-c]{{3,9}}{marker}"},
        {"json": {"type": "object", "properties": {marker: {"type": "integer"}}, "required": [marker]}},
    ]
    asks = [
        sampling(structured_outputs=StructuredOutputsParams(**g), temperature=0, max_tokens=40)
        for g in grammars
    ]
    return [shown(llm.generate(asked(marker), ask, use_tqdm=False)) for ask in asks]


def speculative(model: Path, marker: str) -> Any:
    ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
    llm = built(model, speculative_config=ngram)
    return shown(llm.generate(asked(marker), sampling(temperature=0, max_tokens=60), use_tqdm=False))


def pooled(model: Path, marker: str) -> Any:
    llm = built(model, runner="pooling", convert="embed")
    return [[round(x, 3) for x in o.outputs.embedding[:8]] for o in llm.embed(asked(marker), use_tqdm=False)]


def taking_turns(both: list[LLM], marker: str) -> Any:
    """Let two engines of one process serve at once."""
    for n in range(6):
        for llm in both:
            llm.llm_engine.add_request(f"{marker}{n}", asked(marker)[n % PROMPTS], sampling(temperature=0))
    found: list[list[Any]] = [[], []]
    while any(llm.llm_engine.has_unfinished_requests() for llm in both):
        for llm, given in zip(both, found, strict=True):
            ended = [o for o in llm.llm_engine.step() if o.finished]
            given += [[o.request_id, list(o.outputs[0].token_ids)] for o in ended]
    return found


def served(llm: LLM, marker: str) -> Any:
    return shown(llm.generate(asked(marker), sampling(), use_tqdm=False))


def forked(model: Path, marker: str) -> Any:
    """Serve in a fork of a process that has served."""
    before = served(built(model), marker)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(served(built(model), marker)))
    child.start()
    there.close()  # a child that fails is heard of
    inside = here.recv()
    child.join()
    return [before, inside, served(built(model), marker)]


PARTS: dict[str, Callable[[Path, str], Any]] = {
    f.__name__: f for f in (generated, guided, speculative, pooled, forked)
}


def apart(folder: Path, model: Path, marker: str, name: str, *, hooks: bool) -> None:
    """Run a part in a copy of this process."""
    (folder / "spool").mkdir(parents=True)
    child = os.fork()
    if not child:
        code = 1
        try:
            error = os.open(folder / "stderr", os.O_CREAT | os.O_WRONLY, 0o600)
            os.dup2(error, 1)
            os.dup2(error, 2)
            if hooks:
                os.environ["TAPEDELAY_SPOOL"] = str(folder / "spool")
                engine_hook.install()
            (folder / "told.json").write_text(json.dumps(PARTS[name](model, marker)))
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            atexit._run_exitfuncs()
            os._exit(code)
    os.waitpid(child, 0)


def main(folder: str, marker: str, *names: str) -> None:
    root = Path(folder)
    model = bytes_model(root / f"model-{marker}")
    for name in names or PARTS:
        for hooks in (False, True):
            apart(root / (name if hooks else f"{name}-plain"), model, marker, name, hooks=hooks)


if __name__ == "__main__":
    main(*sys.argv[1:])
