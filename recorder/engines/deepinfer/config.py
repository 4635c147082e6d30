"""What one of DeepInfer's schedulers was built with, as the table `schedulers` keeps it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["ARGUMENTS", "arguments", "config"]

ARGUMENTS = (
    "block_size", "block_manager", "state_manager", "eos_token_id", "dp_group", "scheduler_config",
    "truncate_len", "lookahead_tokens", "prefill_max_sum_seqlen_k", "flops_estimator", "engram_lookup_table",
    "cp_size", "vocab_size", "log_stats",
)  # fmt: skip
"""Of the scheduler's constructor, in order."""

_KEPT = (
    "block_size",
    "truncate_len",
    "lookahead_tokens",
    "prefill_max_sum_seqlen_k",
    "cp_size",
    "vocab_size",
)
_SETTINGS = (
    "max_model_len", "runtime_max_model_len", "max_num_batched_tokens", "max_num_seqs", "engine_type",
    "prefill_attempt_interval", "prefill_any_attempt_interval",
)  # fmt: skip
_SWITCHES = ("chunked_prefill", "stop_preempted_request")
_NEXTN_UNSET = 5
"""Draft tokens where the environment says nothing (``get_nextn_from_env``)."""


def arguments(given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments by name.

    Raises
    ------
    TypeError
        They are not those of this version.
    """
    bound = dict(zip(ARGUMENTS, given, strict=False)) | dict(named)
    if len(given) > len(ARGUMENTS) or bound.keys() != set(ARGUMENTS):
        raise TypeError("the scheduler's constructor has other arguments than those that are known")
    return bound


def config(bound: Mapping[str, Any], num_blocks: int, num_states: int) -> dict[str, int | bool]:
    """Return the settings, all of them numbers and booleans.

    Parameters
    ----------
    bound : mapping
        The constructor's arguments.
    num_blocks, num_states : int
        Units of its pools; no states: 0.
    """
    settings = bound["scheduler_config"]
    made: dict[str, int | bool] = {name: int(bound[name]) for name in _KEPT}
    made |= {name: int(getattr(settings, name)) for name in _SETTINGS}
    made |= {name: bool(getattr(settings, name)) for name in _SWITCHES}
    # The token that ends a request is a value of a token: what stands for it in a rerun is always the same.
    made["num_blocks"], made["num_states"] = num_blocks, num_states
    made["dp_size"] = int(bound["dp_group"].size())
    made["nextn"] = _nextn()
    made["zero_overhead"] = _zero_overhead()
    return made


def _nextn() -> int:
    """Return the number of draft tokens, which the scheduler reads as C's ``atoi`` does."""
    said = os.environ.get("DEEPINFER_USE_NEXTN_DECODE")
    try:
        return max(0, int(said)) if said is not None else _NEXTN_UNSET
    except ValueError:
        return 0


def _zero_overhead() -> bool:
    """Return whether a decode step is scheduled before the output of the last one has come."""
    known = sys.modules.get("deepinfer.environ")
    if known is not None:
        return bool(known.envs.DEEPINFER_ZERO_OVERHEAD_SCHEDULING)
    return os.environ.get("DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "0").lower() in ("1", "true", "yes", "on")
