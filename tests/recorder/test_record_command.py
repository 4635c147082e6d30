"""``tapedelay record`` around small real commands; engines are tested in tests/engines."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.recorder.asked import Asked, profile_names
from tapedelay.recorder.launch import environment, from_environment

ENTRY = "import sys; from tapedelay.formats.cli import main; main()"


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``tapedelay`` in ``tmp_path`` with a plugin that exists but that nobody loads."""
    plugin = tmp_path / "plugin.so"
    plugin.write_text("")

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            cwd=tmp_path,
            env={**os.environ, "TAPEDELAY_PLUGIN": str(plugin), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call


def python(code: str) -> Sequence[str]:
    return ("--", sys.executable, "-c", code)


def copy_spool(spool: Path) -> str:
    """Return the code of a command that leaves these spool files behind, as an engine would."""
    return (
        f"import os, shutil, glob\nfor f in glob.glob({str(spool)!r} + '/*'): "
        "shutil.copy(f, os.environ['TAPEDELAY_SPOOL'])\n"
    )


def computing(e: Any, queue: int) -> Path:
    e.w.record("compute", queue=queue, d=e.w.set([(e.memory, 0, 8, "write", "x")]))
    folder: Path = e.w.write().parent
    return folder


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in ("plugin.so", "spool"))


# --- exit codes -------------------------------------------------------------------------------------------


def test_a_command_without_an_engine_cannot_be_judged(cli: Any, tmp_path: Path) -> None:
    done = cli("record", "-o", "run.tape", *python("print('hello')"))
    assert done.returncode == 4
    assert done.stdout == "hello\n"
    assert "ERROR: nothing was recorded" in done.stderr
    assert "no tape was written" in done.stderr
    assert "Python ran without importing xllamacpp or llama_cpp" in done.stderr
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


# --- spools -----------------------------------------------------------------------------------------------


def test_a_kept_spool_is_private_and_collects_to_the_same_tape(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    assert cli("record", "-o", "run.tape", "--keep-spool", *python(copy_spool(spool))).returncode == 0
    kept = next(tmp_path.glob(".run.tape.*.spool"))
    assert kept.stat().st_mode & 0o777 == 0o700
    assert "not a tape yet" in (refused := cli("check", str(kept))).stderr
    assert f"tapedelay record -o run.tape --from-spool {kept}" in refused.stderr
    assert cli("record", "-o", "again.tape", "--from-spool", str(kept)).returncode == 0
    for name in ("ops", "accesses", "buffers"):
        assert load_tape(tmp_path / "again.tape").table(name) == load_tape(tmp_path / "run.tape").table(name)
    assert cli("record", "-o", "x.tape", "--from-spool", "nowhere").returncode == 3
    for tape in ("run.tape", "again.tape"):
        done = cli("record", "-o", "x.tape", "--from-spool", tape)
        assert done.returncode == 3
        assert "this is a tape already" in done.stderr
        assert f"next: tapedelay check {tape}" in done.stderr


def last_command(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the words of the last command that is suggested."""
    named = [n.strip() for n in done.stderr.splitlines() if n.strip().startswith("next: tapedelay ")]
    return shlex.split(named[-1].removeprefix("next: tapedelay "))


def test_the_command_that_collects_a_kept_spool_is_named(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    words = ["--devices", "1", "--keep-spool", *python(copy_spool(computing(e, e.queues[0])))]
    done = cli("record", "-o", "a run.tape", *words)
    assert done.returncode == 0
    (again,) = [last_command(done)]
    assert again[:6] == ["record", "--force", "--devices", "1", "-o", "a run.tape"]
    assert cli(*again).returncode == 0


def test_a_recording_that_cannot_be_written_is_kept(cli: Any, engine: Any, tmp_path: Path) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    spoil = "os.mkdir('run.tape'); open('run.tape/mine', 'w').close()"  # in the way, but not at the start
    done = cli("record", "-o", "run.tape", *python(copy_spool(spool) + spoil))
    assert done.returncode == 5
    assert "the recording is not collected" in done.stderr
    assert (tmp_path / "run.tape" / "mine").exists()
    again = last_command(done)
    assert again[:-1] == ["record", "--force", "-o", "run.tape", "--from-spool"]
    (tmp_path / "run.tape").rename(tmp_path / "other")
    assert cli(*again).returncode == 0
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_a_kept_spool_is_judged_like_a_run(cli: Any, engine: Any) -> None:
    e = engine()
    spool = str(computing(e, e.cpu_queue))
    collect = ("record", "--force", "-o", "run.tape", "--from-spool", spool)
    assert cli(*collect).returncode == 0  # nothing was asked for
    asked = cli(*collect, "--devices", "1")
    assert asked.returncode == 4
    assert "no compute was recorded on TAPE0" in asked.stderr
    e.w.head["flags"] = 2
    e.w.write()
    stopped = cli(*collect)
    assert stopped.returncode == 5
    assert "stopped early" in stopped.stderr


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


# --- signals ----------------------------------------------------------------------------------------------


def test_a_request_that_comes_too_early_or_too_late_kills_nothing(tmp_path: Path, engine: Any) -> None:
    """SIGUSR1 while the command's module is imported, and when the tape is collected."""
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    entry = (
        "import os, signal, sys\n"
        "from tapedelay.formats.cli import main\n"
        "class Asks:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name in ('tapedelay.recorder.command', 'tapedelay.recorder.engines.ggml.collect'):\n"
        "            open(name, 'w').close()\n"
        "            os.kill(os.getpid(), signal.SIGUSR1)\n"
        "sys.meta_path.insert(0, Asks())\n"
        "main()\n"
    )
    shows = "import signal\nprint(signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    done = subprocess.run(
        [sys.executable, "-c", entry, "record", "-o", "run.tape", *python(copy_spool(spool) + shows)],
        cwd=tmp_path, env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert load_tape(tmp_path / "run.tape").rows("ops") == 1
    assert len(list(tmp_path.glob("tapedelay.recorder.*"))) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_to_the_command_and_the_tape_is_collected(
    tmp_path: Path, engine: Any, number: signal.Signals
) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    code = copy_spool(spool) + (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *a: sys.exit(33))\n"
        "open('ready', 'w').close()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, "record", "-o", "run.tape", *python(code)],
        cwd=tmp_path,
        env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == 33
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        process.communicate()
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_ctrl_c_reaches_the_command_once(tmp_path: Path, engine: Any) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    (tmp_path / "plugin.so").write_text("")
    code = copy_spool(spool) + (
        "import signal, time\n"
        "count = []\n"
        "signal.signal(2, lambda *a: count.append(1))\n"
        "open('ready', 'w').close()\n"
        "end = time.monotonic() + 60\n"
        "while not count and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "raise SystemExit(40 + len(count))\n"
    )
    # A session leader of its own whose terminal is a new pseudo-terminal.
    leader = (
        "import fcntl, os, sys, termios\n"
        "os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", leader, "-c", ENTRY, "record", "-o", "run.tape", *python(code)],
        cwd=tmp_path,
        env={**os.environ, "TAPEDELAY_PLUGIN": str(tmp_path / "plugin.so")},
        stdin=slave,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.write(master, b"\x03")
        assert process.wait(60) == 41
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        os.close(master)
        os.close(slave)
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


@pytest.mark.parametrize(
    ("number", "times", "collected"),
    [(signal.SIGINT, 1, True), (signal.SIGINT, 6, False), (signal.SIGTERM, 3, False)],
)
def test_signals_while_it_collects_cost_nothing(
    cli: Any, engine: Any, tmp_path: Path, number: int, times: int, collected: bool
) -> None:
    e = engine()
    spool = computing(e, e.queues[0])
    # a process that outlives the command, waits for its end, and signals `record`
    code = copy_spool(spool) + (
        "import signal, sys, time\n"
        "record, command = os.getppid(), os.getpid()\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    for fd in range(3): os.dup2(os.open(os.devnull, os.O_RDWR), fd)\n"
        "    while os.path.exists(f'/proc/{command}'): time.sleep(0.001)\n"
        "    time.sleep(0.03)\n"
        f"    for _ in range({times}):\n"
        f"        os.kill(record, {int(number)}); time.sleep(0.02)\n"
        "os._exit(0)\n"
    )
    done = cli("record", "-o", "run.tape", *python(code))
    if collected:
        assert done.returncode == 0, done.stderr
        assert "Ctrl-C again leaves it uncollected" in done.stderr
        assert leftovers(tmp_path) == ["run.tape"]
        return
    assert done.returncode in (5, -number)  # the last one may come when everything has been said
    assert "the recording is not collected: collecting was interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    again = last_command(done)
    assert again[:-1] == ["record", "-o", "run.tape", "--from-spool"]
    assert cli(*again).returncode == 0
    assert load_tape(tmp_path / "run.tape").table("ops").num_rows == 1


def test_the_command_gets_clean_signals(cli: Any) -> None:
    # without the two that glibc keeps for itself
    code = (
        "for line in open('/proc/self/status'):\n"
        "    if line[:6] in ('SigBlk', 'SigIgn'): print(line[:6], hex(int(line[7:], 16) & 0x7fffffff))"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "SigBlk 0x0" in alone.stdout
    assert cli("record", "-o", "run.tape", *python(code)).stdout == alone.stdout
