"""What a vLLM scheduler and its requests are, in numbers, booleans and known words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["config_of", "flags_of", "tokens_per_unit"]

Scalar = int | float | bool | str | None

_KINDS = {
    "FullAttentionSpec": "full",
    "SlidingWindowSpec": "sliding_window",
    "ChunkedLocalAttentionSpec": "chunked_local",
    "MambaSpec": "mamba",
}
_SCHEDULER = (
    "max_num_seqs",
    "max_num_active_seqs",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "policy",
    "scheduler_reserve_full_isl",
    "watermark",
    "async_scheduling",
    "prefill_schedule_interval",
)


def config_of(scheduler: Any) -> dict[str, Scalar]:
    """Return what a scheduler was built with, from which a driver builds it again."""
    whole = scheduler.vllm_config
    kv = scheduler.kv_cache_config
    config: dict[str, Scalar] = {"scheduler": _class_word(scheduler)}
    for name in _SCHEDULER:
        config[name] = _scalar(getattr(whole.scheduler_config, name, None))
    runner = getattr(whole.model_config, "runner_type", None)
    config |= {
        "max_model_len": scheduler.max_model_len,
        "block_size": scheduler.block_size,
        "hash_block_size": getattr(scheduler, "hash_block_size", scheduler.block_size),
        "cache_block_size": _scalar(whole.cache_config.block_size),
        "enable_prefix_caching": bool(whole.cache_config.enable_prefix_caching),
        "num_blocks": kv.num_blocks,
        "log_stats": bool(scheduler.log_stats),
        "include_finished_set": scheduler.finished_req_ids_dict is not None,
        "runner": runner if runner in ("generate", "pooling") else "other",
        "v2_model_runner": bool(getattr(scheduler, "use_v2_model_runner", False)),
        "pipeline_parallel_size": whole.parallel_config.pipeline_parallel_size,
        "max_concurrent_batches": whole.max_concurrent_batches,
        "max_in_flight_tokens": whole.max_in_flight_tokens,
        "prefix_cache_retention_interval": _scalar(getattr(kv, "prefix_cache_retention_interval", None)),
        "cache_hit_alignment_tokens": _scalar(getattr(kv, "cache_hit_alignment_tokens", None)),
        "groups": len(kv.kv_cache_groups),
    }
    for i, group in enumerate(kv.kv_cache_groups):
        config |= _group(f"group{i}_", group)
    config["cannot_judge"] = ",".join(_cannot_judge(scheduler, whole, config))
    return config


def tokens_per_unit(groups: Sequence[Any]) -> int | None:
    """Return how many tokens a block of the pool holds; None where windows slide in every group.

    There a request gives back what has left its window, and holds fewer blocks than it has tokens.
    """
    full = [
        g.kv_cache_spec.block_size for g in groups if type(g.kv_cache_spec).__name__ == "FullAttentionSpec"
    ]
    return max(full, default=None)


def flags_of(request: Any) -> list[str]:
    """Return the known words that say what is special about a request.

    Those that begin with ``unrecorded_`` name something that decides as well and is in no tape: a rerun says
    then that it cannot judge.

    Parameters
    ----------
    request : vllm.v1.request.Request
    """
    sampling = request.sampling_params
    found = {
        "resumable": request.resumable,
        "skip_cache_read": request.skip_reading_prefix_cache,
        "unrecorded_multimodal": bool(request.mm_features),
        "unrecorded_lora": request.lora_request is not None,
        "unrecorded_structured": request.structured_output_request is not None,
        "unrecorded_pooling": request.pooling_params is not None,
        "unrecorded_prompt_embeds": request.prompt_embeds is not None,
        "unrecorded_kv_transfer": request.kv_transfer_params is not None,
        "unrecorded_ec_transfer": request.ec_transfer_params is not None,
        "unrecorded_repetition": getattr(sampling, "repetition_detection", None) is not None,
    }
    return [word for word, there in found.items() if there]


def _class_word(scheduler: Any) -> str:
    cls = type(scheduler)
    if cls.__module__.startswith("vllm.v1.core.sched."):
        return {"Scheduler": "sync", "AsyncScheduler": "async"}.get(cls.__name__, "other")
    return "other"


def _group(prefix: str, group: Any) -> Mapping[str, Scalar]:
    spec = group.kv_cache_spec
    return {
        prefix + "kind": _KINDS.get(type(spec).__name__, "other"),
        prefix + "block_size": spec.block_size,
        prefix + "num_kv_heads": _scalar(getattr(spec, "num_kv_heads", None)),
        prefix + "head_size": _scalar(getattr(spec, "head_size", None)),
        prefix + "dtype": str(getattr(spec, "dtype", None)).removeprefix("torch."),
        prefix + "layers": len(group.layer_names),
        prefix + "sliding_window": _scalar(getattr(spec, "sliding_window", None)),
        prefix + "attention_chunk_size": _scalar(getattr(spec, "attention_chunk_size", None)),
    }


def _cannot_judge(scheduler: Any, whole: Any, config: Mapping[str, Scalar]) -> list[str]:
    """Return the words of what decides as well and is not recorded."""
    kinds = [config[f"group{i}_kind"] for i in range(len(scheduler.kv_cache_config.kv_cache_groups))]
    model, parallel = whole.model_config, whole.parallel_config
    found = {
        "speculative": whole.speculative_config is not None,
        "lora": whole.lora_config is not None,
        "kv_connector": scheduler.connector is not None,
        "ec_connector": scheduler.ec_connector is not None,
        "encoder_decoder": bool(scheduler.is_encoder_decoder),
        "diffusion": bool(getattr(model, "is_diffusion", False)),
        "pooling": config["runner"] != "generate",
        "mamba": "mamba" in kinds,
        "scheduler_class": config["scheduler"] == "other",
        "kv_groups": "other" in kinds or not kinds,
        "data_parallel": parallel.data_parallel_size > 1,
        "context_parallel": parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
        > 1,
        "aux_output": getattr(scheduler, "aux_output_connector", None) is not None,
    }
    return [word for word, there in found.items() if there]


def _scalar(value: Any) -> Scalar:
    return value if isinstance(value, int | float | str) else None
