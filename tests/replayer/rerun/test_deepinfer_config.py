"""What DeepInfer's adapter makes of a recorded configuration; the scheduler itself is not needed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tapedelay.replayer.rerun.deepinfer.config import RESERVED, Config, alone, fuller_than_watermark, smaller
from tapedelay.replayer.rerun.protocol import Submission, Unsupported

CONFIG: dict[str, Any] = {
    "block_size": 4,
    "num_blocks": 17,
    "max_num_batched_tokens": 8,
    "max_num_seqs": 4,
    "max_model_len": 64,
    "prefill_attempt_interval": 2,
    "prefill_any_attempt_interval": 3,
}


def test_pools_leave_out_unit_0() -> None:
    kv, state = Config.of({**CONFIG, "num_states": 8}).pools()
    assert (kv.name, kv.units, kv.reserved, kv.tokens_per_unit) == ("kv", 17, 1, 4)
    assert (state.name, state.units, state.reserved, state.tokens_per_unit) == ("state", 8, 1, None)
    assert len(Config.of(CONFIG).pools()) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nextn": 5}, "draft tokens"),
        ({"engine_type": 1}, "prompts and decoding"),
        ({"dp_size": 2}, "one rank"),
        ({"colour": 3}, "no setting 'colour'"),
        ({"chunked_prefill": 1}, "chunked_prefill"),
        ({"num_blocks": True}, "num_blocks"),
        ({"num_blocks": "17"}, "num_blocks"),
        ({"block_size": 0}, "not positive"),
    ],
)
def test_a_configuration_that_cannot_be_rerun_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        Config.of({**CONFIG, **change})


def test_a_missing_setting_is_refused() -> None:
    with pytest.raises(Unsupported, match="missing"):
        Config.of({"block_size": 4})


def test_what_a_recording_always_has_is_named_where_it_lacks() -> None:
    names = [f.name for f in fields(Config) if f.name != "eos_token_id"]
    whole = dict.fromkeys(names, 1)
    assert Config.missing(whole) == []
    for name in names:
        assert Config.missing({k: v for k, v in whole.items() if k != name}) == [name]


def test_a_step_that_only_decodes_is_at_no_try_of_a_prompt() -> None:
    made = Config.of({**CONFIG, "prefill_attempt_interval": 2, "prefill_any_attempt_interval": 3})
    assert made.quiet_decode_step() == 1
    with pytest.raises(Unsupported, match="every step"):
        Config.of({**CONFIG, "prefill_attempt_interval": 1}).quiet_decode_step()


def test_the_watermark_counts_block_0() -> None:
    assert not fuller_than_watermark(10, 1)
    assert fuller_than_watermark(10, 0)


@pytest.mark.parametrize(
    ("change", "submission", "can"),
    [
        ({}, Submission(0, 30, 3), True),
        ({"num_blocks": 11}, Submission(0, 34, 2), False),  # between two chunks it is above the watermark
        ({"num_blocks": 11, "max_num_batched_tokens": 64}, Submission(0, 34, 2), True),
        (
            {"num_blocks": 11, "max_num_batched_tokens": 64},
            Submission(0, 34, 2, flags=(RESERVED,)),
            False,
        ),
        ({}, Submission(0, 30, 31), False),  # no block is left for the decode step's question
        ({"chunked_prefill": False}, Submission(0, 9, 3), False),
        ({"num_states": 1}, Submission(0, 4, 3), False),
    ],
)
def test_whether_a_request_can_finish_alone(
    change: dict[str, Any], submission: Submission, can: bool
) -> None:
    assert alone(Config.of({**CONFIG, **change}), submission) is can


def test_smaller_configurations_leave_every_request_able_to_finish() -> None:
    made = Config.of({**CONFIG, "num_states": 8})
    submissions = [Submission(0, 20, 3), Submission(1, 6, 12)]
    for key in ("num_blocks", "num_states", "max_num_batched_tokens", "max_num_seqs"):
        changes = list(smaller(made, key, submissions))
        values = [c[key] for c in changes]
        assert values == sorted(values, reverse=True)
        assert values, key
        assert all(v < getattr(made, key) for v in values)
        for change in changes:
            assert all(alone(replace(made, **change), s) for s in submissions)
    assert min(c["num_blocks"] for c in smaller(made, "num_blocks", submissions)) > 6
