"""The words that say what is special about a request of vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tapedelay.recorder.engines.vllm.described import flags_of, tokens_per_unit


def request(**special: Any) -> SimpleNamespace:
    """Return a request like vLLM's, with nothing special but this."""
    plain = {
        "resumable": False,
        "skip_reading_prefix_cache": False,
        "mm_features": [],
        "lora_request": None,
        "structured_output_request": None,
        "pooling_params": None,
        "prompt_embeds": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "sampling_params": SimpleNamespace(repetition_detection=None),
    }
    return SimpleNamespace(**(plain | special))


@pytest.mark.parametrize(
    ("special", "word"),
    [
        ({"skip_reading_prefix_cache": True}, "skip_cache_read"),
        ({"mm_features": [object()]}, "unrecorded_multimodal"),
        ({"lora_request": object()}, "unrecorded_lora"),
        ({"structured_output_request": object()}, "unrecorded_structured"),
        ({"pooling_params": object(), "sampling_params": None}, "unrecorded_pooling"),
        ({"prompt_embeds": object()}, "unrecorded_prompt_embeds"),
        ({"kv_transfer_params": {}}, "unrecorded_kv_transfer"),
        ({"ec_transfer_params": {}}, "unrecorded_ec_transfer"),
        ({"sampling_params": SimpleNamespace(repetition_detection=object())}, "unrecorded_repetition"),
    ],
)
def test_each_is_named(special: dict[str, Any], word: str) -> None:
    assert flags_of(request(**special)) == [word]


def test_a_plain_request_has_none() -> None:
    assert flags_of(request()) == []
    assert flags_of(request(resumable=True)) == ["resumable"], "its chunks are recorded with their arrivals"


class FullAttentionSpec(SimpleNamespace):
    """By the name of vLLM's."""


class SlidingWindowSpec(SimpleNamespace):
    """By the name of vLLM's."""


def groups(*specs: SimpleNamespace) -> list[SimpleNamespace]:
    return [SimpleNamespace(kv_cache_spec=s) for s in specs]


def test_blocks_hold_tokens_only_where_none_leave_the_window() -> None:
    full, window = FullAttentionSpec(block_size=16), SlidingWindowSpec(block_size=32)
    assert tokens_per_unit(groups(full)) == tokens_per_unit(groups(window, full)) == 16
    assert tokens_per_unit(groups(window)) is None
