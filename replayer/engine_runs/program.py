"""What is run: a Python function or a command, as words of a command line."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...formats.errors import InfrastructureError, UsageError
from .values import NotAValue, decode, is_empty

__all__ = ["MAX_VALUE_BYTES", "Program", "near", "program_of"]

MAX_VALUE_BYTES = 1 << 30
"""Longest value that is read."""

_VALUE = "{value}"
_MAX_WORD = 4_000
"""Longest description of a function on a command line."""
_CHILD = Path(__file__).with_name("child.py")
_EXPECTED = "a function of a module or file, `module:function`, `file.py:function`, or the words of a command"


@dataclass(frozen=True)
class Program:
    """A program that can be run in a process of its own and gives a value.

    Attributes
    ----------
    words : tuple of str
        Command line; the word part ``{value}`` stands for the file that takes the value.
    function : dict or None
        What `child.py` reads, of a Python function.
    """

    words: tuple[str, ...]
    function: dict[str, Any] | None = None

    @property
    def gives_file(self) -> bool:
        """Whether the value is a file that the program writes; else it is what it prints."""
        return self.function is not None or any(_VALUE in w for w in self.words)

    def command(self, folder: Path, value: Path) -> list[str]:
        """Return the command line, with a function described in a file in `folder`."""
        if self.function is None:
            return [w.replace(_VALUE, str(value)) for w in self.words]
        described = folder / "program.json"
        described.write_text(json.dumps(self.function, indent=1), encoding="utf-8")
        return [sys.executable, "-P", str(_CHILD), str(described), str(value)]

    def again(self, folder: Path) -> list[str]:
        """Return a command line that a person can use later: it leaves no value, and needs no file of ours.

        Only a function with very long arguments is read from the file in `folder`.
        """
        if self.function is None:
            return [w.replace(_VALUE, "again.value") for w in self.words]
        file = self.function["file"]
        path = [near(p) for p in self.function["path"] if os.path.isdir(p) and not _at_home(p)]
        text = json.dumps({**self.function, "file": None if file is None else near(file), "path": path})
        command = [sys.executable, "-P", str(_CHILD)]
        return [*command, text if len(text) <= _MAX_WORD else str(folder / "program.json")]

    def value(self, printed: Path, written: Path) -> Any:
        """Return the value that a run left.

        Raises
        ------
        InfrastructureError
            There is none, nothing is in it, or it is too large.
        """
        source = written if self.gives_file else printed
        try:
            with source.open("rb") as f:
                data = f.read(MAX_VALUE_BYTES + 1)
        except OSError as e:
            raise InfrastructureError(
                f"the program ended without its value: {e.strerror}",
                expected="a file that it writes",
                where=str(source),
            ) from None
        if len(data) > MAX_VALUE_BYTES:
            raise InfrastructureError(
                f"more than {MAX_VALUE_BYTES:,} bytes", expected="a value that fits", where=str(source)
            )
        if self.function is None:
            value: Any = data
        else:
            try:
                value = decode(data)
            except NotAValue as e:
                raise InfrastructureError(str(e), expected="what the function returned") from None
        if is_empty(value):
            raise InfrastructureError(
                "the program printed nothing" if not self.gives_file else "the program wrote an empty file",
                expected="a value to compare",
            )
        return value


def near(path: str | Path) -> str:
    """Return a path as short as it can be typed here."""
    short = os.path.relpath(path)
    return str(path) if short.startswith(os.pardir) else short


def _at_home(path: str) -> bool:
    """Whether every process of this Python looks there."""
    return any(Path(path).is_relative_to(p) for p in (sys.prefix, sys.base_prefix))


def program_of(
    program: str | Callable[..., Any] | Sequence[str],
    arguments: Sequence[Any] | Mapping[str, Any],
    folder: Path,
) -> Program:
    """Return the program that is meant.

    Parameters
    ----------
    program : str, function or sequence of str
        ``module:function``, ``file.py:function``, a function of a module or file, or a command.
    arguments : sequence or mapping
        Of a function: positional, or by name.
    folder : Path
        Where a relative file lies.

    Raises
    ------
    UsageError
        There is no such function, or its arguments cannot be written as JSON.
    """
    if callable(program):
        return _function(None, *_home(program), arguments)
    if isinstance(program, str):
        source, colon, name = program.rpartition(":")
        if not (colon and source and name):
            raise UsageError(f"program {program!r}", expected=_EXPECTED)
        if source.endswith(".py"):
            file = (folder / source).absolute()
            if not file.is_file():
                raise UsageError("there is no such file", expected=_EXPECTED, where=str(file))
            return _function(None, file, name, arguments)
        return _function(source, None, name, arguments)
    words = [os.fspath(w) if isinstance(w, os.PathLike) else w for w in program]
    if not words or not all(isinstance(w, str) and "\0" not in w for w in words):
        raise UsageError(f"program {program!r}", expected=_EXPECTED)
    if arguments:
        raise UsageError("a command and arguments", expected="arguments among the words of the command")
    return Program(tuple(words))


def _home(function: Callable[..., Any]) -> tuple[Path, str]:
    """Return the file of a function and its name there."""
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    bound = inspect.ismethod(function)  # to an object that the other process has not got
    if code is None or bound or "<" in name or not os.path.isfile(code.co_filename):
        raise UsageError(
            f"program {name or function!r}",
            expected="a function at the top of a module or class: another process must find it by its name",
        )
    return Path(code.co_filename).absolute(), name


def _function(
    module: str | None, file: Path | None, name: str, arguments: Sequence[Any] | Mapping[str, Any]
) -> Program:
    if isinstance(arguments, str | bytes):
        raise UsageError(
            f"arguments {arguments!r}", expected="a list of arguments, or a dict of them by name"
        )
    given = dict(arguments) if isinstance(arguments, Mapping) else list(arguments)
    try:
        plain = json.loads(json.dumps(given, default=os.fspath))
    except (TypeError, ValueError, RecursionError) as e:
        raise UsageError(
            f"arguments that cannot be written as JSON: {e}", expected="numbers, text, lists and dicts"
        ) from None
    path = [os.path.abspath(p) for p in sys.path]
    described = {
        "module": module,
        "file": None if file is None else str(file),
        "function": name,
        "arguments": plain,
        "path": path,
    }
    return Program((), described)
