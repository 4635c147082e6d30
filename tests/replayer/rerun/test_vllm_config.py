"""What no scheduler of vLLM is built for; vLLM itself is not needed to say so."""

from __future__ import annotations

from typing import Any

import pytest

from tapedelay.replayer.rerun.protocol import Unsupported
from tapedelay.replayer.rerun.vllm.build import DEFAULTS, build, missing

RECORDED: dict[str, Any] = {
    **DEFAULTS, "hash_block_size": 16, "max_concurrent_batches": 1, "cannot_judge": "",
    "group0_block_size": 16, "group0_num_kv_heads": None, "group0_head_size": 8, "group0_dtype": "float32",
    "group0_sliding_window": None, "group0_attention_chunk_size": None,
}  # fmt: skip
"""A configuration as the recorder writes it."""


def test_a_recorded_configuration_has_every_setting() -> None:
    assert missing(RECORDED) == []
    second = {k.replace("group0", "group1"): v for k, v in RECORDED.items() if k.startswith("group0_")}
    assert missing({**RECORDED, "groups": 2, **second}) == []


@pytest.mark.parametrize("key", RECORDED)
def test_a_missing_setting_is_named(key: str) -> None:
    without = {k: v for k, v in RECORDED.items() if k != key}
    assert key in missing(without)
    if RECORDED[key] is not None:
        assert missing({**RECORDED, key: None}) in ([key], [])


def test_a_second_group_has_settings_of_its_own() -> None:
    assert [k.partition("_")[0] for k in missing({**RECORDED, "groups": 2})] == ["group1"] * 7


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_blocks": 1 << 62}, "num_blocks 4611686018427387904: a rerun makes them all"),
        ({"groups": 10**30}, "groups 1000"),
        ({"scheduler": "os:getcwd"}, "neither"),
        ({"cannot_judge": "lora,pooling"}, "lora, pooling"),
        ({"group0_kind": "mamba"}, "kind mamba"),
    ],
)
def test_a_configuration_is_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        build(config)
