"""The environment of a recorded command, and what it asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tapedelay.recorder.asked import Asked
from tapedelay.recorder.launch import environment, from_environment

from .small_commands import python


def test_what_the_command_gets(tmp_path: Path) -> None:
    base = {"PYTHONPATH": "/mine", "TAPEDELAY_SYNC": "1", "PATH": "/bin"}
    env = environment(base, Asked(2, "cuda-like"), spool=tmp_path, plugin=Path("/p.so"))
    assert env["PATH"] == "/bin"
    assert env["PYTHONPATH"].endswith(os.pathsep + "/mine")
    assert (env["TAPEDELAY_DEVICES"], env["TAPEDELAY_PROFILE"]) == ("2", "cuda-like")
    assert "async_d2d=1" in env["TAPEDELAY_PROFILE_DATA"]
    assert env["TAPEDELAY_PLUGIN"] == env["GGML_BACKEND_PATH"] == "/p.so"
    assert "TAPEDELAY_SYNC" not in env  # it is asked for, or it is not
    auto = environment({}, Asked(sync=True), spool=tmp_path, plugin=Path("/p.so"))
    assert "TAPEDELAY_DEVICES" not in auto
    assert auto["TAPEDELAY_SYNC"] == "1"


def test_what_the_environment_asks_for(cli: Any) -> None:
    """``TAPEDELAY_SYNC=1``, which `check` names, is ``--sync``; what has an option is said, not dropped."""
    shows = python("import os; print({k: v for k, v in os.environ.items() if k in ('TAPEDELAY_SYNC',)})")
    for value, seen in (("1", "{'TAPEDELAY_SYNC': '1'}"), ("0", "{}"), ("", "{}")):
        assert cli("record", "-o", "run.tape", *shows, TAPEDELAY_SYNC=value).stdout == seen + "\n"
    done = cli("record", "-o", "run.tape", *shows, TAPEDELAY_SYNC="yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "TAPEDELAY_SYNC=yes (expected 0 or 1)" in done.stderr
    done = cli("record", "-o", "run.tape", *shows, TAPEDELAY_DEVICES="2", TAPEDELAY_RING_MS="5")
    assert "tapedelay: TAPEDELAY_DEVICES is not taken from the environment: use --devices\n" in done.stderr
    assert "TAPEDELAY_RING_MS is not taken from the environment: use --last" in done.stderr


def test_an_outer_recordings_settings_are_no_wishes() -> None:
    base = {"TAPEDELAY_SYNC": "1", "TAPEDELAY_DEVICES": "2"}
    asked, said = from_environment(Asked(in_python=True), base)
    assert asked.sync
    assert said == ["TAPEDELAY_DEVICES is not taken from the environment: use devices="]
    assert from_environment(Asked(), {**base, "TAPEDELAY_SPOOL": "/x"}) == (Asked(), [])
