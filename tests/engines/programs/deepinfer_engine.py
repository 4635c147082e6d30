"""DeepInfer's scheduler with what its ``LLMEngine`` does around it, but for the model: requests are served.

usage: deepinfer_engine.py CONFIGURATION

Nothing is aborted, and the cache is large enough that nothing is preempted, but for the configurations
``disturbed`` and ``aborted``. Prints one JSON object: steps,
the counts of preempted and aborted requests, free units of each pool at the end and at the start.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

os.environ["DEEPINFER_USE_NEXTN_DECODE"] = "0"
os.environ["DEEPINFER_CPP_LOG_LEVEL"] = "off"

import numpy as np
import torch
import torch.distributed as dist
from deepinfer._C.engine import BlockManager, Scheduler, Sequence, SequenceMetadataPool, process_MTPInfo
from deepinfer.sampling_params import SamplingParams

EOS = 1
VOCABULARY = 32_000
MARKER = 31_337
"""A token that stands in every prompt and answer, for tests of privacy."""
MARKER_TEXT = "confidential-request"


@dataclass(frozen=True)
class Request:
    """One request: lengths, the step before which it arrives, the one before which its images are ready."""

    prompt: int
    tokens: int
    at: int = 0
    images_at: int | None = None


@dataclass(frozen=True)
class Configuration:
    """What a scheduler is built with, and its requests."""

    requests: tuple[Request, ...]
    blocks: int = 41
    states: int = 0
    budget: int = 8
    seqs: int = 4
    interval: int = 2
    overlap: bool = False
    block_tokens: int = 4
    longest: int = 64
    """Tokens of a request."""
    aborts: tuple[tuple[int, int], ...] = ()
    """Before which step which request."""
    decode_only: tuple[int, ...] = ()
    """Steps that another rank of the engine allows no prompt in."""


_LONG = (Request(30, 3), Request(6, 12), Request(22, 5, 3), Request(5, 9, 4), Request(27, 4, 9))
_BESIDE = (Request(4, 12), Request(4, 12), Request(12, 2, 1), Request(10, 6, 4))
_IMAGES = (Request(4, 8), Request(12, 3, 0, 14), Request(4, 8, 1), Request(20, 4, 3, 9))
_DISTURBED = tuple(Request(3 + 5 * i % 6, 6 + 3 * i % 7, 3 * i) for i in range(120))
_ABORTS = tuple((9 * i + 5, 3 * i + i % 3) for i in range(40))
_DECODE_ONLY = tuple(range(5, 400, 9))
CONFIGURATIONS = {
    "chunked": Configuration(_LONG),
    "chunked-states": Configuration(_LONG, states=8),
    "chunked-overlap": Configuration(_LONG, states=8, overlap=True),
    "beside": Configuration(_BESIDE, blocks=14, budget=4),
    "beside-states": Configuration(_BESIDE, blocks=14, budget=4, states=8),
    "beside-overlap": Configuration(_BESIDE, blocks=14, budget=4, overlap=True),
    "images": Configuration(_IMAGES, blocks=25, budget=16),
    # Between two chunks of its prompt, which this release does not clean up after.
    "aborted": Configuration(_LONG, states=8, aborts=((2, 0),)),
    # No prompt takes two steps: what is known to go wrong with those would end the recording.
    "disturbed": Configuration(
        _DISTURBED, blocks=13, budget=96, seqs=5, aborts=_ABORTS, decode_only=_DECODE_ONLY
    ),
    "disturbed-states": Configuration(
        _DISTURBED, blocks=13, states=6, budget=96, seqs=5, aborts=_ABORTS, decode_only=_DECODE_ONLY
    ),
    "disturbed-overlap": Configuration(
        _DISTURBED,
        blocks=13,
        states=6,
        budget=96,
        seqs=5,
        overlap=True,
        aborts=_ABORTS,
        decode_only=_DECODE_ONLY,
    ),
    "many": Configuration(
        tuple(Request(3 + 7 * i % 40, 5 + 3 * i % 20, i) for i in range(64)),
        blocks=513,
        budget=64,
        seqs=16,
        interval=4,
    ),
}


class Engine:
    """``LLMEngine``, ``Worker`` and a model that is always right, in one."""

    def __init__(self, configuration: Configuration) -> None:
        self.overlap = configuration.overlap
        os.environ["DEEPINFER_ZERO_OVERHEAD_SCHEDULING"] = str(int(self.overlap))
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.blocks = BlockManager(configuration.blocks)
        self.states = BlockManager(configuration.states) if configuration.states else None
        settings = SimpleNamespace(
            max_model_len=configuration.longest,
            runtime_max_model_len=configuration.longest + 16,
            max_num_batched_tokens=configuration.budget,
            max_num_seqs=configuration.seqs,
            stop_preempted_request=False,
            chunked_prefill=True,
            engine_type=0,
            prefill_attempt_interval=configuration.interval,
            prefill_any_attempt_interval=configuration.interval + 1,
        )
        self.block_tokens = configuration.block_tokens
        self.scheduler = Scheduler(
            self.block_tokens, self.blocks, self.states, EOS,
            dist.new_group(ranks=[0], backend="gloo"), settings, 0, 0, 2**30, None, [], 1, VOCABULARY, False,
        )  # fmt: skip
        self.pool = SequenceMetadataPool()
        self.sequences: list[Any] = []
        self.before: Any = None
        self.random = np.random.default_rng(5)

    def add_request(self, request: Request) -> Any:
        number = len(self.sequences)
        prompt = self.random.integers(2, VOCABULARY, request.prompt, dtype=np.int32)
        prompt[request.prompt // 2] = MARKER
        sequence = Sequence(
            seq_id=number, prompt_token_ids=prompt, compressed_prompt_token_ids=prompt,
            multi_modal_data=None if request.images_at is None else {"image": 1},
            block_size=self.block_tokens,
            request_id=f"{MARKER_TEXT}-{number}", user_id=MARKER_TEXT,
            sampling_params=SamplingParams(max_tokens=request.tokens, eos_id=EOS), arrival_time=0.0,
            golden_token_ids=None,
        )  # fmt: skip
        self.sequences.append(sequence)
        if request.images_at is not None:
            assert self.scheduler.try_allocate_seq(sequence)
        self.scheduler.add_sequence(sequence)
        return sequence

    def step(self) -> None:
        """Do one call of ``LLMEngine.step``: its order of schedule, outputs and releases."""
        metadata, outputs = self.scheduler.schedule(self.pool)
        self._post_process(self.before)
        self.before = None
        for sequence in outputs.finished_seqs:
            self.scheduler.free_seq(sequence)
        if outputs.prompt_run or not self.overlap:
            self._post_process((metadata, outputs))
        else:
            self.before = (metadata, outputs)

    def flush(self) -> None:
        self._post_process(self.before)
        self.before = None

    def _post_process(self, step: Any) -> None:
        if step is None:
            return
        metadata, outputs = step
        n = len(outputs.scheduled_seqs)
        process_MTPInfo(outputs, False, torch.zeros((n, 0), dtype=torch.int32), None)
        answers = torch.full((n,), MARKER, dtype=torch.int32)
        self.scheduler.process_outputs(outputs, torch.empty(0, dtype=torch.int32), answers, None)
        self.pool.release(metadata)

    def free(self) -> dict[str, int]:
        counts = {"kv": self.blocks.get_num_free_blocks()}
        if self.states is not None:
            counts["state"] = self.states.get_num_free_blocks()
        return counts


def serve(configuration: Configuration, engine: Engine | None = None) -> dict[str, Any]:
    """Serve every request; return what came of it."""
    engine = engine or Engine(configuration)
    start = engine.free()
    coming = list(configuration.requests)
    images: dict[int, list[str]] = {}
    steps = 0
    while coming or engine.scheduler.has_unfinished_seqs():
        while coming and min(r.at for r in coming) <= steps:
            request = min(coming, key=lambda r: r.at)
            coming.remove(request)
            sequence = engine.add_request(request)
            if request.images_at is not None:
                images.setdefault(request.images_at, []).append(sequence.request_id)
        for name in images.pop(steps, ()):
            engine.scheduler.set_schedulable(name)
        for at, number in configuration.aborts:
            if at == steps and number < len(engine.sequences):
                engine.scheduler.abort_sequence([engine.sequences[number].request_id])
        if steps in configuration.decode_only:
            engine.scheduler.decode_step = 1
        engine.step()
        steps += 1
        assert steps < 5000, "no progress"
    engine.flush()
    # what ended last is freed by the step after it
    engine.step()
    engine.flush()
    return {
        "steps": steps + 1,
        "preempted": engine.scheduler.get_num_preempted_seqs(),
        "aborted": engine.scheduler.get_num_aborted_seqs(),
        "free": engine.free(),
        "start": start,
        "lengths": [s.get_len() for s in engine.sequences],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve requests with DeepInfer's scheduler, without model.")
    parser.add_argument("configuration", choices=CONFIGURATIONS)
    print(json.dumps(serve(CONFIGURATIONS[parser.parse_args().configuration])))
