"""Each reason why an engine cannot be recorded, where it really occurs; and the engine that can be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.doctor import watch
from tapedelay.recorder.doctor.engine import Examined, examine
from tapedelay.recorder.doctor.finding import LIMIT, NO, OK, Finding
from tapedelay.recorder.patience import Patience
from tapedelay.recorder.tap import Tap, ggml_tap

PROGRAMS = Path(__file__).parent / "programs"
Build = Callable[..., Path]
Parts = list[Path]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Examined]:
    def look(
        *command: str | Path, seconds: float = 60, devices: int | None = 1, tap: bool = False, **env: str
    ) -> Examined:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "folder"
        folder.mkdir()
        words = [str(w) for w in command]
        done = examine(
            words,
            Asked(devices),
            limit_s=seconds,
            folder=folder,
            signals=Patience(),
            companions=[Tap()] if tap else [],
        )
        assert not any(folder.iterdir()), "nothing stays behind"
        return done

    return look


def no(done: Examined) -> Finding:
    """Return the one thing that cannot be recorded."""
    (found,) = [f for f in done.findings if f.state == NO]
    assert found.remedy
    assert done.exit_code == 4
    return found


def test_an_engine_that_can_be_recorded(look: Callable[..., Examined], host: Path) -> None:
    done = look(host, HOST="compute")
    assert done.exit_code == 0
    assert not [f for f in done.findings if f.state == NO]
    found = [f.found for f in done.findings if f.state == OK]
    assert any(f.startswith("programs that ran: host") for f in found)
    assert "ggml, backend API version 3" in found
    device = "calls are asynchronous, events are recorded, pinned host memory, 1 compute"
    assert f"TAPE0 (test device of TAPE): {device}" in found
    assert any(f.startswith("CPU (host of CPU): works on the calling thread") for f in found)


# --- the plugin was loaded and did not start ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "code", "says"),
    [
        ({"FAKE_API": "9"}, "api-version", "backend API version 9, versions 2 and 3 are supported"),
        ({"FAKE_TENSOR_BYTES": "8"}, "layout", "this ggml does not fit (ggml_tensor has another size)"),
        ({"TAPEDELAY_THREADS": "many"}, "settings", "TAPEDELAY_THREADS=many is no number"),
    ],
)
def test_the_plugin_refuses(
    look: Callable[..., Examined], host: Path, env: dict[str, str], code: str, says: str
) -> None:
    found = no(look(host, HOST="load", **env))
    assert found.code == code
    assert found.found.startswith("nothing was recorded: the plugin could not be loaded into the engine: ")
    assert says in found.found


def test_a_ggml_without_a_function(look: Callable[..., Examined], build: Build, ggml: Parts) -> None:
    found = no(
        look(build("old", "-pthread", *ggml, f"-Wl,--dynamic-list={PROGRAMS / 'old.list'}"), HOST="load")
    )
    assert found.code == "missing-function"
    assert "this ggml has no ggml_op_name" in found.found


def test_a_linked_in_ggml_that_loads_plugins(
    look: Callable[..., Examined], build: Build, ggml: Parts
) -> None:
    found = no(look(build("mute", "-pthread", *ggml), HOST="load"))
    assert found.code == "static-ggml"
    assert "no loaded library exports ggml_backend_buffer_init" in found.found


def test_a_package_whose_library_is_not_what_is_known(look: Callable[..., Examined], tmp_path: Path) -> None:
    package = tmp_path / "lib" / "xllamacpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import xllamacpp\n__version__ = '9.9'")
    (package / "xllamacpp.py").write_text("")
    found = no(look(sys.executable, "-c", "import xllamacpp", PYTHONPATH=str(tmp_path / "lib")))
    assert found.code == "refused"
    assert "the plugin could not be loaded into xllamacpp 9.9: " in found.found
    cleared = "import os; del os.environ['TAPEDELAY_SPOOL']; import xllamacpp"
    shutil.rmtree(tmp_path / "folder")
    found = no(look(sys.executable, "-c", cleared))
    assert found.code == "environment-removed"
    assert "the program removed TAPEDELAY_SPOOL from its environment" in found.found


# --- nothing led to the plugin ------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-I", "-S"])
def test_a_python_without_the_import_hook(look: Callable[..., Examined], option: str) -> None:
    # Below a shell: `record` alone could not know.
    script = f"{sys.executable} {option} -c 'import time; time.sleep(1)'; true"
    found = no(look("sh", "-c", script))
    assert found.code == "import-hook-off"
    assert found.found == f"nothing was recorded: Python with {option} does not load the import hook"
    assert found.remedy == f"run it without {option}"


def test_an_environment_that_was_removed(look: Callable[..., Examined], host: Path) -> None:
    found = no(look("env", "-i", "HOST=load", "STAY_MS=1000", host))
    assert found.code == "environment-removed"
    assert "host was started without the variables of the recording" in found.found


def test_a_program_that_removes_the_recording(look: Callable[..., Examined]) -> None:
    done = look("sh", "-c", 'rm -rf "$TAPEDELAY_SPOOL"')
    found = [f.found for f in done.findings if f.state == NO]
    assert found == ["the raw recording was removed while the command ran"]
    assert done.exit_code == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_program_that_runs_as_another_user(
    look: Callable[..., Examined], host: Path, tmp_path: Path
) -> None:
    program = tmp_path / "other"
    shutil.copy(host, program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    found = no(look(program, HOST="leave", STAY_MS="1000"))
    assert found.code == "setuid"
    assert "other runs as another user" in found.found


def test_a_place_that_the_program_does_not_see(look: Callable[..., Examined], host: Path) -> None:
    elsewhere = f"TAPEDELAY_SPOOL=/nonexistent STAY_MS=1000 exec {host}"
    found = no(look("sh", "-c", elsewhere, HOST="load"))
    assert found.code == "no-place"
    assert "host loaded the plugin, which found no place for the recording" in found.found


def test_a_linked_in_ggml_that_loads_nothing(look: Callable[..., Examined], build: Build) -> None:
    program = build("static", "-static", PROGRAMS / "static.c")
    found = no(look(program))
    assert found.code == "static-ggml"
    assert "static has ggml in static and exports none of its functions" in found.found


def test_a_ggml_that_is_never_asked_to_load(look: Callable[..., Examined], host: Path) -> None:
    found = no(look(host, HOST="leave", STAY_MS="1000"))
    assert found.code == "not-loaded"
    assert "host uses ggml (host) and never asked it to load a backend" in found.found


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("sh", "-c", "exit 3"), "ended-early", "the command ended with 3 before it used the engine"),
        (("true",), "not-loaded", "no process loaded the plugin"),
        (
            (sys.executable, "-c", ""),
            "not-loaded",
            "no process loaded the plugin",
        ),
    ],
)
def test_a_command_that_does_not_use_an_engine(
    look: Callable[..., Examined], command: Sequence[str], code: str, says: str
) -> None:
    found = no(look(*command))
    assert found.code == code
    assert says in found.found
    assert "doctor" not in found.remedy


def test_a_command_that_takes_its_time(look: Callable[..., Examined]) -> None:
    done = look("sleep", "60", seconds=0.3)
    found = no(done)
    assert found.code == "too-short"
    assert "the command did not use the engine within 0.3 s" in found.found
    assert "--seconds" in found.remedy
    (stopped,) = [f for f in done.findings if f.code == "stopped"]
    assert stopped.found == "the command was ended after 0.3 s (--seconds)"


def test_a_command_that_does_not_want_to_end(
    look: Callable[..., Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MERCY_S", 0.2)
    found = no(look("sh", "-c", "trap '' TERM; sleep 60; sleep 60", seconds=0.1))
    assert found.code == "too-short"


def test_an_engine_that_is_ended_after_a_while_was_recorded(
    look: Callable[..., Examined], host: Path
) -> None:
    done = look(host, seconds=1, HOST="compute", STAY_MS="60000")
    assert done.exit_code == 0
    assert {f.code for f in done.findings} >= {"stopped", "device", "records"}
    # one that ends at once may not be looked at before
    assert "programs that ran: host with the plugin" in [f.found for f in done.findings]
    assert not [f for f in done.findings if f.state != OK and f.code != "note"]


# --- the plugin recorded nothing ----------------------------------------------------------------------------


def test_the_plugin_in_a_copy_of_ggml_that_is_not_used(
    look: Callable[..., Examined], build: Build, ggml: Parts
) -> None:
    copies = [build(f"libcopy{i}.so", "-shared", *ggml) for i in (1, 2)]
    found = no(look(build("two", PROGRAMS / "two_copies.c"), *copies))
    assert found.code == "unused-copy"
    assert "two holds 2 copies of ggml (libcopy1.so, libcopy2.so)" in found.found


def test_no_work_on_the_device(look: Callable[..., Examined], host: Path) -> None:
    done = look(host, HOST="load")
    found = no(done)
    assert found.code == "no-work"
    assert "no compute was recorded on TAPE0" in found.found
    assert "n_gpu_layers" in found.remedy
    device = next(f for f in done.findings if f.found.startswith("TAPE0"))
    assert device.found.endswith("pinned host memory, not used")


def test_no_gpu_backend(look: Callable[..., Examined], host: Path) -> None:
    found = no(look(host, HOST="load", devices=0))
    assert "no GPU backend was found" in found.found


def test_a_failing_command_that_was_recorded(look: Callable[..., Examined], host: Path) -> None:
    done = look("sh", "-c", f"{host}; exit 7", HOST="compute")
    assert done.exit_code == 0
    (limit,) = [f for f in done.findings if f.state == LIMIT and f.code == "exit-code"]
    assert limit.found == "the command ended with 7; what it did until then is recorded"


def test_a_failing_command_of_which_nothing_was_recorded(look: Callable[..., Examined]) -> None:
    done = look(sys.executable, "-I", "-c", "raise SystemExit(1)")
    assert no(done).code == "import-hook-off"
    (limit,) = [f for f in done.findings if f.state == LIMIT and f.code == "exit-code"]
    assert limit.found == "the command ended with 1"


def test_a_tap_through_which_no_call_passes(look: Callable[..., Examined], host: Path) -> None:
    try:
        ggml_tap()
    except InfrastructureError:
        pytest.skip("the tap is not built")
    done = look(host, HOST="compute", tap=True)
    assert done.exit_code == 0, "all else is recorded"
    (found,) = [f for f in done.findings if f.code == "tap"]
    assert found.state == LIMIT
    assert "no call on a scheduler passed through it" in found.found
