"""What vLLM calls in each of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
CALL = """
import sys
from tapedelay.recorder.engines.vllm.plugin import start
before = set(sys.modules)
start()
start()
print(sorted(m for m in set(sys.modules) - before if m.startswith("tapedelay")))
print(sum(getattr(f, "finds_engines", False) for f in sys.meta_path))
"""


def call(**env: str) -> subprocess.CompletedProcess[str]:
    base = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_")}
    return subprocess.run([sys.executable, "-c", CALL], env=base | env, capture_output=True, text=True)


def test_the_entry_point_names_it() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = points["vllm.general_plugins"]["tapedelay"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_nothing_happens_without_a_recording() -> None:
    done = call()
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "0"], "")


def test_the_import_hook_is_there_once_in_a_recording(tmp_path: Path) -> None:
    done = call(TAPEDELAY_SPOOL=str(tmp_path))
    assert (done.stdout.splitlines()[-1], done.stderr) == ("1", "")


def test_a_fault_is_said_and_never_reaches_vllm() -> None:
    broken = "import tapedelay.recorder.hook.engine_hook as h\nh.install = lambda: 1 / 0\n" + CALL
    base = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_")}
    done = subprocess.run(
        [sys.executable, "-c", broken],
        env=base | {"TAPEDELAY_SPOOL": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "vllm's scheduler is not recorded (ZeroDivisionError" in done.stderr
