"""What a scheduler of transformers was built with, as the flat configuration of the table `schedulers`.

Everything that its decisions depend on, and nothing else: the sizes of the cache, its attention types, the
limits of a batch. A rerun builds the same cache from it, without memory behind it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DTYPES", "config_of"]

DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float64")
"""Element types of a cache that a rerun knows."""

Scalar = int | float | str | bool | None


def config_of(processor: Any) -> dict[str, Scalar]:
    """Return the configuration of a batch processor.

    Keys: ``scheduler`` (``fifo``, ``prefill_first``, ``other``), ``safety_margin``,
    ``max_requests_per_batch``, ``max_batch_tokens``, ``page_size``, ``num_sectors``, ``num_blocks``,
    ``allow_block_sharing``, ``use_async_batching``, ``max_blocks_per_request``, ``swap_sectors`` (of the pool
    on the host), ``dtype``, ``num_key_value_heads``, ``head_dim``, ``full_layers``, ``sliding_layers``,
    ``sliding_first`` (the sliding layers come first), ``sliding_window``; ``cannot_judge``: what a rerun
    cannot do, "" for nothing.
    """
    cache, scheduler = processor.cache, processor.scheduler
    allocators = cache.cache_allocators
    first = next(iter(allocators.values()))
    sliding = allocators.get("sliding_attention")
    words = {"FIFOScheduler": "fifo", "PrefillFirstScheduler": "prefill_first"}
    scheduler_word = words.get(type(scheduler).__name__, "other")
    dtype = str(cache.dtype).rpartition(".")[2]
    reasons = []
    if scheduler_word == "other":
        reasons.append("scheduler_class")
    if dtype not in DTYPES:
        reasons.append("dtype")
    if set(allocators) - {"full_attention", "sliding_attention"}:
        reasons.append("attention_type")
    if processor.distributed_helper.tp_size > 1:
        reasons.append("tensor_parallel")
    return {
        "scheduler": scheduler_word,
        "safety_margin": float(scheduler.safety_margin),
        "max_requests_per_batch": int(scheduler.max_requests_per_batch),
        "max_batch_tokens": int(processor.max_batch_tokens),
        "page_size": int(first.tokens_per_page),
        "num_sectors": int(cache.num_sectors),
        "num_blocks": int(cache.num_blocks),
        "allow_block_sharing": bool(cache.allow_block_sharing),
        "use_async_batching": bool(processor.use_async_batching),
        "max_blocks_per_request": int(cache.max_blocks_per_request),
        "swap_sectors": int(processor.offloading_manager._num_cpu_sectors),
        "dtype": dtype if dtype in DTYPES else "other",
        "num_key_value_heads": int(first.num_key_value_heads),
        "head_dim": int(first.head_dim),
        "full_layers": _layers(allocators.get("full_attention")),
        "sliding_layers": _layers(sliding),
        "sliding_first": sliding is not None and sliding.index == 0,
        "sliding_window": None if sliding is None else int(sliding.sliding_window),
        "cannot_judge": ",".join(reasons),
    }


def _layers(allocator: Any) -> int:
    return 0 if allocator is None else len(allocator.layer_indices)
