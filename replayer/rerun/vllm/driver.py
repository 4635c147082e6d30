"""The adapter of vLLM."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from ..protocol import Submission, TokenSource, Unsupported
from .build import DEFAULTS, build, missing
from .engine import VllmEngine
from .planted import FAULTS

__all__ = ["VllmDriver"]

_SHRINKS: tuple[str, ...] = ("num_blocks", "max_num_batched_tokens", "max_num_seqs")


class VllmDriver:
    """See `Driver`."""

    name = "vllm"
    inputs = frozenset(
        {
            "submit", "abort", "next_chunk", "pause", "resume", "cache_reset", "output", "step",
            "decode_only",
        }
    )  # fmt: skip
    shrinks: tuple[str, ...] = _SHRINKS
    exempt = frozenset({"I2"})
    """Blocks go back and are handed out under a step in flight, on purpose: see `seen`."""
    words: Mapping[str, tuple[str, ...]] = MappingProxyType(
        {"pause": ("wait", "keep", "abort"), "cache_reset": ("running", "")}
    )
    """Modes of a pause and of a reset of the prefix cache."""
    session_flag = "resumable"
    """Makes a request a session, which gets more chunks."""

    def version(self) -> str:
        """Return vLLM's version.

        Raises
        ------
        Unsupported
            It cannot be imported.
        """
        # what a scheduler logs is no concern of a rerun; both are read at the first import of vLLM
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        logging.getLogger("vllm").setLevel(logging.ERROR)
        try:
            import vllm
            from vllm.v1.core.sched.scheduler import Scheduler
        except Exception as e:  # of a broken installation anything comes
            raise Unsupported(f"vLLM cannot be imported here: {e}") from None
        if not hasattr(Scheduler, "_update_request_as_session"):
            raise Unsupported(f"vLLM {vllm.__version__} is not one that can be rerun: use 0.32")
        return str(vllm.__version__)

    def missing(self, config: Mapping[str, Any]) -> list[str]:
        """Return the keys that a recording always has and this configuration has not."""
        return missing(config)

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return the batches that are in flight at once."""
        given = config.get("max_concurrent_batches")
        if isinstance(given, int) and given > 0:
            return given
        return 2 if config.get("scheduler") == "async" else 1

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        """Return configurations with less of `key`, smallest last.

        The engine never starts with a pool that cannot hold one request of the longest length that the model
        takes: with the pool that length shrinks, but not below the longest request.
        """
        known = {**DEFAULTS, **config}
        now = int(known[key])
        least = self._least(known, key, submissions)
        found = sorted({max(least, now * part // 4) for part in (3, 2, 1)} | {least}, reverse=True)
        return [self._with(config, known, key, value) for value in found if value < now]

    def _least(self, known: Mapping[str, Any], key: str, submissions: Sequence[Submission]) -> int:
        size = int(known["block_size"])
        longest = max((s.prompt_tokens + (s.max_tokens or 16) for s in submissions), default=1)
        longest = min(longest, int(known["max_model_len"]))
        if key == "num_blocks":
            return 1 + -(-longest // size) * int(known["groups"])
        if key == "max_num_seqs":
            return 1
        if known["enable_chunked_prefill"]:
            return max(int(known["max_num_seqs"]), 8)
        return max(int(known["max_num_seqs"]), longest, int(known["max_model_len"]))

    @staticmethod
    def _with(config: Mapping[str, Any], known: Mapping[str, Any], key: str, value: int) -> Mapping[str, Any]:
        made = {**config, key: value}
        if key == "num_blocks":
            size, groups = int(known["block_size"]), int(known["groups"])
            made["max_model_len"] = min(int(known["max_model_len"]), (value - 1) // groups * size)
        if key == "max_num_batched_tokens" and made.get("max_num_scheduled_tokens") is not None:
            made["max_num_scheduled_tokens"] = min(int(made["max_num_scheduled_tokens"]), value)
        if key == "max_num_seqs" and made.get("max_num_active_seqs") is not None:
            made["max_num_active_seqs"] = min(int(made["max_num_active_seqs"]), value)
        return made

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> VllmEngine:
        """Build the scheduler of a configuration.

        Raises
        ------
        Unsupported
            vLLM is not there, or the configuration needs what a rerun has not.
        """
        self.version()
        return VllmEngine(build(config), tokens)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        """Return the faults that can be planted."""
        return FAULTS
