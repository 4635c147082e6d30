"""``tapedelay record`` around small real commands; engines are tested in tests/engines."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.recorder.asked import profile_names

from .small_commands import computing, copy_spool, leftovers, python

# --- exit codes -------------------------------------------------------------------------------------------


def test_a_command_without_an_engine_cannot_be_judged(cli: Any, tmp_path: Path) -> None:
    done = cli("record", "-o", "run.tape", *python("print('hello')"))
    assert done.returncode == 4
    assert done.stdout == "hello\n"
    assert "ERROR: nothing was recorded" in done.stderr
    assert "no tape was written" in done.stderr
    assert "Python ran without importing xllamacpp or llama_cpp or vllm or deepinfer or " in done.stderr
    assert leftovers(tmp_path) == []


def test_the_commands_own_exit_code_comes_first(cli: Any, tmp_path: Path) -> None:
    assert cli("record", "-o", "run.tape", *python("raise SystemExit(7)")).returncode == 7
    assert cli("record", "-o", "run.tape", *python("import os; os.kill(os.getpid(), 9)")).returncode == 137
    assert leftovers(tmp_path) == []


def test_work_on_the_device_gives_zero_and_the_next_step(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--devices", "1", *python(copy_spool(spool)))
    assert done.returncode == 0, done.stderr
    assert "1 op on 2 queues in run.tape (computes: 1 TAPE0)" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: tapedelay check run.tape"
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1
    assert leftovers(tmp_path) == ["run.tape"]


def test_work_on_the_cpu_only_is_no_recording_of_the_device(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.cpu_queue)
    for words, says in (
        (["--devices", "1"], "no compute was recorded on TAPE0"),
        ([], "on any GPU or test device"),
        (["--devices", "0"], "no GPU backend was found (expected one, as --devices 0 asks for)"),
        (["--devices", "2"], "only 1 of 2 test devices"),
    ):
        done = cli("record", "-o", "run.tape", "--force", *words, *python(copy_spool(spool)))
        assert done.returncode == 4, words
        assert says in done.stderr
        assert "next: tapedelay check" not in done.stderr
    assert (tmp_path / "run.tape").is_dir()  # what was recorded can still be looked at


def test_every_device_asked_for_must_work(cli: Any, engine: Any) -> None:
    e = engine(devices=2)
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--devices", "2", *python(copy_spool(spool)))
    assert done.returncode == 4
    assert "no compute was recorded on TAPE1" in done.stderr


def test_any_process_may_do_the_work(cli: Any, engine: Any) -> None:
    idle, busy = engine(wall_ns=1_000), engine(wall_ns=2_000)
    idle.w.record("sync", queue=idle.queues[0])
    idle.w.write()
    spool = computing(busy, busy.queues[0])
    assert cli("record", "-o", "run.tape", "--devices", "1", *python(copy_spool(spool))).returncode == 0


def test_a_spool_that_could_not_be_written_is_said(cli: Any, engine: Any) -> None:
    e = engine()
    e.w.head["flags"] = 2
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "stopped early" in done.stderr
    assert "not complete" in done.stderr


def test_a_recording_that_does_not_hold_together_is_said(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    for _ in range(300):  # each part of the one before: deeper than any rule allows
        e.w.record("compute", queue=e.queues[0], flags=8 | 16, e=1)
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "it gives a tape that breaks" in done.stderr
    assert "please report it with the raw recording" in done.stderr
    (kept,) = leftovers(tmp_path)
    again = cli("record", "-o", "run.tape", "--from-spool", kept)
    assert again.returncode == 3
    assert f"{kept}: it gives a tape that breaks" in again.stderr
    assert leftovers(tmp_path) == [kept], "no invalid tape stays"


def test_a_spool_without_header_could_not_be_written(cli: Any, tmp_path: Path) -> None:
    make = "import os; d = os.environ['TAPEDELAY_SPOOL']\nfor n in ('rec', 'def'): open(d + '/1-1.' + n, 'w')"
    done = cli("record", "-o", "run.tape", *python(make))
    assert done.returncode == 5
    assert "recording stopped early: the spool could not be written any more; no tape was written" in (
        done.stderr
    )
    assert "ulimit -f" in done.stderr


def test_a_spool_that_was_removed_is_said(cli: Any, tmp_path: Path) -> None:
    done = cli(
        "record", "-o", "run.tape", *python("import os, shutil; shutil.rmtree(os.environ['TAPEDELAY_SPOOL'])")
    )
    assert done.returncode == 5
    assert "the raw recording was removed while the command ran" in done.stderr
    assert leftovers(tmp_path) == []


def test_a_damaged_spool_is_said(cli: Any, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    e.w.definitions.write_bytes(b"\xff" * 64 + e.w.definitions.read_bytes())
    e.w.rec.write_bytes(b"\xff" * 64)
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool)))
    assert done.returncode == 5
    assert "foreign file" in done.stderr
    assert "report it with the raw recording, .run.tape." in done.stderr


def test_a_command_that_was_killed_is_collected_all_the_same(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    e.w.head["flags"] = 0
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool) + "os.kill(os.getpid(), 9)"))
    assert done.returncode == 137
    tape = load_tape(tmp_path / "run.tape")
    assert tape.table("ops").num_rows == 1
    assert not tape.manifest.complete


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "run.tape"], "no command"),
        (["-o", "run.tape", "--", "no-such-command-here"], "cannot run 'no-such-command-here'"),
        (["-o", "run.tape", "--", "/"], "cannot run '/'"),
        (["-o", "missing/run.tape", "--", "true"], "folder is not there"),
        (["-o", "plugin.so", "--", "true"], "no tape is there already"),
        (["-o", "--", "touch", "ran"], "the name of the tape is '--'"),
        (["-o", "-x", "--", "touch", "ran"], "the name of the tape is '-x'"),
        (["-o", "run.tape", "--Devices", "1", "--", "touch", "ran"], "No such option"),
        (["-o", "run.tape", "--", "--devices", "1", "touch", "ran"], "the command is '--devices'"),
        (["-o", ".", "--force", "--", "touch", "ran"], "cannot be replaced"),
        (["-o", "..", "--force", "--", "touch", "ran"], "cannot be replaced"),
        (["-o", "plugin.so", "--force", "--", "touch", "ran"], "no tape is there already"),
        (["-o", "run.tape", "--json-file", "missing/x.json", "--", "touch", "ran"], "--json-file"),
        (["-o", "run.tape", "--devices", "99", "--", "true"], "--devices"),
        (["-o", "run.tape", "--profile", "nvidia", "--", "true"], "--profile"),
        (["-o", "run.tape", "--from-spool", "spool", "--", "true"], "--from-spool"),
        (["--", "true"], "--output"),
    ],
)
def test_wrong_use(cli: Any, tmp_path: Path, words: list[str], says: str) -> None:
    done = cli("record", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", ["notes", "notes.zip", "folder.zip", "single.tape", "foreign.zip"])
def test_what_is_no_tape_is_not_replaced_and_this_is_said_before_the_run(
    cli: Any, engine: Any, tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    if name == "notes.zip":
        place.write_text("mine")
    elif name == "foreign.zip":
        with zipfile.ZipFile(place, "w") as z:
            z.writestr("mine.txt", "mine")
    elif name == "single.tape":  # a tape, but in one file, where a folder is asked for
        e = engine()
        spool = computing(e, e.queues[0])
        assert cli("record", "-o", "a.tape.zip", "--devices", "1", *python(copy_spool(spool))).returncode == 0
        (tmp_path / "a.tape.zip").rename(place)
    else:
        place.mkdir()
        (place / "mine.txt").write_text("mine")
    before = leftovers(tmp_path)
    done = cli("record", "-o", name, "--force", "--", "touch", "ran")
    assert done.returncode == 2
    assert "no tape is there already" in done.stderr
    assert leftovers(tmp_path) == before


@pytest.mark.parametrize("name", ["run.tape", "run.tape.zip"])
def test_a_tape_is_replaced_with_force_only(cli: Any, engine: Any, tmp_path: Path, name: str) -> None:
    e = engine()
    words = ["--devices", "1", *python(copy_spool(computing(e, e.queues[0])))]
    assert cli("record", "-o", name, *words).returncode == 0
    refused = cli("record", "-o", name, *words)
    assert refused.returncode == 2
    assert "add --force" in refused.stderr
    assert cli("record", "-o", name, "--force", *words).returncode == 0
    assert leftovers(tmp_path) == [name]


def test_the_usage_line_shows_where_the_command_goes(cli: Any) -> None:
    shown = cli("record", "--help").stdout
    assert "tapedelay record [OPTIONS] -- COMMAND...\n" in shown
    assert "the last line" in shown


def test_no_plugin_is_said_before_anything_runs(cli: Any, tmp_path: Path) -> None:
    done = cli(
        "record", "-o", "run.tape", *python("print('ran')"), TAPEDELAY_PLUGIN=str(tmp_path / "gone.so")
    )
    assert done.returncode == 5
    assert done.stdout == ""
    assert "plugin is not there" in done.stderr


def test_json_is_one_line_after_the_commands_output(cli: Any, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli("record", "-o", "run.tape", "--json", *python(copy_spool(spool) + "print('mine')"))
    said = json.loads(done.stdout.splitlines()[-1])
    assert done.stdout.splitlines()[0] == "mine"
    assert (said["tape"], said["ops"], said["exit_code"], said["faults"]) == ("run.tape", 1, 0, [])


def test_json_can_go_to_a_file(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli(
        "record", "-o", "run.tape", "--json-file", "said.json", *python(copy_spool(spool) + "print(1)")
    )
    assert done.stdout == "1\n"
    assert json.loads((tmp_path / "said.json").read_text())["ops"] == 1
    assert "next: tapedelay check run.tape" in done.stderr


# --- hints follow what happened ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        ((sys.executable, "nope.py"), "2"),
        (("false",), "1"),
        (("sh", "-c", "kill -9 $$"), "137 (SIGKILL)"),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 2)"), "130 (SIGINT)"),
    ],
)
def test_a_command_that_fails_before_the_engine_gets_one_line_and_the_next_one(
    cli: Any, tmp_path: Path, command: tuple[str, ...], ended: str
) -> None:
    done = cli("record", "-o", "run.tape", "--", *command)
    assert done.returncode == int(ended.split()[0])
    ours = [n for n in done.stderr.splitlines() if n.startswith(("tapedelay:", "  next", "next"))]
    assert ours == [
        f"tapedelay: ERROR: the command ended with {ended} before it used the engine; no tape was written",
        f"  next: tapedelay doctor -- {' '.join(map(shlex.quote, command))}",
    ]
    assert leftovers(tmp_path) == []


def test_a_command_that_fails_after_the_plugin_was_loaded_gets_the_same(
    cli: Any, engine: Any, tmp_path: Path
) -> None:
    e = engine()
    spool = e.w.write().parent  # the engine came up, and found no model
    fails = python(copy_spool(spool) + "raise SystemExit(1)")
    for words in ([], ["--devices", "1"], ["--devices", "0"]):
        done = cli("record", "-o", "run.tape", *words, *fails)
        assert done.returncode == 1
        said, following = done.stderr.splitlines()
        assert said == (
            "tapedelay: ERROR: the command ended with 1 before it used the engine; no tape was written"
        )
        assert following.startswith("  next: tapedelay doctor -- ")
    assert leftovers(tmp_path) == []


def test_one_length_of_the_flight_recorder(cli: Any) -> None:
    done = cli("record", "-o", "run.tape", "--last", "5", "--last", "30s", "--", "true")
    assert done.returncode == 2
    assert "--last 5 and --last 30s (expected one of them" in done.stderr


def test_a_command_that_fails_after_its_work_is_recorded(cli: Any, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    done = cli(
        "record", "-o", "run.tape", "--devices", "1", *python(copy_spool(spool) + "raise SystemExit(3)")
    )
    assert done.returncode == 3
    assert "ERROR" not in done.stderr
    assert "tapedelay: the command ended with 3\n" in done.stderr
    assert done.stderr.splitlines()[-1] == "next: tapedelay check run.tape"


def test_no_tape_without_an_op_and_an_older_one_stays(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    assert cli("record", "-o", "run.tape", *python(copy_spool(computing(e, e.queues[0])))).returncode == 0
    empty = engine()
    for path in (e.w.rec, e.w.definitions):
        path.unlink()
    spool = empty.w.write().parent
    done = cli("record", "-o", "run.tape", "--force", *python(copy_spool(spool)))
    assert done.returncode == 4
    assert "no tape was written, run.tape is the older one" in done.stderr
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1
    assert cli("record", "-o", "x.tape", "--from-spool", str(spool)).returncode == 4
    assert leftovers(tmp_path) == ["run.tape"]


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_without_the_import_hook_is_named(cli: Any, option: str) -> None:
    words = ("--", sys.executable, "-W", "ignore", option, "-c", "pass")
    done = cli("record", "-o", "run.tape", *words)
    assert done.returncode == 4
    assert f"Python with {option} does not load the import hook" in done.stderr
    assert f"run it without {option}" in done.stderr
    inside = cli("record", "-o", "run.tape", "--", "sh", "-c", 'exec "$@"', *words)
    assert inside.returncode == 4
    assert "(-I, -E and -S keep it from the import hook)" in inside.stderr


def test_a_safe_path_does_not_keep_python_from_the_import_hook(cli: Any) -> None:
    done = cli("record", "-o", "run.tape", *python("pass"), PYTHONSAFEPATH="1")
    assert "Python ran without importing" in done.stderr


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tapedelay", "record", "-o", "--", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the name of the tape is '--'")


def test_profiles_of_test_devices_only() -> None:
    assert profile_names() == ("cuda-like", "full-async", "vulkan-like")


def test_nothing_heavy_is_imported_before_the_engine_has_ended() -> None:
    code = (
        "import sys, tapedelay.recorder.command, tapedelay.recorder.session\n"
        "print({'pyarrow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
