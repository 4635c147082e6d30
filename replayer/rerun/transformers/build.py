"""Builds transformers' cache, scheduler and batch processor from a recorded configuration.

They are the engine's own classes. The cache lies on the device ``meta``: every size and every index is as in
the recorded run, and no memory is behind it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ....recorder.engines.transformers import watch
from ..protocol import Unsupported

__all__ = ["build_processor", "check", "missing"]

_SIZES = (
    "max_requests_per_batch", "max_batch_tokens", "page_size", "num_sectors", "num_key_value_heads",
    "head_dim", "full_layers", "sliding_layers",
)  # fmt: skip


_OTHERS = (
    "scheduler", "safety_margin", "allow_block_sharing", "use_async_batching", "max_blocks_per_request",
    "swap_sectors", "dtype", "sliding_first", "cannot_judge",
)  # fmt: skip


def missing(config: Mapping[str, Any]) -> list[str]:
    """Return the keys that a recording always has and this configuration has not."""
    lacking = [key for key in (*_SIZES, *_OTHERS) if config.get(key) is None]
    window = "sliding_window"  # null where none slides
    if window not in config or (config[window] is None and config.get("sliding_layers")):
        lacking.append(window)
    return lacking


def check(config: Mapping[str, Any]) -> None:
    """Refuse a configuration that cannot be built.

    Raises
    ------
    Unsupported
        It says which part.
    """
    reason = config.get("cannot_judge")
    if reason:
        raise Unsupported(f"this scheduler of transformers cannot be rerun: {reason}")
    for key in _SIZES:
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 40:
            raise Unsupported(f"the configuration has no usable {key}: {value!r}")
    if config.get("scheduler") not in ("fifo", "prefill_first"):
        raise Unsupported(f"transformers has no scheduler {config.get('scheduler')!r}")
    if config["full_layers"] + config["sliding_layers"] not in range(1, 4097):
        raise Unsupported("the configuration has no layers, or too many")
    if config["page_size"] < 1 or config["num_sectors"] < 1:
        raise Unsupported("the configuration has no room in its cache")


def build_processor(config: Mapping[str, Any], batches: Any, router: Any) -> Any:
    """Return a batch processor with a cache, a scheduler and an offloading manager.

    Parameters
    ----------
    config : mapping
        As `recorder.engines.transformers.geometry.config_of` gives it.
    batches : object
        Stands for the tensors of a batch: `prepare_batch_tensors`, `prepare_batch_update`, `reset`.
    router : object
        Stands for the way of outputs to users: `deliver_batch`, `deliver`, `fail_and_deliver`.

    Raises
    ------
    Unsupported
        The configuration cannot be built with this version.
    """
    check(config)
    try:
        return _build(config, batches, router)
    except (ImportError, AttributeError, TypeError) as e:
        raise Unsupported(f"transformers cannot build this scheduler: {e}") from None


def _build(config: Mapping[str, Any], batches: Any, router: Any) -> Any:
    import torch

    transformers = importlib.import_module("transformers")
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    api = watch.module("continuous_api")
    settings = transformers.ContinuousBatchingConfig(
        page_size=config["page_size"],
        num_blocks=1,
        max_batch_tokens=config["max_batch_tokens"],
        max_memory_percent=1.0,
        max_requests_per_batch=config["max_requests_per_batch"],
        max_blocks_per_request=config.get("max_blocks_per_request") or 0,
        allow_block_sharing=bool(config.get("allow_block_sharing", True)),
        use_async_batching=bool(config.get("use_async_batching")),
        use_cuda_graph=False,
        scheduler_type=config["scheduler"],
        safety_margin=config.get("safety_margin"),
    )
    settings.max_blocks_per_request = config.get("max_blocks_per_request") or 0
    helper = api.DistributedHelper(device_mesh=None, cpu_group_timeout=None)
    cache = _cache(config, settings, helper, getattr(torch, str(config.get("dtype", "float32"))))
    scheduler = watch.module("scheduler").SCHEDULER_MAPPING[config["scheduler"]](
        cache=cache,
        safety_margin=config.get("safety_margin"),
        max_requests_per_batch=config["max_requests_per_batch"],
    )
    processor: Any = object.__new__(_processor_class(api.ContinuousBatchProcessor))
    processor.__dict__.update(
        cache=cache,
        config=None,
        cb_config=settings,
        logit_processor=SimpleNamespace(check_kwargs=lambda kwargs: None),
        input_queue=None,
        cancel_queue=None,
        output_router=router,
        background_thread_status=api.BackgroundThreadStatus(),
        model_device=torch.device("meta"),
        model_dtype=cache.dtype,
        scheduler=scheduler,
        distributed_helper=helper,
        do_sample=False,
        return_logprobs=False,
        sliding_window=config.get("sliding_window") or 1,
        max_batch_tokens=cache.max_batch_tokens,
        inputs_and_outputs=batches,
        use_async_batching=settings.use_async_batching,
        offloading_manager=_offloading(cache, scheduler, int(config.get("swap_sectors") or 0), helper),
        model_runner=SimpleNamespace(maybe_pad_inputs=lambda q, kv, fast: (q, kv), pad_inputs=False),
    )
    return processor


def _processor_class(base: Any) -> Any:
    """Return the class without its end, which collects all garbage and empties the device's cache."""
    return type("Processor", (base,), {"__del__": lambda self: None})


def _cache(config: Mapping[str, Any], settings: Any, helper: Any, dtype: Any) -> Any:
    full = ["full_attention"] * config["full_layers"]
    sliding = ["sliding_attention"] * config["sliding_layers"]
    heads = config["num_key_value_heads"]
    model = SimpleNamespace(
        num_hidden_layers=len(full) + len(sliding),
        layer_types=sliding + full if config.get("sliding_first") else full + sliding,
        sliding_window=config.get("sliding_window"),
        num_key_value_heads=heads,
        num_attention_heads=heads,
        head_dim=config["head_dim"],
        hidden_size=heads * config["head_dim"],
        vocab_size=1,
        _attn_implementation="paged|eager",
    )
    module = watch.module("cache")
    sectors = config["num_sectors"]
    saved = module.PagedAttentionMemoryHandler
    # The size of the cache is known: the memory of this machine has no say.
    module.PagedAttentionMemoryHandler = type(
        "Sizes",
        (),
        {
            "__init__": lambda self, **kwargs: None,
            "infer_max_batch_tokens_and_num_sectors": lambda self: (config["max_batch_tokens"], sectors),
        },
    )
    try:
        return module.PagedAttentionCache(
            config=model,
            continuous_batching_config=settings,
            device="meta",
            distributed_helper=helper,
            dtype=dtype,
        )
    finally:
        module.PagedAttentionMemoryHandler = saved


class _Torch:
    """The module torch for the swap pool, whose memory is none and cannot be pinned."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def empty(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        if pin_memory:
            kwargs["device"] = "meta"
        return self._torch.empty(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


def _offloading(cache: Any, scheduler: Any, swap_sectors: int, helper: Any) -> Any:
    module = watch.module("offloading_manager")
    manager = type(
        "Offloading",
        (module.OffloadingManager,),
        {"_compute_num_cpu_sectors": lambda self, space, threshold: swap_sectors},
    )
    saved = module.torch
    module.torch = _Torch(saved)
    try:
        return manager(
            cache=cache,
            scheduler=scheduler,
            cpu_offload_space_gib=float(swap_sectors),
            safety_threshold=1.0,
            compute_stream=None,
            distributed_helper=helper,
        )
    finally:
        module.torch = saved
