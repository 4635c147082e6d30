"""Paths in errors, outputs that replace nothing, outputs that cannot be written: through the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.pack import pack_tape

LITMUS = "1 | kernel | s0 | | A |\n2 | kernel | s1 | A | |\n"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def litmus(tmp_path: Path) -> Path:
    path = tmp_path / "a.litmus"
    path.write_text(LITMUS)
    return path


def writes(written: Path, out: Path) -> list[list[str]]:
    """Return the command lines that write a file."""
    return [
        ["export", str(written), "--format", "litmus", "-o", str(out)],
        ["pack", str(written), "-o", str(out)],
        ["check", str(written), "--write-baseline", str(out)],
    ]


@pytest.mark.parametrize("which", range(3))
def test_nothing_is_replaced_unasked(written: Path, tmp_path: Path, capsys: Capture, which: int) -> None:
    out = tmp_path / "out"
    command = writes(written, out)[which]
    out.write_text("mine")
    assert run(command) == 2
    assert out.read_text() == "mine"
    assert f"{out}: a file is there" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
    assert out.read_bytes() != b"mine"
    out.unlink()
    assert run(command) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "rich.tape"]


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("inside", ["x", "manifest.json", "ops.arrow", "../rich.tape/x", ""])
def test_nothing_is_written_into_the_tape(written: Path, capsys: Capture, which: int, inside: str) -> None:
    before = {p.name: p.read_bytes() for p in written.iterdir()}
    assert run([*writes(written, written / inside)[which], "--force"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {written / inside}: ")
    assert {p.name: p.read_bytes() for p in written.iterdir()} == before


def test_a_packed_tape_does_not_replace_itself(written: Path, tmp_path: Path) -> None:
    packed = pack_tape(written, tmp_path / "a.zip")
    before = packed.read_bytes()
    for command in writes(packed, packed):
        assert run([*command, "--force"]) == 2
    assert packed.read_bytes() == before


@pytest.mark.parametrize("which", range(3))
def test_a_place_that_is_not_there_is_named_as_typed(written: Path, capsys: Capture, which: int) -> None:
    out = Path("/nope/deep/out.x")
    assert run(writes(written, out)[which]) == 5
    err = capsys.readouterr().err
    assert "error: /nope/deep/out.x: cannot write: No such file or directory" in err.splitlines()[-2]
    assert ".tmp" not in err
    assert "make its folder" in err


def test_input_is_named_as_typed(tmp_path: Path, written: Path, monkeypatch: Any, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    (written / "ops.arrow").write_bytes(b"x")
    Path("sub/bad.litmus").write_text("1 | nothing | H\n")
    Path("sub/odd.litmus").write_text('meta notes ["/etc/x"]\n1 | host | H\n')
    for path, where in (
        ("sub/none.tape", "sub/none.tape"),
        ("sub/none.litmus", "sub/none.litmus"),
        ("sub/bad.litmus", "sub/bad.litmus:1"),
        ("sub/odd.litmus", "sub/odd.litmus"),
        ("sub", "sub"),
        ("./rich.tape", "rich.tape"),
    ):
        assert run(["check", path]) == 3, path
        assert capsys.readouterr().err.startswith(f"error: {where}: "), path
    assert run(["check", "sub/bad.litmus", "--baseline", "sub/none.json"]) == 3


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_what_may_not_be_read_is_bad_input(written: Path, open_place: Path) -> None:
    """As another user, if this one may read everything."""
    packed = pack_tape(written, open_place / "a.zip")
    packed.chmod(0)
    code = (
        "import os, sys\n"
        "from tapedelay.formats import cli, read, validate, summary, disk, litmus\n"
        "import tapedelay.formats.commands.info, tapedelay.replayer.check.command\n"
        "if not os.getuid(): os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(cli.run(sys.argv[1:]))"
    )
    for command in ("info", "check"):
        done = subprocess.run(
            [sys.executable, "-c", code, command, str(packed)], capture_output=True, text=True
        )
        assert done.returncode == 3, done.stderr
        assert done.stderr == (
            f"error: {packed}: cannot be opened: Permission denied (expected a tape)\n"
            "  next: check permissions\n"
        )
    packed.chmod(0o644)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("command", [["info"], ["info", "--dump"], ["check"], ["check", "--json"]])
def test_a_full_output_is_said_once(litmus: Path, command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from tapedelay.formats.cli import main; main()", *command, str(litmus)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 5
    assert "error: standard output: cannot write: No space left on device" in done.stderr
    assert "internal" not in done.stderr
    assert "Exception" not in done.stderr


def test_litmus_text_under_another_name(tmp_path: Path, litmus: Path, capsys: Capture) -> None:
    other = tmp_path / "a.txt"
    other.write_text("# id: x\nhost H\n" + LITMUS)
    assert run(["check", str(other)]) == 3
    err = capsys.readouterr().err
    assert "what looks like a litmus file" in err
    assert "ends in .litmus" in err
    other.write_text("a | b\nc | d\n")
    assert run(["check", str(other)]) == 3
    assert "looks like" not in capsys.readouterr().err
    assert run(["pack", str(litmus)]) == 2
    assert f"tapedelay check {litmus}" in capsys.readouterr().err


def test_litmus_text_through_a_pipe(litmus: Path, run_cli: Any) -> None:
    code = "from tapedelay.formats.cli import main; main(['check', '/dev/stdin'])"
    done = subprocess.run([sys.executable, "-c", code], input=LITMUS, capture_output=True, text=True)
    assert done.returncode == 3
    assert "NAME.litmus" in done.stderr


def test_to_the_terminal(written: Path) -> None:
    code = "from tapedelay.formats.cli import main; main()"
    arguments = ["export", str(written), "--format", "litmus", "-o", "/dev/stdout"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0
    assert "| coll " in done.stdout
