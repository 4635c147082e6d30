"""The adapter of DeepInfer.

Steps that overlap (``zero_overhead``) share one stream: blocks of a request that is preempted are handed out
while a decode step in flight still uses them, on purpose, so I2 is not judged. Prompt steps never stay in
flight (``Worker.execute_step`` answers them at once); see `DeepInferEngine.must_answer`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..protocol import Submission, TokenSource, Unsupported
from .config import BLOCKED, Config, smaller
from .engine import DeepInferEngine

__all__ = ["DeepInferDriver"]


class DeepInferDriver:
    """Builds the scheduler of the package ``deepinfer``, compiled as `make engine-deepinfer` does."""

    name = "deepinfer"
    inputs = frozenset({"submit", "abort", "set_schedulable", "output", "step", "decode_only"})
    shrinks = ("num_blocks", "num_states", "max_num_batched_tokens", "max_num_seqs")
    exempt = frozenset({"I2"})
    blocked_flag = BLOCKED

    def version(self) -> str:
        """Return the engine's version.

        Raises
        ------
        Unsupported
            It cannot be imported, or has no view of what requests own.
        """
        # It warns of every preemption on stdout, which belongs to the caller; read at its first message.
        os.environ.setdefault("DEEPINFER_CPP_LOG_LEVEL", "off")
        try:
            import torch  # noqa: F401  its libraries have to be there first
            import deepinfer  # isort: skip
            from deepinfer._C import engine  # noqa: F401  isort: skip
        except ImportError as error:
            raise Unsupported(f"deepinfer cannot be imported ({error}): make engine-deepinfer") from None
        try:
            from deepinfer._C import view  # noqa: F401
        except ImportError:
            raise Unsupported(
                "this build of deepinfer does not show which blocks a request owns: make engine-deepinfer"
            ) from None
        return str(getattr(deepinfer, "__version__", "unknown"))

    def missing(self, config: Mapping[str, Any]) -> list[str]:
        """Return the keys that a recording always has and this configuration has not."""
        return Config.missing(config)

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return 2 where decode steps overlap."""
        return 2 if Config.of(config).zero_overhead else 1

    def patience_of(self, config: Mapping[str, Any]) -> int:
        """Return how many steps in a row that schedule nothing, while work waits, prove a stall."""
        return Config.of(config).patience()

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        """Return configurations with less of `key`, in which every request can still finish when alone."""
        made = Config.of(config)
        if key not in self.shrinks or not getattr(made, key):
            return []
        return [{**config, **change} for change in smaller(made, key, submissions)]

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> DeepInferEngine:
        """Return a scheduler with nothing in it.

        Raises
        ------
        Unsupported
            The configuration is none that can be rerun, or deepinfer is not there.
        """
        self.version()
        return DeepInferEngine(Config.of(config), tokens)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        """Return faults at the scheduler's interface, by name."""
        return {
            "blocks of a finished request are kept": _kept,
            "a running request falls out of its queue": _dropped,
            "an abort is lost": _lost_abort,
        }


@contextlib.contextmanager
def _patched(name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a method of the real class."""
    from deepinfer._C.engine import Scheduler

    original = getattr(Scheduler, name)
    setattr(Scheduler, name, wrap(original))
    try:
        yield
    finally:
        setattr(Scheduler, name, original)


def _kept() -> AbstractContextManager[None]:
    return _patched("free_seq", lambda original: lambda self, seq: None)


def _dropped() -> AbstractContextManager[None]:
    def wrap(original: Any) -> Any:
        def schedule(self: Any, pool: Any) -> Any:
            made = original(self, pool)
            if len(self.running) > 1:
                self.running = self.running[:-1]
            return made

        return schedule

    return _patched("schedule", wrap)


def _lost_abort() -> AbstractContextManager[None]:
    return _patched("abort_sequence", lambda original: lambda self, requests: [])
