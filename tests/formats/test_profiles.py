"""Profiles: built-in ones, a tape's own, and what a definition may hold."""

from __future__ import annotations

from typing import Any

import pytest

from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.profiles import BUILTIN, Profile, find_profile


def test_device_data_is_what_the_plugin_reads() -> None:
    vulkan = "async_h2d=1;async_d2d=0;d2d_queue=src;events=1;host_buffer=1;pinned_set=1"
    assert BUILTIN["vulkan-like"].device_data() == vulkan
    assert BUILTIN["cuda-like"].device_data() == vulkan.replace("h2d=1", "h2d=0").replace("d2d=0", "d2d=1")
    assert BUILTIN["full-async"].device_data() == vulkan.replace("d2d=0", "d2d=1")


def test_strict_declares_no_edges_and_legacy_cuda_does() -> None:
    for name in ("strict", "ggml-host", "ggml-gpu", "vulkan-like", "cuda-like", "full-async"):
        assert not BUILTIN[name].declares_edges
    assert BUILTIN["cuda-legacy"].declares_edges
    assert BUILTIN["cuda-pageable"].blocking_copies == ("h2d", "d2h")


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_definitions_survive_the_manifest(name: str) -> None:
    assert Profile.from_dict(name, BUILTIN[name].as_dict()) == BUILTIN[name]


def test_the_tape_is_asked_before_the_built_in_ones() -> None:
    assert find_profile("strict", {"strict": {"free_synchronises": True}}).free_synchronises
    assert not find_profile("strict", {}).free_synchronises
    with pytest.raises(InvalidTape, match="'nobody'"):
        find_profile("nobody", {"somebody": {}})


@pytest.mark.parametrize(
    "data",
    [
        {"no_such_key": True},
        {"free_synchronises": 1},
        {"doc": None},
        {"blocking_copies": "h2d"},
        {"blocking_copies": ["h2h"]},
        {"blocking_copies": [[]]},
        {"d2d_queue": "both"},
        ["free_synchronises"],
        None,
    ],
)
def test_a_malformed_definition_is_refused(data: Any) -> None:
    with pytest.raises(InvalidTape) as caught:
        Profile.from_dict("p", data)
    assert "'p'" in caught.value.where
