"""Run one Python function in a process of its own and leave what it returns in a file.

::

    python -P child.py PROGRAM [VALUE]

``PROGRAM`` is JSON, or a file of it, that names the function (see `program.py`, which writes it). Without
``VALUE`` one line about the value is printed and that is all. Stands alone: the engine's process
loads nothing of this library but the recorder.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, NoReturn

__all__ = ["main"]

_SHOWN = 300


def main(program: str, target: str | None = None) -> str:
    """Call the function, write its value to `target`; return one line about it, or end the process."""
    text = program
    if not program.startswith("{"):
        with open(program, encoding="utf-8") as f:
            text = f.read()
    asked = json.loads(text)
    known = set(sys.path)
    sys.path += [p for p in map(os.path.abspath, asked["path"]) if p not in known]
    try:
        value = _called(asked)
    except Exception as e:
        _failed(e, target)
    values = _load("_tapedelay_values", os.path.join(os.path.dirname(os.path.abspath(__file__)), "values.py"))
    if values.is_empty(value):
        sys.exit(f"the function returned {value!r}: nothing to compare")
    try:
        data = values.encode(value)
    except values.NotAValue as e:
        sys.exit(f"what the function returned cannot be compared: {e}")
    if target is not None:
        with open(f"{target}.part", "wb") as out:
            out.write(data)
        os.replace(f"{target}.part", target)
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return f"value {hashlib.sha256(data).hexdigest()[:16]}: {text}"


def _called(asked: dict[str, Any]) -> Any:
    """Return what the function returns."""
    function = _module(asked)
    try:
        for name in asked["function"].split("."):
            function = getattr(function, name)
    except AttributeError as e:
        sys.exit(f"no function {asked['function']}: {e}")
    arguments = asked["arguments"]
    return function(**arguments) if isinstance(arguments, dict) else function(*arguments)


def _failed(error: Exception, target: str | None) -> NoReturn:
    """Show an error of the function as if nothing had called it, and end the process."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith((__file__, "<frozen ")):
        frames = frames.tb_next
    traceback.print_exception(error.with_traceback(frames))
    if target is not None:
        with open(f"{target}.error", "w", encoding="utf-8", errors="replace") as out:
            out.write(traceback.format_exception_only(error)[-1].strip())
    sys.exit(1)


def _module(asked: dict[str, Any]) -> Any:
    """Import the module, by name or from a file: as a part of its package where it lies in one."""
    if asked["file"] is None:
        return importlib.import_module(asked["module"])
    path = os.path.abspath(asked["file"])
    folder, name = os.path.split(os.path.splitext(path)[0])
    if not os.path.exists(os.path.join(folder, "__init__.py")):
        sys.path.insert(0, folder)
        return _load(name, path)
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    sys.path.insert(0, folder)
    return importlib.import_module(name)


def _load(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(main(*sys.argv[1:]), flush=True)
