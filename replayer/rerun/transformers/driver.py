"""The `Driver` of transformers' continuous batching."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ....recorder.engines.transformers import watch
from ..protocol import Engine, Submission, TokenSource, Unsupported

__all__ = ["TransformersDriver"]

_OLDEST = (5, 19)


class TransformersDriver:
    """Builds and shrinks schedulers of transformers."""

    name = "transformers"
    inputs = frozenset({"submit", "abort", "step", "output"})
    shrinks: tuple[str, ...] = ("num_sectors", "max_batch_tokens", "max_requests_per_batch")
    exempt = frozenset({"I2"})
    """With batches in flight it frees and hands out units in the order of the device's stream, on purpose."""

    def version(self) -> str:
        """Return the version of transformers.

        Raises
        ------
        Unsupported
            It cannot be imported here, or is too old.
        """
        try:
            importlib.import_module("torch")
            transformers = importlib.import_module("transformers")
        except ImportError as e:
            raise Unsupported(f"transformers with torch cannot be imported here ({e})") from None
        version = str(transformers.__version__)
        if tuple(int(n) for n in version.split(".")[:2] if n.isdigit()) < _OLDEST:
            raise Unsupported(f"transformers {version} is older than 5.19, whose scheduler is known here")
        try:
            for slow in ("torch._dynamo", f"{watch.PACKAGE}.continuous_api"):  # here, not in the first run
                importlib.import_module(slow)
        except ImportError as e:
            raise Unsupported(f"transformers {version} has no continuous batching here ({e})") from None
        return version

    def missing(self, config: Mapping[str, Any]) -> list[str]:
        """Return the keys that a recording always has and this configuration has not."""
        from .build import missing

        return missing(config)

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return 2 where the recorded engine batched asynchronously, else 1."""
        return 2 if config.get("use_async_batching") else 1

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        """Return configurations with less of `key`, in which every request can finish when alone."""
        now = config.get(key)
        if key not in self.shrinks or not isinstance(now, int) or not submissions:
            return []
        least = 1
        if key == "num_sectors":
            if any(s.max_tokens is None for s in submissions):
                return []
            longest = max(s.prompt_tokens + (s.max_tokens or 0) for s in submissions)
            least = self._sectors_for(config, longest)
        elif key == "max_batch_tokens":
            least = 2
        return [{**config, key: n} for n in dict.fromkeys((least, (least + now) // 2)) if least <= n < now]

    def _sectors_for(self, config: Mapping[str, Any], tokens: int) -> int:
        """Return how many sectors hold one request of so many tokens, with the one in flight."""
        from .build import build_processor

        cache = build_processor({**config, "num_sectors": 1}, None, None).cache
        count = 0
        for allocator in cache.cache_allocators.values():
            blocks = allocator._compute_blocks_needed(0, tokens, self.depth(config) - 1)
            count += -(-blocks // allocator.blocks_per_sector)
        return count

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> Engine:
        """Return a scheduler that was built as recorded.

        Raises
        ------
        Unsupported
            It cannot be built with this version.
        """
        from .engine import TransformersEngine

        return TransformersEngine(config, tokens)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        """Return the faults that can be planted."""
        from .faults import FAULTS

        return FAULTS
