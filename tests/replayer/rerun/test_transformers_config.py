"""What a recorded configuration of transformers must have; transformers itself is not needed to say so."""

from __future__ import annotations

from typing import Any

import pytest

from tapedelay.replayer.rerun.protocol import Unsupported
from tapedelay.replayer.rerun.transformers.build import check, missing

RECORDED: dict[str, Any] = {
    "scheduler": "fifo", "safety_margin": 0.0, "max_requests_per_batch": 4, "max_batch_tokens": 32,
    "page_size": 16, "num_sectors": 8, "num_blocks": 8, "allow_block_sharing": True,
    "use_async_batching": False, "max_blocks_per_request": 0, "swap_sectors": 0, "dtype": "float32",
    "num_key_value_heads": 2, "head_dim": 8, "full_layers": 2, "sliding_layers": 0, "sliding_first": False,
    "sliding_window": None, "cannot_judge": "",
}  # fmt: skip


def test_a_recorded_configuration_has_every_setting() -> None:
    assert missing(RECORDED) == []
    check(RECORDED)


@pytest.mark.parametrize("key", sorted(set(RECORDED) - {"num_blocks"}))
def test_a_missing_setting_is_named(key: str) -> None:
    assert missing({k: v for k, v in RECORDED.items() if k != key}) == [key]


def test_a_window_that_slides_has_a_length() -> None:
    assert missing({**RECORDED, "sliding_layers": 1}) == ["sliding_window"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cannot_judge": "dtype"}, "cannot be rerun: dtype"),
        ({"scheduler": "other"}, "no scheduler 'other'"),
        ({"page_size": 0}, "no room"),
        ({"full_layers": 0}, "no layers"),
        ({"num_sectors": True}, "no usable num_sectors"),
    ],
)
def test_a_configuration_that_cannot_be_rerun_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        check({**RECORDED, **change})
