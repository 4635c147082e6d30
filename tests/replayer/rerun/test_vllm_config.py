"""What no scheduler of vLLM is built for; vLLM itself is not needed to say so."""

from __future__ import annotations

import pytest

from tapedelay.replayer.rerun.protocol import Unsupported
from tapedelay.replayer.rerun.vllm.build import build


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
