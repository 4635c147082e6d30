"""The vocabularies of the tables of request schedulers.

Standard library only: it is imported inside of engines.
"""

from __future__ import annotations

__all__ = ["ANSWER_WORDS", "BLOCK_ACTIONS", "DECISION_KINDS", "INPUT_KINDS"]

INPUT_KINDS = (
    "submit", "abort", "set_schedulable", "next_chunk", "pause", "resume", "cache_reset", "priority",
    "output", "step",
)  # fmt: skip
DECISION_KINDS = (
    "prefill",  # `tokens` of a prompt (or of what has to be computed again), in this step only
    "decode",   # `tokens` per step from now on
    "skip",     # a request that decoded is not scheduled in this step and those after it
    "order",    # the step's whole order: one row per scheduled request, where it is not the one expected
    "preempt", "resume", "finish", "reject",
    "emit",     # tokens shown to the user, where they are not those of the answer
)  # fmt: skip
ANSWER_WORDS = ("length", "stop", "abort", "error", "ignored", "repetition", "preempted")
BLOCK_ACTIONS = ("alloc", "free", "share", "fill", "read", "launch", "retire")
