"""Run vLLM's real EngineCore on a model that is only pretended.

``vllm_core.py KIND,... FOLDER [REQUESTS [SEED [STEPS]]]``; each KIND is a word of `KINDS`. The scheduler, its
KV cache manager and the engine's loop are the real ones; only the executor is fake, so that asynchronous
scheduling works without a GPU and hundreds of steps take a second. Prompts and answers share content in part.
Prints a JSON object about each run; what no recording may hold goes to ``FOLDER/secrets.json``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import vllm_model  # type: ignore[import-not-found]
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput

KINDS = (
    "sync", "async", "priority", "priority-async", "sessions", "sessions-async", "sessions-priority", "plain",
)  # fmt: skip
"""What a run does; ``plain``: nothing is aborted or preempted."""

VOCABULARY = 997
EOS = 5
BLOCK_TOKENS = 16


def model_folder(folder: Path) -> Path:
    """Write the configuration of a model that nobody loads."""
    vllm_model.model_folder(folder, vocabulary=VOCABULARY + 3, positions=4096, eos=EOS)
    return folder


class FakeExecutor(Executor):  # type: ignore[misc]
    """Gives every request whose known tokens are computed one token that hangs on its content."""

    scheduler: Any = None

    def _init_executor(self) -> None:
        self.scheduled: SchedulerOutput | None = None
        self.stops: dict[str, int] = {}

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        import torch

        size = self.vllm_config.cache_config.block_size
        spec = FullAttentionSpec(block_size=size, num_kv_heads=2, head_size=32, dtype=torch.float32)
        return [{"layer0": spec}]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["NHD"]]

    def determine_available_memory(self) -> list[int]:
        return [1 << 30]

    def collective_rpc(self, method: Any, *args: Any, non_block: bool = False, **kwargs: Any) -> Any:
        return []

    def set_kv_cache_layout(self, layout_name: str) -> None: ...

    def initialize_from_config(self, kv_cache_configs: Any) -> None: ...

    def compile_or_warm_up_model(self) -> None: ...

    def check_health(self) -> None: ...

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        self.scheduled = scheduler_output
        if scheduler_output.total_num_scheduled_tokens == 0:
            empty = ModelRunnerOutput(req_ids=[], req_id_to_index={})
            return _done(empty) if non_block else empty
        return _done(None) if non_block else None

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        assert self.scheduled is not None
        ids = list(self.scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={key: i for i, key in enumerate(ids)},
            sampled_token_ids=[self._token(key) for key in ids],
        )
        return _done(output) if non_block else output

    def _token(self, key: str) -> list[int]:
        request = self.scheduler.requests[key]
        if request.is_prefill_chunk:
            return []
        produced = request.num_computed_tokens - request.num_prompt_tokens
        if self.stops.get(key) == produced:
            return [EOS]
        return [token(family_of(key), request.num_computed_tokens)]


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def token(family: int, position: int) -> int:
    """Return the content at a position; requests of a family have the same."""
    digest = hashlib.blake2b(f"{family}:{position}".encode(), digest_size=4).digest()
    return 10 + int.from_bytes(digest, "little") % (VOCABULARY - 10)


def family_of(key: str) -> int:
    return int(key.split("-")[1]) % 5


def engine(kind: str, folder: Path) -> EngineCore:
    """Build the real engine around the fake executor."""
    block_tokens = 1 if "units" in kind else BLOCK_TOKENS
    args = EngineArgs(
        model=str(model_folder(folder / "model")),
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=384,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=(200 if kind == "plain" else 32) * BLOCK_TOKENS // block_tokens,
        enable_prefix_caching=True,
        enable_chunked_prefill=True,
        scheduling_policy="priority" if "priority" in kind else "fcfs",
        disable_log_stats=True,
    )
    config = args.create_engine_config()
    config.scheduler_config.async_scheduling = kind.endswith("async")  # the CPU platform switches it off
    config.cache_config.block_size = block_tokens
    core = EngineCore(config, FakeExecutor, log_stats=False)
    core.model_executor.scheduler = core.scheduler
    return core


class Run:
    """Drives the engine as its frontend would, at random moments that hang on a seed."""

    def __init__(self, kind: str, core: EngineCore, requests: int, seed: int) -> None:
        self.kind = kind
        self.core = core
        self.chance = random.Random(seed)
        self.left = requests
        self.count = 0
        self.steps = 0
        self.aborted = 0
        self.resets = 0
        self.emitted = 0
        self.live: list[str] = []
        self.chunks: dict[str, int] = {}
        self.paused = 0
        self.secrets: dict[str, list[Any]] = {"ids": [], "hashes": [], "prompts": []}
        """What no recording may hold."""

    def submit(self) -> None:
        chance = self.chance
        key = f"secret{chance.randrange(10**6)}-{self.count}"
        self.count += 1
        self.left -= 1
        session = self.kind.startswith("sessions") and chance.random() < 0.6
        if session:
            self.chunks[key] = chance.randrange(1, 4)
        self.live.append(key)
        if chance.random() < 0.2:
            self.core.model_executor.stops[key] = chance.randrange(1, 12)
        self._send(key, self.prompt(key), session, priority=chance.randrange(3))

    def prompt(self, key: str) -> list[int]:
        chance = self.chance
        family = family_of(key)
        shared = [token(family, i) for i in range(chance.choice([0, 16, 32, 48, 70]))]
        own = [10 + chance.randrange(VOCABULARY - 10) for _ in range(chance.randrange(1, 60))]
        return shared + (own if chance.random() < 0.7 or not shared else [])

    def _send(self, key: str, prompt: list[int], session: bool, priority: int = 0) -> None:
        sampling = SamplingParams(
            temperature=0, max_tokens=self.chance.randrange(1, 40), ignore_eos=False, detokenize=False
        )
        sampling.update_from_generation_config({}, eos_token_id=EOS)
        request = EngineCoreRequest(
            request_id=key,
            prompt_token_ids=prompt,
            mm_features=None,
            sampling_params=sampling,
            pooling_params=None,
            arrival_time=1000.0 + self.count // 3,  # ties, so that the id decides
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=priority,
            resumable=session,
        )
        made, wave = self.core.preprocess_add_request(request)
        self.secrets["ids"].append(key)
        self.secrets["hashes"] += [h.hex() for h in made.block_hashes]
        self.secrets["prompts"].append(prompt)
        self.core.add_request(made, wave)

    def chunk(self) -> None:
        key = self.chance.choice(list(self.chunks))
        if key not in self.core.scheduler.requests:
            del self.chunks[key]
            return
        self.chunks[key] -= 1
        last = self.chunks[key] <= 0
        if last:
            del self.chunks[key]
        self._send(key, self.prompt(key), not last)

    def abort(self) -> None:
        count = min(len(self.live), self.chance.choice([1, 1, 2, 3]))
        keys = self.chance.sample(self.live, count)
        self.aborted += count
        if self.chance.random() < 0.5:
            self.core.aborts_queue.put_nowait(keys)  # between a step and its output
        else:
            self.core.abort_requests(keys)
        for key in keys:
            self.chunks.pop(key, None)

    def disturb(self) -> None:
        chance, core = self.chance, self.core
        if self.left and len(self.live) < 12 and chance.random() < 0.35:
            self.submit()
        if self.chunks and chance.random() < 0.3:
            self.chunk()
        if self.kind == "plain":
            return
        if self.live and chance.random() < 0.04:
            self.abort()
        if self.paused:
            self.paused -= 1
            if not self.paused:
                core.resume_scheduler()
        elif chance.random() < 0.02:
            core.scheduler.set_pause_state(chance.choice([PauseState.PAUSED_NEW, PauseState.PAUSED_ALL]))
            self.paused = chance.randrange(1, 6)
        if chance.random() < 0.02:
            self.resets += 1
            with contextlib.suppress(RuntimeError):  # a session that waits for its client holds blocks
                core.reset_prefix_cache(reset_running_requests=chance.random() < 0.5)

    def go(self, at_least: int) -> None:
        core = self.core
        while self.left or self.live or core.scheduler.has_requests():
            self.disturb()
            if self.steps < at_least and not self.left:
                self.left = 4
            self.step()
            self.live = [k for k in self.live if k in core.scheduler.requests]
            if not core.scheduler.has_requests() and not self.left:
                for key in list(self.chunks):
                    self.chunks[key] = 0
                    self.chunk()
                if not self.live:
                    break
        if self.paused:
            core.resume_scheduler()
        while core.scheduler.has_requests() or core.batch_queue:
            self.step()

    def step(self) -> None:
        outputs, _ = self.core.step_fn()
        self.steps += 1
        for of_client in (outputs or {}).values():
            self.emitted += sum(len(one.new_token_ids) for one in of_client.outputs)


def main(kinds: str, folder: str, requests: str = "40", seed: str = "1", steps: str = "360") -> None:
    watch_aborts()
    secrets: dict[str, list[Any]] = {"ids": [], "hashes": [], "prompts": []}
    told = []
    for kind in kinds.split(","):
        ABORTS.clear()
        core = engine(kind, Path(folder))
        run = Run(kind, core, int(requests), int(seed))
        run.go(int(steps))
        told.append(
            {
                "kind": kind,
                "scheduler": type(core.scheduler).__name__,
                "steps": core.scheduler.current_step,
                "requests": run.count,
                "aborted": run.aborted,
                "aborts": list(ABORTS),
                "emitted": run.emitted,
                "resets": run.resets,
                "left": len(core.scheduler.requests),
                "free": core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
        )
        for name, values in run.secrets.items():
            secrets[name] += values
    (Path(folder) / "secrets.json").write_text(json.dumps(secrets))
    print(json.dumps(told))


ABORTS: list[list[int]] = []
"""The requests of each abort of several, in the order in which the engine says that it ended them."""


def watch_aborts() -> None:
    """Note what the engine answers to aborts, beside whatever else is hooked."""
    original = Scheduler.finish_requests

    def finish_requests(self: Any, request_ids: Any, finished_status: Any) -> Any:
        ended = original(self, request_ids, finished_status)
        if len(ended) > 1:
            ABORTS.append([int(r.request_id.split("-")[1]) for r in ended])
        return ended

    Scheduler.finish_requests = finish_requests


if __name__ == "__main__":
    main(*sys.argv[1:])
