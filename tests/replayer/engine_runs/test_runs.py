"""What goes wrong before an engine computes anything is told by a word of its own; the real recorder."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError, InputError, UsageError
from tapedelay.replayer.engine_runs import EngineRun, EngineRuns, Setting, explain, run_engine_twice
from tapedelay.replayer.engine_runs.compare import difference

PLAN = "first copy on TAPE0 +1ms"


def runs(tmp_path: Path, code: str, **asked: Any) -> EngineRuns:
    program = [sys.executable, "-c", code]
    return run_engine_twice(program, **{"plan": PLAN, "folder": tmp_path / "runs", **asked})


def test_a_program_without_an_engine_is_vacuous(tmp_path: Path) -> None:
    result = runs(tmp_path, "print('right')")
    assert result.verdict == "vacuous"
    assert result.failing is result.reference
    text = "\n".join(explain(result))
    assert "no work ran on the device: a right answer would mean nothing" in text
    assert "nothing was recorded: no process loaded the plugin" in text
    assert not result.runs


def test_a_program_that_fails(tmp_path: Path) -> None:
    result = runs(tmp_path, "import sys; sys.exit('no such model')")
    assert result.verdict == "failed"
    text = "\n".join(explain(result))
    assert "the program failed on synchronous devices: exit code 1" in text
    assert "    no such model" in text
    assert "to run it again: tapedelay record -o again.tape --force --devices 1 " in text
    killed = runs(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert "the program failed on synchronous devices: signal SIGSEGV" in "\n".join(explain(killed))


def test_a_function_that_fails_is_told_as_if_nothing_had_called_it(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "def load():\n    raise OSError('no such model')\n\ndef answer():\n    load()\n"
    )
    result = run_engine_twice(f"{tmp_path}/engine.py:answer", plan=PLAN, folder=tmp_path / "runs")
    lines = explain(result)
    assert (
        lines[1] == "  the program failed on synchronous devices: OSError: no such model (expected a value)"
    )
    assert lines[2:5] == [
        "  it wrote:",
        "    Traceback (most recent call last):",
        f'      File "{tmp_path}/engine.py", line 5, in answer',
    ]
    assert not any("child.py" in line for line in lines if not line.startswith("to run it again"))


def test_an_unsteady_program_is_told_where_and_what_helps() -> None:
    """What `_settle` notes, in words; an engine's own is in tests/engines."""
    result = made(1, 2, again=3)
    result.unsteady = difference([5, 1], [5, 3], runs=("in the first synchronous run", "in the second"))
    text = "\n".join(explain(result))
    assert "  [1]: 1 in the first synchronous run, 3 in the second\n  give pick= a function" in text
    assert "under the plan" not in text


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    result = runs(tmp_path, code, timeout_s=3)
    assert result.verdict == "timeout"
    assert "the program did not end on synchronous devices (expected an end within 3 s)" in str(
        explain(result)
    )
    child = int((tmp_path / "runs" / "synchronous.out").read_text())
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child of the program still runs")


def test_the_environment_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHE", "here")
    code = "import os, sys; sys.exit(f\"{os.environ.get('SHE')} {os.environ['HE']}\")"
    result = runs(tmp_path, code, env={"SHE": None, "HE": "a b"})
    assert result.reference.said.splitlines()[0] == "None a b"
    assert "to run it again: env -u SHE HE='a b' tapedelay record" in "\n".join(explain(result))


@pytest.mark.parametrize(
    "asked",
    [
        {"devices": 0},
        {"devices": 16},
        {"repeat": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"plan": []},
    ],
)
def test_options_that_make_no_sense(asked: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        runs(tmp_path, "", **asked)
    assert not (tmp_path / "runs").exists()


def test_a_bad_plan_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "empty.delays").write_text("tapedelay-plan 1\n")
    for plan in ("no such plan", "missing.delays", tmp_path / "empty.delays"):
        with pytest.raises((InputError, UsageError)):
            runs(tmp_path, "", plan=plan)
    assert not (tmp_path / "runs").exists()


def test_what_the_recorder_refuses_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="none-like"):
        runs(tmp_path, "", profile="none-like")
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "nowhere"))
    with pytest.raises(InfrastructureError, match="the ggml plugin is not there"):
        runs(tmp_path, "")


# --- verdicts ---


def made(*values: int | None, again: int | None = 1, trouble: str = "") -> EngineRuns:
    """Return runs with these values, the reference first."""

    def run(value: int | None) -> EngineRun:
        return EngineRun("x", value, str(value), trouble=trouble if value is None else "")

    reference, *others = map(run, values)
    differences = [
        f"{reference.value} and {r.value}" * (r.value != reference.value and not r.trouble) for r in others
    ]
    result = EngineRuns(Setting(1, "vulkan-like", {}, 1, Path()), reference, others, differences)
    if result.wrong:
        result.again = run(again)
        result.steady = again == reference.value
    return result


@pytest.mark.parametrize(
    ("result", "verdict", "failing"),
    [
        (made(1, 1, 1), "equal", None),
        (made(1, 1, 2), "differs", 1),
        (made(1, 2, again=3), "unsteady", 0),
        (made(1, None, trouble="timeout"), "timeout", 0),
        (made(1, 1, None, trouble="unmatched"), "unmatched", 1),
        (made(1, None, 2, trouble="failed"), "differs", 1),
        (made(None, trouble="vacuous"), "vacuous", -1),
        (made(1, 2, again=None, trouble="failed"), "unsteady", 0),
    ],
)
def test_verdicts(result: EngineRuns, verdict: str, failing: int | None) -> None:
    assert result.verdict == verdict
    expected = None if failing is None else [result.reference, *result.runs][failing + 1]
    assert result.failing is expected


def test_whether_all_wrong_runs_are_alike() -> None:
    assert made(1, 2, 1, 2).same_wrong
    assert not made(1, 2, 3).same_wrong
    assert not made(1, 1).same_wrong
