"""From a recorded configuration to vLLM's real scheduler, without engine, device or model.

vLLM is imported where it is first needed: `VllmDriver.version` says so in words where it is not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..environment import environment
from ..protocol import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["Built", "build", "missing"]

DEFAULTS: Mapping[str, Any] = {
    "scheduler": "sync",
    "policy": "fcfs",
    "max_num_seqs": 8,
    "max_num_active_seqs": None,
    "max_num_batched_tokens": 64,
    "max_num_scheduled_tokens": None,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "enable_chunked_prefill": True,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "prefill_schedule_interval": 1,
    "max_model_len": 1024,
    "block_size": 16,
    "hash_block_size": None,
    "enable_prefix_caching": True,
    "num_blocks": 64,
    "v2_model_runner": False,
    "pipeline_parallel_size": 1,
    "prefix_cache_retention_interval": None,
    "cache_hit_alignment_tokens": None,
    "groups": 1,
    "group0_kind": "full",
}
"""What a key of the configuration means where it is not given, in a case written by hand: a tape has all."""

_GROUP_KEYS = (
    "kind", "block_size", "num_kv_heads", "head_size", "dtype", "sliding_window", "attention_chunk_size",
)  # fmt: skip
_MAY_BE_NULL = {
    "max_num_active_seqs", "max_num_scheduled_tokens", "prefix_cache_retention_interval",
    "cache_hit_alignment_tokens", "num_kv_heads", "head_size", "sliding_window", "attention_chunk_size",
}  # fmt: skip
_SCHEDULER_KEYS = (
    "policy", "max_num_seqs", "max_num_active_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens",
    "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive", "enable_chunked_prefill",
    "scheduler_reserve_full_isl", "watermark", "prefill_schedule_interval", "max_model_len",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Built:
    """A scheduler and what belongs to it.

    Attributes
    ----------
    scheduler : object
        vLLM's ``Scheduler`` or ``AsyncScheduler``.
    hasher : callable or None
        Gives a request the hashes of its blocks; None without prefix caching.
    """

    scheduler: Any
    hasher: Callable[[Any], list[Any]] | None


_MOST = {"num_blocks": 1 << 24, "groups": 64}
"""Largest numbers of what is made one by one."""


def missing(config: Mapping[str, Any]) -> list[str]:
    """Return the keys that a recording always has and this configuration has not."""
    keys = [k for k in (*DEFAULTS, "max_concurrent_batches", "cannot_judge") if not k.startswith("group0_")]
    groups = config.get("groups")
    if isinstance(groups, int) and groups <= _MOST["groups"]:
        keys += [f"group{i}_{key}" for i in range(groups) for key in _GROUP_KEYS]
    lacking = []
    for key in keys:
        plain = key.partition("_")[2] if key.startswith("group") and key != "groups" else key
        if key not in config or (config[key] is None and plain not in _MAY_BE_NULL):
            lacking.append(key)
    return lacking


def build(config: Mapping[str, Any]) -> Built:
    """Build the scheduler of a configuration.

    Parameters
    ----------
    config : mapping of str to scalar
        As the recorder writes it (table `schedulers`); what is missing has the value of `DEFAULTS`.

    Raises
    ------
    Unsupported
        The configuration needs what a rerun has not: a KV connector, speculative decoding, ...
    """
    known = {**DEFAULTS, **config}
    _refuse(known)
    key = json.dumps({k: v for k, v in known.items() if k != "cannot_judge"}, sort_keys=True)
    try:
        made, cache, structured, hasher = _parts(key)
    except (ValueError, TypeError, KeyError) as e:
        words = " ".join(str(e).split())[:300]
        raise Unsupported(f"vLLM does not take this configuration: {words}") from None
    with _model_runner(bool(known["v2_model_runner"])):
        scheduler = _class(known["scheduler"])(
            made,
            cache,
            structured,
            block_size=int(known["block_size"]),
            hash_block_size=int(known["hash_block_size"] or known["block_size"]),
        )
    return Built(scheduler, hasher)


def _refuse(known: Mapping[str, Any]) -> None:
    if known.get("cannot_judge"):
        words = str(known["cannot_judge"]).replace(",", ", ")
        raise Unsupported(f"recorded with what a rerun of vLLM cannot do: {words}")
    if known["scheduler"] not in ("sync", "async"):
        raise Unsupported("the recorded scheduler is neither vLLM's Scheduler nor its AsyncScheduler")
    for name, most in _MOST.items():  # a configuration comes from a file and may hold anything
        if int(known[name]) > most:
            raise Unsupported(f"{name} {int(known[name])}: a rerun makes them all in memory, at most {most}")
    for group in range(int(known["groups"])):
        kind = known.get(f"group{group}_kind", "full")
        if kind not in ("full", "sliding_window"):
            raise Unsupported(f"KV cache groups of kind {kind} cannot be rerun")


def _class(name: str) -> Any:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    return AsyncScheduler if name == "async" else Scheduler


@lru_cache(maxsize=16)
def _parts(key: str) -> tuple[Any, Any, Any, Any]:
    """Return vLLM's configurations (all, KV cache), grammar manager and block hasher: none keeps state."""
    from vllm.config import CacheConfig, SchedulerConfig, VllmConfig
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.structured_output import StructuredOutputManager

    known = json.loads(key)
    scheduling = SchedulerConfig(is_encoder_decoder=False, **{k: known[k] for k in _SCHEDULER_KEYS})
    caching = bool(known["enable_prefix_caching"])
    # a multiple of 32 that CPU attention would like is of no account: nothing is computed
    cached = CacheConfig(block_size=int(known["block_size"]), enable_prefix_caching=caching)
    made = VllmConfig(scheduler_config=scheduling, cache_config=cached)
    # what the scheduler asks of a model: the recording has no other, and refuses those with more
    made.model_config = SimpleNamespace(
        max_model_len=int(known["max_model_len"]),
        runner_type="generate",
        uses_mrope=False,
        is_encoder_decoder=False,
        is_diffusion=False,
        supports_multimodal_inputs=False,
        return_sampling_mask=False,
        skip_tokenizer_init=True,
        is_multimodal_model=False,
        multimodal_config=None,
    )
    # the CPU platform turns these back
    scheduling.async_scheduling = known["scheduler"] == "async"
    scheduling.enable_chunked_prefill = bool(known["enable_chunked_prefill"])
    cached.enable_prefix_caching = caching
    cached.num_gpu_blocks = int(known["num_blocks"])
    made.parallel_config.pipeline_parallel_size = int(known["pipeline_parallel_size"])
    hasher = None
    if caching:
        function = get_hash_fn_by_name("sha256")
        init_none_hash(function)
        hasher = get_request_block_hasher(int(known["hash_block_size"] or known["block_size"]), function)
    return made, _cache_config(known), StructuredOutputManager(made), hasher


def _cache_config(known: Mapping[str, Any]) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        SlidingWindowSpec,
    )

    groups = []
    for i in range(int(known["groups"])):
        size = int(known.get(f"group{i}_block_size") or known["block_size"])
        heads = int(known.get(f"group{i}_num_kv_heads") or 1)
        width = int(known.get(f"group{i}_head_size") or 1)
        shape: dict[str, Any] = {"block_size": size, "num_kv_heads": heads, "head_size": width}
        shape["dtype"] = getattr(torch, str(known.get(f"group{i}_dtype") or "float32"), torch.float32)
        window = known.get(f"group{i}_sliding_window")
        if known.get(f"group{i}_kind", "full") == "sliding_window":
            spec = SlidingWindowSpec(sliding_window=int(window or size), **shape)
        else:
            spec = FullAttentionSpec(
                sliding_window=window,
                attention_chunk_size=known.get(f"group{i}_attention_chunk_size"),
                **shape,
            )
        groups.append(KVCacheGroupSpec([f"layer{i}"], spec))
    return KVCacheConfig(
        num_blocks=int(known["num_blocks"]),
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        prefix_cache_retention_interval=known["prefix_cache_retention_interval"],
        cache_hit_alignment_tokens=known["cache_hit_alignment_tokens"],
    )


def _model_runner(second: bool) -> AbstractContextManager[None]:
    """Have vLLM take the model runner that was recorded: the scheduler reads which from the environment."""
    return environment("VLLM_USE_V2_MODEL_RUNNER", "1" if second else "0")
