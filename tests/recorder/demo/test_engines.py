"""Fetching engines: whole or not at all, and a clear error when a package cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import commands, engines


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEDELAY_ENGINES", str(tmp_path / "engines"))


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_package_that_cannot_be_had_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(script(tmp_path, "python", "echo no such thing >&2; exit 1")))
    with pytest.raises(
        InfrastructureError, match=r"xllamacpp==0.0.1: cannot be had: no such thing"
    ) as caught:
        engines.xllamacpp("0.0.1")
    assert caught.value.next_step
    assert list((tmp_path / "engines").iterdir()) == []


def test_a_package_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    # the argument after --target is the folder
    fake = script(
        tmp_path,
        "python",
        f'echo "$@" >> {calls}\nwhile [ "$1" != --target ]; do shift; done\necho x > "$2/xllamacpp"',
    )
    monkeypatch.setattr(sys, "executable", str(fake))
    first = engines.xllamacpp("1.2.3")
    assert (first / "xllamacpp").is_file()
    assert engines.xllamacpp("1.2.3") == first
    assert calls.read_text().count("xllamacpp==1.2.3") == 1
    assert [path.name for path in (tmp_path / "engines").iterdir()] == ["xllamacpp-1.2.3"]


def test_without_npm_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InfrastructureError, match="npm is not installed"):
        engines.npm_libraries(engines.VULKAN_FIXED)


def test_a_root_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAPEDELAY_ENGINES", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="cannot write there"):
        engines.xllamacpp("1.2.3")


def test_commands_are_shown_as_a_user_types_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = commands.record_arguments(
        tmp_path / "out" / "a.tape", commands.prompt_program(tmp_path / "m.gguf", "--prompt", "two words")
    )
    shown = commands.shown(arguments)
    assert shown.startswith("tapedelay record -o out/a.tape --devices 1 --profile vulkan-like -- python ")
    assert shown.endswith("--model m.gguf --prompt 'two words'")


@pytest.mark.parametrize(
    ("out", "expected"),
    [('{"a": 1}\n', {"a": 1}), ('noise\n{"a": 2}\n', {"a": 2}), ('{\n "a": 3\n}\n', {"a": 3})],
)
def test_json_is_found_in_what_a_command_wrote(out: str, expected: dict[str, int]) -> None:
    assert commands.Finished(0, out, "").json() == expected


def test_no_json_is_an_error_that_quotes_what_was_written() -> None:
    with pytest.raises(InfrastructureError, match=r"(?s)exit code was 5.*disk on fire"):
        commands.Finished(5, "", "disk on fire").json()
