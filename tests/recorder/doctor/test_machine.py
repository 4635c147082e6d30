"""What the doctor says of a machine, on machines that lack something; and the command itself."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.recorder.doctor import machine
from tapedelay.recorder.doctor.elf import holds_ggml, symbols
from tapedelay.recorder.doctor.finding import LIMIT, NO, OK, Finding
from tapedelay.recorder.doctor.place import file_system, look_at_place
from tapedelay.recorder.plugin import ggml_plugin

ENTRY = "from tapedelay.formats.cli import main; main()"
LOOK = (
    "import json, sys\nfrom pathlib import Path\n"
    "from tapedelay.recorder.doctor.machine import look_at_machine\n"
    "print(json.dumps([f.as_dict() for f in look_at_machine(Path(sys.argv[1]))]))"
)
PROGRAMS = Path(__file__).parent / "programs"
Build = Callable[..., Path]


def looked(folder: Path, *before: str, **env: str) -> dict[str, Finding]:
    """Look at a machine from a process of its own, which `before` prepares."""
    done = subprocess.run(
        [*before, sys.executable, "-c", LOOK, str(folder)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {f["code"]: Finding(**f) for f in json.loads(done.stdout)}


def test_this_machine(tmp_path: Path) -> None:
    found = looked(tmp_path)
    assert all(f.state in (OK, LIMIT, NO) for f in found.values())
    for code in ("python", "plugin", "space", "mapping", "ptrace"):
        assert found[code].state == OK, found[code]
    assert set(found) == {
        "python", "plugin", "tap", "space", "mapping", "holes", "limits", "clock", "cores", "ptrace", "nvml",
        "vulkan", "vllm", "deepinfer", "transformers",
    }  # fmt: skip


def test_a_machine_with_little(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    found = looked(
        tmp_path,
        *("sh", "-c", 'ulimit -f 1000; exec taskset -c "$0" "$@"'),
        str(min(os.sched_getaffinity(0))),
        LD_LIBRARY_PATH=str(tmp_path),
        VK_DRIVER_FILES="/nonexistent",
    )
    assert (
        found["limits"].state == found["cores"].state == found["nvml"].state == found["vulkan"].state == LIMIT
    )
    assert "file size (ulimit -f) is " in found["limits"].found
    assert found["cores"].found.startswith("1 core ")
    assert found["nvml"].found.startswith("no NVML (libnvidia-ml.so.1 is not there: no NVIDIA driver)")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


# --- the plugin ---------------------------------------------------------------------------------------------


def test_no_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "absent.so"))
    (found,) = machine._plugin()
    assert (found.code, found.state) == ("plugin", NO)
    assert "not there" in found.found


def test_a_plugin_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "plugin.so").write_text("no library")
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "plugin.so"))
    (found,) = machine._plugin()
    assert (found.code, found.state) == ("plugin", NO)
    assert "does not load" in found.found


def test_a_plugin_for_a_newer_system(monkeypatch: pytest.MonkeyPatch, build: Build, tmp_path: Path) -> None:
    (tmp_path / "tomorrow.c").write_text("int tomorrow(void) { return 1; }")
    (tmp_path / "map").write_text("GLIBC_2.99 { global: tomorrow; };")
    (tmp_path / "plugin.c").write_text("int tomorrow(void); int plugin(void) { return tomorrow(); }")
    libc = build(
        "libtomorrow.so", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6",
        f"-Wl,--version-script={tmp_path / 'map'}", tmp_path / "tomorrow.c",
    )  # fmt: skip
    plugin = build("libplugin.so", "-shared", "-fPIC", tmp_path / "plugin.c", libc)
    assert symbols(plugin).glibc == (2, 99)
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(plugin))
    (found,) = machine._plugin()
    assert (found.code, found.state) == ("plugin", NO)
    assert "the ggml plugin needs glibc 2.99, this machine has " in found.found


# --- the place ----------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written() -> None:
    (found,) = look_at_place(Path("/proc"))
    assert (found.code, found.state) == ("place", NO)


def test_a_small_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        found = {f.code: f for f in look_at_place(disk)}
        assert file_system(disk) == "tmpfs"
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert found["space"].state == NO
    assert found["space"].found.endswith(" free on tmpfs")
    assert found["mapping"].state == found["holes"].state == OK


# --- files that contain ggml --------------------------------------------------------------------------------


def test_which_files_contain_ggml(host: Path, build: Build, tmp_path: Path) -> None:
    assert holds_ggml(host) == "exporting"
    assert holds_ggml(build("static", "-static", PROGRAMS / "static.c")) == "hidden"
    assert holds_ggml(Path(sys.executable)) == ""
    uses = tmp_path / "uses.c"
    uses.write_text(
        'const char * words = "GGML_ASSERT(%s) failed"; int ggml_new_object(void);'
        "int uses(void) { return ggml_new_object(); }"
    )
    assert holds_ggml(build("libuses.so", "-shared", "-fPIC", uses)) == ""


@pytest.mark.parametrize("size", [0, 5, 64, 4096])
def test_a_file_that_is_cut_short_contains_nothing(host: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "cut").write_bytes(host.read_bytes()[:size])
    assert holds_ggml(tmp_path / "cut") == ""
    assert holds_ggml(tmp_path / "absent") == ""


# --- drivers ------------------------------------------------------------------------------------------------


def test_a_driver_whose_counters_cannot_be_read(
    standin: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    found = looked(tmp_path, **standin("unsupported"))
    assert found["nvml"].state == LIMIT
    assert found["nvml"].found.startswith("NVML answers for 2 devices; nvml0 does not tell pcie_tx, pcie_rx")


@pytest.mark.parametrize(
    ("scenario", "patience_s", "how"),
    [
        ("hang-at-once", 0.2, "did not answer within 0.2 s"),
        ("hang-in-constructor", 0.2, "did not answer within 0.2 s"),
        ("crash-at-init", 60, "ended with signal 11"),
    ],
)
def test_a_driver_that_never_answers_or_crashes(
    standin: Callable[[str], dict[str, str]], scenario: str, patience_s: float, how: str
) -> None:
    code = (
        f"from tapedelay.recorder.doctor import drivers\ndrivers._PATIENCE_S = {patience_s}\n"
        "f = drivers.look_at_nvml()\nprint(f.state, f.found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **standin(scenario)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == f"no NVML {how}\n"


# --- the command --------------------------------------------------------------------------------------------


def doctor(cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENTRY, "doctor", *words],
        cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_in_words(host: Path, tmp_path: Path) -> None:
    done = doctor(tmp_path, "--devices", "1", "--", str(host), HOST="compute")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "this machine"
    assert "this engine" in lines
    assert all(line[:7].strip() in ("ok", "limit", "no", "->", "") for line in lines if line[0] == " ")
    assert done.stderr.splitlines()[-1] == f"next: tapedelay record -o run.tape -- {host}"
    assert not any(tmp_path.iterdir())


def test_the_command_for_programs(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json", "--", "sh", "-c", "echo said; exit 3")
    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == said["exit_code"] == 4
    assert "said" in done.stderr.splitlines()
    assert said["command"] == ["sh", "-c", "echo said; exit 3"]
    (found,) = [f for f in said["engine"] if f["state"] == "no"]
    assert found["code"] == "ended-early"
    assert {f["code"] for f in said["machine"]} >= {"python", "plugin"}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--", "/nonexistent"), 2, "cannot run '/nonexistent'"),
        (("-o", "absent"), 2, "no such folder"),
        (("--", "--seconds"), 2, "put options in front of `--`"),
    ],
)
def test_what_the_command_refuses(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, says: str
) -> None:
    assert run(["doctor", *words]) == code
    assert says in capsys.readouterr().err


def test_without_a_plugin_the_command_is_not_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(tmp_path / "absent.so"))
    ran = tmp_path / "ran"
    assert run(["doctor", "--", "touch", str(ran)]) == 4
    err = capsys.readouterr().err
    assert "the command was not tried" in err
    assert err.splitlines()[-1].startswith("next: ")
    assert err.splitlines()[-1].endswith(f"; then: tapedelay doctor -- touch {ran}")
    assert not (tmp_path / "ran").exists()


def test_a_failed_recording_names_the_doctor(tmp_path: Path) -> None:
    plugin = str(ggml_plugin())
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "record", "-o", "run.tape", "--", "sh", "-c", "true"],
        cwd=tmp_path, env={**os.environ, "TAPEDELAY_PLUGIN": plugin}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert "tapedelay doctor -- sh -c true" in done.stderr.splitlines()[-1]
