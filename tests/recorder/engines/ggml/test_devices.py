"""The test devices in a host of our own making: what is pending when, what an event covers, who is refused.

Real engines (tests/engines) show that models compute right on them; they cannot show what is still pending
at a given line, nor a ggml that does not fit.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.formats.profiles import BUILTIN
from tapedelay.recorder import plugin

HERE = Path(__file__).parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
ALL = "async_h2d=1;async_d2d=1;d2d_queue=src;events=1;host_buffer=1;pinned_set=1"


@pytest.fixture(scope="module")
def program(host_program: Callable[..., Path]) -> Path:
    return host_program("device_cases.cpp")


def _run(program: Path, case: str, **env: str) -> str:
    """Run one case and return what it said on stderr."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "EXPECT_"))}
    base |= {"TAPEDELAY_DEVICES": "2", "TAPEDELAY_MEM_MB": "64", "TAPEDELAY_PROFILE_DATA": ALL} | env
    done = subprocess.run(
        [str(program), str(plugin.ggml_plugin()), case], env=base, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("api", ["2", "3"])
@pytest.mark.parametrize(
    "case",
    [
        "registry",
        "asynchronous",
        "in_order",
        "snapshot",
        "snapshot_reuse",
        "event_orders",
        "event_captured",
        "event_foreign",
        "event_freed_while_pending",
        "copy_between",
        "buffer_freed_while_pending",
        "backend_free_drains",
        "exit_while_pending",
        "fork_child",
        "many_threads",
    ],
)
def test_case(program: Path, case: str, api: str) -> None:
    assert _run(program, case, FAKE_API=api) == ""


def test_synchronous_mode(program: Path) -> None:
    _run(program, "synchronous", TAPEDELAY_SYNC="1")


def test_exit_runs_what_can_still_run(program: Path) -> None:
    _run(program, "exit_while_pending", OPEN="1")


def test_failure_is_said_and_sticky(program: Path) -> None:
    assert "computing a graph failed with status -1" in _run(program, "failure_is_sticky")


@pytest.mark.parametrize("name", ["vulkan-like", "cuda-like", "full-async"])
def test_profiles_are_data(program: Path, name: str) -> None:
    data = BUILTIN[name].device_data()
    keys = {"async_h2d=1": "EXPECT_H2D", "async_d2d=1": "EXPECT_D2D", "pinned_set=1": "EXPECT_PINNED"}
    env = {flag: "1" for entry, flag in keys.items() if entry in data.split(";")}
    env |= {"TAPEDELAY_PROFILE": name, "TAPEDELAY_PROFILE_DATA": data}
    _run(program, "copy_profiles", **env)
    _run(program, "set_reads_when", **env)


@pytest.mark.parametrize("pinned", ["0", "1"])
def test_when_a_set_reads_its_source(program: Path, pinned: str) -> None:
    env = {"EXPECT_PINNED": "1"} if pinned == "1" else {}
    _run(program, "set_reads_when", TAPEDELAY_PROFILE_DATA=f"pinned_set={pinned}", **env)


def _refusal(program: Path, **env: str) -> str:
    said = _run(program, "refused", **env).splitlines()
    assert len(said) == 1
    assert said[0].startswith("tapedelay: refused: ")
    return said[0]


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"FAKE_API": "6"}, "backend API version 6, versions 2 and 3 are supported"),
        ({"FAKE_TENSOR_BYTES": "16"}, "ggml_tensor has another size"),
        ({"TAPEDELAY_DEVICES": "99"}, "TAPEDELAY_DEVICES=99 is no number from 0 to 15"),
        ({"TAPEDELAY_DEVICES": "-1"}, "is no number"),
        ({"TAPEDELAY_THREADS": "0"}, "TAPEDELAY_THREADS=0"),
        ({"TAPEDELAY_SYNC": "yes"}, "TAPEDELAY_SYNC=yes"),
        ({"TAPEDELAY_PROFILE_DATA": "speed=1"}, "unknown key"),
        ({"TAPEDELAY_PROFILE_DATA": "events=2"}, "neither 0 nor 1"),
        ({"TAPEDELAY_PROFILE_DATA": "events"}, "no '='"),
        ({"TAPEDELAY_PROFILE_DATA": "d2d_queue=dst"}, "only 'src' is known"),
        ({"TAPEDELAY_PROFILE": "cuda-like", "TAPEDELAY_PROFILE_DATA": ""}, "needs TAPEDELAY_PROFILE_DATA"),
    ],
)
def test_refused(program: Path, env: dict[str, str], words: str) -> None:
    assert words in _refusal(program, **env)


def test_refused_where_a_function_is_missing(host_program: Callable[..., Path]) -> None:
    host = host_program("device_cases.cpp", "-DFAKE_WITHOUT_OP_NAME")
    assert "has no ggml_op_name" in _refusal(host)


def test_refused_where_nothing_is_exported(host_program: Callable[..., Path]) -> None:
    assert "no loaded library exports" in _refusal(host_program("device_cases.cpp", exports=False))
