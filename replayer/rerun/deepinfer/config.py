"""What DeepInfer's scheduler is built with, and what can be made smaller of it.

Keys and meaning are those of the recorder's (``recorder/engines/deepinfer/config.py``): the arguments of the
scheduler's constructor, the attributes of its ``scheduler_config``, the sizes of its two pools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..protocol import Pool, Submission, Unsupported

__all__ = ["BLOCKED", "RESERVED", "Config", "alone", "fuller_than_watermark", "smaller"]

BLOCKED = "blocked"
"""Flag of a request that cannot be scheduled before ``set_schedulable``: its images are not ready."""
RESERVED = "reserved"
"""Flag of a request whose units are handed out before it is added."""

_WATERMARK = 0.9
"""``GPU_CACHE_PREFILL_WATERMARK``: above this usage of the cache no prompt step is tried."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of one scheduler.

    Attributes
    ----------
    block_size : int
        Tokens per block.
    num_blocks, num_states : int
        Units of each pool, unit 0, which is never handed out, included; no states: 0.
    max_num_batched_tokens, max_num_seqs : int
        Token budget of a step; most requests that run.
    prefill_attempt_interval, prefill_any_attempt_interval : int
        Decode steps between two tries of a prompt step.
    chunked_prefill, stop_preempted_request : bool
        Prompts are computed in chunks; a preempted request ends.
    zero_overhead : bool
        A decode step is scheduled before the output of the last one has come.
    nextn : int
        Draft tokens of a step; only 0 can be rerun.
    engine_type : int
        0: prompts and decoding; the only one that can be rerun.
    """

    block_size: int
    num_blocks: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    num_states: int = 0
    runtime_max_model_len: int = 0
    prefill_attempt_interval: int = 70
    prefill_any_attempt_interval: int = 100
    chunked_prefill: bool = True
    stop_preempted_request: bool = False
    zero_overhead: bool = False
    prefill_max_sum_seqlen_k: int = 2**30
    lookahead_tokens: int = 0
    truncate_len: int = 0
    cp_size: int = 1
    dp_size: int = 1
    vocab_size: int = 1 << 17
    eos_token_id: int = 1
    nextn: int = 0
    engine_type: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Config:
        """Return it from the table's ``config``.

        Raises
        ------
        Unsupported
            A key is missing or unknown, a value is of another kind, or the scheduler was of a kind that
            cannot be rerun.
        """
        kinds = {f.name: f.type for f in fields(cls)}
        for key, value in config.items():
            if key not in kinds:
                raise Unsupported(f"DeepInfer's scheduler has no setting {key!r}")
            if isinstance(value, bool) != (kinds[key] == "bool") or not isinstance(value, int):
                raise Unsupported(f"the setting {key} of DeepInfer's scheduler is a {kinds[key]}")
        try:
            made = cls(**config)
        except TypeError as error:
            raise Unsupported(f"settings of DeepInfer's scheduler are missing: {error}") from None
        if made.nextn or made.engine_type or made.dp_size > 1 or made.cp_size > 1:
            raise Unsupported(
                "only a scheduler for prompts and decoding, on one rank, without draft tokens, can be rerun"
            )
        for key in ("block_size", "max_num_batched_tokens", "max_num_seqs", "max_model_len"):
            if getattr(made, key) < 1:
                raise Unsupported(f"the setting {key} of DeepInfer's scheduler is not positive")
        return made

    @classmethod
    def missing(cls, config: Mapping[str, Any]) -> list[str]:
        """Return the keys that a recording always has and this configuration has not.

        The token that ends a request is none of them: the value of a token is recorded nowhere.
        """
        return [f.name for f in fields(cls) if f.name != "eos_token_id" and config.get(f.name) is None]

    def pools(self) -> tuple[Pool, ...]:
        """Return its pools."""
        kv = Pool("kv", self.num_blocks, 1, self.block_size)
        return (kv, Pool("state", self.num_states, 1)) if self.num_states else (kv,)

    def quiet_decode_step(self) -> int:
        """Return a value of the scheduler's step counter at which no prompt step is tried.

        Raises
        ------
        Unsupported
            Every step is a try.
        """
        for step in range(1, self.prefill_attempt_interval * self.prefill_any_attempt_interval + 1):
            if step % self.prefill_attempt_interval and step % self.prefill_any_attempt_interval:
                return step
        raise Unsupported("under this configuration every step tries a prompt first: none only decodes")

    def patience(self) -> int:
        """Return how many steps in a row may schedule nothing: between two tries only decoding goes on."""
        return min(self.prefill_attempt_interval, self.prefill_any_attempt_interval) + 2


def alone(config: Config, submission: Submission) -> bool:
    """Return whether a request can finish under this configuration when it has the scheduler for itself."""
    longest = submission.prompt_tokens + (submission.max_tokens or config.max_model_len)
    longest = min(longest, config.max_model_len + 1)
    # One more than it needs: where no block is free, a decode step preempts even what needs none.
    blocks = -(-(longest + config.zero_overhead) // config.block_size) + 1
    if blocks > config.num_blocks - 1 or (config.num_states and config.num_states < 2):
        return False
    if not config.chunked_prefill:
        return submission.prompt_tokens <= config.max_num_batched_tokens
    if submission.prompt_tokens <= config.max_num_batched_tokens and RESERVED not in submission.flags:
        return True
    # It holds the blocks of its whole prompt while it waits for its next chunk.
    held = -(-submission.prompt_tokens // config.block_size)
    return not fuller_than_watermark(config.num_blocks, config.num_blocks - 1 - held)


def fuller_than_watermark(num_blocks: int, free: int) -> bool:
    """Return whether no prompt step is tried because so few blocks are free; block 0 counts as used."""
    return (num_blocks - free) / num_blocks > _WATERMARK


def smaller(config: Config, key: str, submissions: Sequence[Submission]) -> Iterator[dict[str, Any]]:
    """Yield what to change for less of `key`, the least change first.

    Parameters
    ----------
    config : Config
    key : str
        ``num_blocks``, ``num_states``, ``max_num_batched_tokens`` or ``max_num_seqs``.
    submissions : sequence of Submission
        Each of them can still finish when it is alone.
    """
    now: int = getattr(config, key)
    lowest = {
        "num_blocks": 2,
        "num_states": 2,
        "max_num_batched_tokens": config.block_size,
        "max_num_seqs": 1,
    }[key]
    seen: set[int] = set()
    for share in (0.75, 0.5, 0.35, 0.25, 0.0):
        value = max(lowest, int(now * share))
        if value >= now or value in seen:
            continue
        seen.add(value)
        values = {f.name: getattr(config, f.name) for f in fields(Config)} | {key: value}
        if all(alone(Config(**values), s) for s in submissions):
            yield {key: value}
