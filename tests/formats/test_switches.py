"""The table of debugging switches: what their values mean, and which devices they concern."""

from __future__ import annotations

import pytest

from tapedelay.formats.edges import Added, added_by_switches
from tapedelay.formats.edges.switched import weakened_by_switches
from tapedelay.formats.litmus import parse
from tapedelay.formats.schema import OP_KINDS
from tapedelay.formats.switches import (
    BACKENDS,
    DIRECTIONS,
    EFFECTS,
    READINGS,
    SWITCHES,
    TABLE,
    family,
    word_of,
)
from tapedelay.formats.tape import Tape


def test_the_table_keeps_to_its_vocabulary() -> None:
    assert len(TABLE) == len(SWITCHES)
    for switch in SWITCHES:
        assert switch.reading in READINGS
        assert (switch.reading == "words") == bool(switch.words)
        assert switch.default in switch.states
        assert set(switch.backends) <= set(BACKENDS)
        assert switch.doc
        assert switch.source
        # Either it orders something, or the table says why not.
        assert bool(switch.effects) != bool(switch.reason), switch.name
        assert set(switch.effects) <= set(switch.states)
        for effects in switch.effects.values():
            for effect in effects:
                assert effect.rule in EFFECTS
                assert set(effect.kinds) <= set(OP_KINDS)
                assert set(effect.directions) <= set(DIRECTIONS)
                assert all(state in TABLE[name].states for name, state in effect.needs)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("GGML_VK_DISABLE_ASYNC", "", "on"),
        ("GGML_VK_DISABLE_ASYNC", "0", "on"),
        ("CUDA_LAUNCH_BLOCKING", "1", "on"),
        ("CUDA_LAUNCH_BLOCKING", "0", "off"),
        ("CUDA_LAUNCH_BLOCKING", " +2x", "on"),
        ("CUDA_LAUNCH_BLOCKING", "yes", "off"),
        ("CUDA_LAUNCH_BLOCKING", "9" * 9999, "on"),
        ("GGML_CUDA_PDL", "", "off"),
        ("GGML_CUDA_GRAPH_OPT", "1", "on"),
        ("GGML_CUDA_GRAPH_OPT", "01", "on"),
        ("GGML_CUDA_GRAPH_OPT", "2", "off"),
        ("GGML_CUDA_GRAPH_OPT", "-1", "off"),
        ("AMD_SERIALIZE_COPY", "3", "both"),
        ("AMD_SERIALIZE_COPY", "0", "off"),
        ("AMD_SERIALIZE_COPY", "/home/somebody", "other"),
        ("NCCL_LAUNCH_MODE", "GROUP", "group"),
        ("NCCL_LAUNCH_MODE", "group", "other"),
        ("TORCH_NCCL_BLOCKING_WAIT", "True", "on"),
        ("TORCH_NCCL_BLOCKING_WAIT", "truer", "off"),
        ("TORCH_NCCL_BLOCKING_WAIT", "", "off"),
        ("PATH", "/bin", None),
        ("CUDA_LAUNCH_BLOCKING", None, None),
    ],
)
def test_a_value_becomes_a_known_word(name: str, value: str | None, word: str | None) -> None:
    assert word_of(name, value) == word
    if word is not None:
        assert word in TABLE[name].states


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda s: s.name)
def test_a_state_can_be_set(switch: object) -> None:
    assert switch in SWITCHES
    s = next(s for s in SWITCHES if s == switch)
    for state in s.states:
        if s.value(state):
            assert word_of(s.name, s.value(state)) == state
            assert s.setting(state) == f"{s.name}={s.value(state)}"
        else:
            assert state == "other" or s.reading == "set"
            assert s.setting(state) == f"{s.name} unset"


@pytest.mark.parametrize(
    ("name", "kind", "profile", "expected"),
    [
        ("CUDA0", "gpu", "ggml-gpu", ("cuda", False)),
        ("ROCm12", "gpu", "strict", ("rocm", False)),
        ("p1.Vulkan0", "gpu", "ggml-gpu", ("vulkan", False)),
        ("Vulkan0.2", "igpu", "ggml-gpu", ("vulkan", False)),
        ("MTL0", "gpu", "ggml-gpu", ("metal", False)),
        ("g0", "gpu", "cuda-legacy", ("cuda", False)),
        ("g0", "gpu", "strict", ("", False)),
        ("Vulkanish", "gpu", "strict", ("", False)),
        ("TAPE0", "test", "vulkan-like", ("vulkan", True)),
        ("TAPE0", "test", "cuda-like", ("cuda", True)),
        ("TAPE0", "test", "full-async", ("", True)),
        ("CUDA0", "host", "strict", ("", False)),
    ],
)
def test_the_family_of_a_device(name: str, kind: str, profile: str, expected: tuple[str, bool]) -> None:
    assert family(name, kind, profile) == expected


def tape(*switches: str) -> Tape:
    lines = ["device CPU host", "device Vulkan0 gpu", "device TAPE0 test profile=vulkan-like", "host H CPU"]
    return parse("\n".join([*lines, *(f"switch {s}" for s in switches), "1 | host | H | |"]) + "\n").tape()


def test_a_switch_counts_on_its_backend_alone() -> None:
    none = [Added(), Added(), Added()]
    assert added_by_switches(tape()) == none
    assert added_by_switches(tape("GGML_VK_DISABLE_ASYNC off")) == none
    assert added_by_switches(tape("CUDA_LAUNCH_BLOCKING on")) == none
    host, real, played = added_by_switches(tape("GGML_VK_DISABLE_ASYNC on"))
    assert (bool(host), bool(real), bool(played)) == (False, True, False)


def test_what_is_supposed_counts_on_devices_that_play_the_backend_too() -> None:
    host, real, played = added_by_switches(tape(), {"GGML_VK_DISABLE_ASYNC": "on"})
    assert real == played
    assert (bool(host), bool(played)) == (False, True)
    _, real, played = added_by_switches(tape("GGML_VK_DISABLE_ASYNC on"), {"GGML_VK_DISABLE_ASYNC": "off"})
    assert not real
    assert not played


def test_the_switch_of_test_devices_is_theirs() -> None:
    host, real, played = added_by_switches(tape("TAPEDELAY_SYNC on"))
    assert (bool(host), bool(real), played.blocks) == (False, False, (1 << len(OP_KINDS)) - 1)


def test_what_a_switch_takes_away_is_said() -> None:
    assert list(weakened_by_switches(tape())) == []
    assert list(weakened_by_switches(tape("GGML_VK_ASYNC_USE_TRANSFER_QUEUE off"))) == []
    found = list(weakened_by_switches(tape("GGML_VK_ASYNC_USE_TRANSFER_QUEUE on")))
    assert [name for name, _ in found] == ["GGML_VK_ASYNC_USE_TRANSFER_QUEUE"]
