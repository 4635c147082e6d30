"""What can be run, and how a function is found again by another process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError, UsageError
from tapedelay.replayer.engine_runs.program import Program, program_of


def run(program: Program, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        program.command(folder, folder / "value"), cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def value(program: Program, folder: Path) -> Any:
    code, out, err = run(program, folder)
    assert code == 0, err
    (folder / "out").write_text(out)
    return program.value(folder / "out", folder / "value")


def twice(n: int = 4, *, add: int = 0) -> dict[str, Any]:
    return {"n": 2 * n + add, "process": os.getpid()}


class Engine:
    @staticmethod
    def answer() -> list[int]:
        return [42]


def test_a_function_runs_in_another_process(tmp_path: Path) -> None:
    found = value(program_of(twice, [3], tmp_path), tmp_path)
    assert found["n"] == 6
    assert found["process"] != os.getpid()
    assert value(program_of(twice, {"n": 1, "add": 5}, tmp_path), tmp_path)["n"] == 7
    assert value(program_of(Engine.answer, (), tmp_path), tmp_path) == [42]


def test_a_function_by_module_or_file(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("N = 5\n")
    (tmp_path / "my-engine.py").write_text(
        "import helper\nclass A:\n    @staticmethod\n    def f(x): return [helper.N, x, __name__]\n"
    )
    by_file = program_of(f"{tmp_path}/my-engine.py:A.f", [Path("a/b")], tmp_path)
    assert value(by_file, tmp_path) == [5, "a/b", "my-engine"]
    assert value(program_of("my-engine.py:A.f", [1], tmp_path), tmp_path) == [5, 1, "my-engine"]
    assert value(program_of("json:dumps", [[1]], tmp_path), tmp_path) == "[1]"


def test_a_file_in_a_package_is_a_part_of_it(tmp_path: Path) -> None:
    package = tmp_path / "pack" / "age"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "other.py").write_text("WORD = 'here'\n")
    (package / "it.py").write_text("from .other import WORD\ndef f(): return [WORD, __name__]\n")
    assert value(program_of(f"{package}/it.py:f", (), tmp_path), tmp_path) == ["here", "pack.age.it"]


def test_the_other_process_loads_nothing_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(
        "import sys\nOURS = ('tapedelay', 'numpy')\n"
        "def f(): return [m for m in sys.modules if m.split('.')[0] in OURS] + [0]\n"
    )
    assert value(program_of("it.py:f", (), tmp_path), tmp_path) == [0]


def test_commands_give_what_they_print_or_write(tmp_path: Path) -> None:
    printed = program_of([sys.executable, "-c", "print('1 2')"], (), tmp_path)
    assert value(printed, tmp_path) == b"1 2\n"
    code = "import sys; open(sys.argv[1][2:], 'wb').write(b'3'); print('noise')"
    written = program_of([sys.executable, "-c", code, "o={value}"], (), tmp_path)
    assert value(written, tmp_path) == b"3"


def bound() -> Any:
    return [].append


@pytest.mark.parametrize(
    "program",
    [
        "no colon",
        "",
        ":f",
        "x.py:",
        "missing.py:f",
        [],
        ["a", 3],
        ["a\0b"],
        lambda: 1,
        functools.partial(twice, 1),
        len,
        bound(),
    ],
)
def test_what_cannot_be_run_is_refused(program: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        program_of(program, (), tmp_path)


def test_functions_inside_of_functions_are_refused(tmp_path: Path) -> None:
    def inner() -> int:
        return 1

    method: Callable[..., Any] = Program(("a",)).command
    for program in (inner, method):
        with pytest.raises(UsageError, match="another process must find it by its name"):
            program_of(program, (), tmp_path)


@pytest.mark.parametrize("arguments", [[object()], {"a": {1}}, "text"])
def test_arguments_that_cannot_be_handed_over(arguments: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="arguments"):
        program_of(twice, arguments, tmp_path)


def test_a_command_takes_no_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a command and arguments"):
        program_of(["a"], [1], tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(): return None", "the function returned None: nothing to compare"),
        ("def f(): return []", "nothing to compare"),
        ("def f(): return {1, 2}", "cannot be compared: the value is of type set"),
        ("def g(): return 1", "no function f"),
        ("def f(): raise RuntimeError('no model')", "RuntimeError: no model"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
    ],
)
def test_what_goes_wrong_in_the_other_process_is_said_there(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(text + "\n")
    program = program_of("it.py:f", (), tmp_path)
    code, _, err = run(program, tmp_path)
    assert code == 1
    assert said in err
    with pytest.raises(InfrastructureError, match="without its value"):
        program.value(tmp_path / "out", tmp_path / "value")


def test_nothing_to_compare_is_no_value(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for words, said in ((["true"], "printed nothing"), (["true", "{value}"], "wrote an empty file")):
        with pytest.raises(InfrastructureError, match=said):
            program_of(words, (), tmp_path).value(tmp_path / "empty", tmp_path / "empty")


def test_a_damaged_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\5\0\0\0\0\0\0\0[1,")
    with pytest.raises(InfrastructureError, match="damaged"):
        program_of(twice, (), tmp_path).value(tmp_path / "out", tmp_path / "value")


# --- the command line for later ---


def again(program: Program, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it as a person does, without any file that the first run made."""
    return subprocess.run(program.again(folder), capture_output=True, text=True, check=False)


def test_a_function_runs_again_without_a_file_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper.py").write_text("N = 5\n")
    (tmp_path / "it.py").write_text("import helper\ndef f(x): return [helper.N, x]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "gone"))
    program = program_of("it.py:f", ["a 'b'"], tmp_path)
    before = sorted(tmp_path.iterdir())
    words = program.again(tmp_path / "nowhere")
    assert '"file": "it.py"' in words[-1]
    assert "gone" not in words[-1]
    assert not any(p in words[-1] for p in (f'"{sys.prefix}/', f'"{sys.base_prefix}/'))
    done = again(program, tmp_path / "nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("value ")
    assert """: [5, "a 'b'"]""" in done.stdout
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "__pycache__"] == before


def test_very_long_arguments_stay_in_the_file(tmp_path: Path) -> None:
    program = program_of("json:dumps", ["x" * 5_000], tmp_path)
    program.command(tmp_path, tmp_path / "value")
    assert program.again(tmp_path)[-1] == str(tmp_path / "program.json")
    assert again(program, tmp_path).stdout.startswith("value ")


def test_a_command_writes_its_value_here(tmp_path: Path) -> None:
    assert program_of(["a", "--out={value}"], (), tmp_path).again(tmp_path) == ["a", "--out=again.value"]
