"""What reaches a terminal: nothing that steers it, and plain words where the output itself fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import CorruptTape
from tapedelay.formats.shown import printable, quoted

from .damage import Json, change_manifest

EVIL = "\x1b[31mE\x07\x9b\nerror: forged\r\u202e"
MAIN = [sys.executable, "-c", "from tapedelay.formats.cli import main; main()"]


def shell(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script whose ``tapedelay`` is ours."""
    command = f'tapedelay() {{ {quoted(MAIN[0])} -c {quoted(MAIN[2])} "$@"; }}\n{script}'
    return subprocess.run(["bash", "-c", command, "bash", *map(str, arguments)], capture_output=True)


def tame(output: bytes) -> bool:
    return output.decode().replace("\n", "").isprintable()


def evil_checksum(tape: Path) -> None:
    file = tape / "manifest.json"
    text = file.read_text()
    at = text.index('"crc32": ') + 9
    end = text.index(",", at)
    file.write_text(text[:at] + '"\\u001b[31mE\\nerror: forged"' + text[end:])


def put(key: str, value: Any) -> Callable[[Path], None]:
    def change(obj: Json) -> None:
        obj[key] = {**obj[key], **value} if isinstance(value, dict) else value

    return lambda tape: change_manifest(tape, change)


@pytest.mark.parametrize(
    "damage",
    [
        evil_checksum,
        put("switches", {EVIL: 3}),
        put("engine", {EVIL: "/home/somebody"}),
        put("profiles", {EVIL: {EVIL: 1}}),
        put("notes", [EVIL]),
        put("created_by", EVIL),
        lambda tape: change_manifest(tape, lambda o: o.update({EVIL: 1})),
    ],
    ids=["crc32", "switch", "engine", "profile", "note", "created_by", "unknown"],
)
def test_a_tape_cannot_steer_the_terminal(written: Path, damage: Callable[[Path], None]) -> None:
    damage(written)
    for command in (["info"], ["info", "--dump"], ["info", "--validate"], ["check"], ["pack"]):
        done = subprocess.run([*MAIN, *command, str(written)], capture_output=True)
        for output in (done.stdout, done.stderr):
            assert tame(output), (command, output)
            forged = [n for n in output.splitlines() if n.startswith(b"error: ") and b"rich.tape" not in n]
            assert not forged, forged
        assert done.returncode in (0, 1, 3, 4), (command, done.stderr)


def test_a_path_cannot_steer_the_terminal(written: Path, tmp_path: Path) -> None:
    name = b"\xff\x1b[31m 'q' \\ \nerror: forged.tape"
    hostile = os.fsencode(tmp_path) + b"/" + name
    shutil.copytree(written, os.fsdecode(hostile))
    for command in (["info"], ["check"], ["info", "--validate"], ["pack"], ["info", "--dump"]):
        done = subprocess.run([*MAIN, *command, hostile], capture_output=True)
        assert tame(done.stdout + done.stderr), (command, done)
        assert done.returncode in (0, 1, 4), done.stderr
        said = [n for n in done.stderr.splitlines() if n.startswith(b"next: ")]
        if command == ["info"]:  # what is named can be run as it stands
            again = shell(said[0].removeprefix(b"next: ").decode() + " --json")
            assert again.returncode in (0, 1, 4), again.stderr
            assert again.stdout.startswith(b"{")
    for words in ([hostile + b"x"], ["check", hostile + b"x"], ["record", "-o", hostile, "--", "true"]):
        done = subprocess.run([*MAIN, *words], capture_output=True)
        assert done.returncode in (2, 3)
        assert tame(done.stderr), done.stderr
        assert b"\nerror: forged" not in done.stderr


@pytest.mark.parametrize(
    "text", ["a", "a b", "it's", "\x1b'\\", "\udcff\udcfe.tape", "gr\u00f6\u00dfe\n", "\x01f"]
)
def test_a_quoted_path_is_one_word_of_a_shell(text: str) -> None:
    word = quoted(text)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout == os.fsencode(text)


def test_printable_keeps_what_can_be_shown() -> None:
    assert printable("gr\u00f6\u00dfer \u2013 M0") == "gr\u00f6\u00dfer \u2013 M0"
    assert printable("a\nb\x1b\udcff") == "a\\nb\\x1b\\udcff"
    error = CorruptTape("a\nb", expected="c\rd", where="e\x1b", next_step="f\ng")
    assert error.text() == "e\\x1b: a\\nb (expected c\\rd)\n  next: f\\ng"


FULL = "tapedelay {} > /dev/full"
CLOSED = "tapedelay {} >&-"


@pytest.mark.parametrize("script", [FULL, CLOSED], ids=["full", "closed"])
@pytest.mark.parametrize(
    "words",
    [
        'info "$1"', 'info --dump "$1"', 'check "$1"', 'check --json "$1"', 'info --json "$1.no"', "--help",
        "--version",
        'export --format litmus "$1"', 'record --json -o "$1.tape" -- true',
    ],
)  # fmt: skip
def test_an_output_that_takes_nothing(written: Path, script: str, words: str) -> None:
    done = shell(script.format(words), written)
    assert done.returncode == 5, done.stderr
    told = [n for n in done.stderr.splitlines() if b"error: " in n]
    assert len(told) == 1
    assert told[0].startswith(b"error: standard output: cannot write: ")
    assert b"Traceback" not in done.stderr
    assert b"internal" not in done.stderr


def test_messages_that_nobody_takes(written: Path) -> None:
    for place in ("/dev/full", "&-"):
        assert shell(f'tapedelay info "$1" 2>{place}', written).returncode == 0
        assert shell(f'tapedelay info "$1.no" 2>{place}', written).returncode == 3
        assert shell(f"tapedelay nonsense 2>{place}", written).returncode == 2


def test_a_reader_that_leaves_hears_nothing_more(written: Path) -> None:
    for words in ("info", "info --dump", "info --json", "check"):
        done = shell(f'{{ tapedelay {words} "$1" | true; }} 2>&1', written)
        assert b"Error" not in done.stdout
        assert b"Exception" not in done.stdout
        assert b"error:" not in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["check", ""], ["info", ""], ["pack", ""], ["check", "N"], ["info", "N"], ["pack", "N"],
        ["check", "N.litmus"],
        ["pack", "T", "-o", ""], ["pack", "T", "-o", "N"],
        ["export", "T", "--format", "litmus", "-o", ""], ["export", "T", "--format", "litmus", "-o", "N"],
        ["check", "T", "--baseline", ""], ["check", "T", "--baseline", "N"],
        ["check", "T", "--write-baseline", ""], ["check", "T", "--write-baseline", "N"],
        ["record", "-o", "", "--", "true"], ["record", "-o", "N", "--", "true"],
        ["record", "-o", "x", "--from-spool", ""], ["record", "-o", "x", "--from-spool", "N"],
        ["record", "-o", "x", "--json-file", "", "--", "true"],
        ["record", "-o", "x", "--json-file", "N", "--", "true"],
    ],
)  # fmt: skip
def test_names_that_no_file_can_have(written: Path, words: list[str], run_cli: Any) -> None:
    long = "n" * 300
    done = run_cli(*(w.replace("N", long) if w[:1] == "N" else {"T": written}.get(w, w) for w in words))
    assert done.returncode == 2, done.stderr
    assert ("the name is empty" if "" in words else "the name is too long") in done.stderr


def test_the_longest_name_is_written(written: Path, tmp_path: Path, run_cli: Any) -> None:
    long = "n" * 247
    assert run_cli("pack", written, "-o", tmp_path / f"{long}.zip").returncode == 0
    assert run_cli("export", written, "--format", "litmus", "-o", tmp_path / f"{long}.litmus").returncode == 0
    assert run_cli("check", written, "--write-baseline", tmp_path / f"{long}.json").returncode == 0
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
