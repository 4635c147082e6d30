"""The import hook on a real ggml behind modules laid out as llama-cpp-python lays them out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo.commands import tapedelay

BINDINGS = """
import ctypes, importlib.util, pathlib
origin = importlib.util.find_spec("xllamacpp").submodule_search_locations[0]
_lib = ctypes.CDLL(str(next(pathlib.Path(origin).glob("xllamacpp*.so"))))
"""
PROGRAM = """
import ctypes, llama_cpp
lib = llama_cpp.llama_cpp._lib
for name in ("ggml_backend_dev_by_name", "ggml_backend_dev_init"):
    getattr(lib, name).restype = ctypes.c_void_p
lib.ggml_backend_dev_name.restype = ctypes.c_char_p
lib.ggml_backend_dev_get.restype = ctypes.c_void_p
lib.ggml_backend_dev_count.restype = ctypes.c_size_t
names = [lib.ggml_backend_dev_name(ctypes.c_void_p(lib.ggml_backend_dev_get(i)))
         for i in range(lib.ggml_backend_dev_count())]
print(*sorted(n.decode() for n in names))
device = lib.ggml_backend_dev_by_name(b"TAPE0")
backend = lib.ggml_backend_dev_init(ctypes.c_void_p(device), None)
lib.ggml_backend_synchronize(ctypes.c_void_p(backend))
"""


@pytest.fixture
def bindings(tmp_path: Path) -> Path:
    package = tmp_path / "lib" / "llama_cpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .llama_cpp import *\n__version__ = '0.3.35'\n")
    (package / "llama_cpp.py").write_text(BINDINGS)
    return tmp_path / "lib"


@pytest.mark.parametrize("also", ["", "import xllamacpp; "])
def test_the_plugin_goes_into_the_ggml_behind_the_bindings_once(
    newest: dict[str, str], bindings: Path, tmp_path: Path, also: str
) -> None:
    path = os.pathsep.join([str(bindings), newest["PYTHONPATH"]])
    command = [sys.executable, "-c", also + PROGRAM]
    alone = subprocess.run(
        [*command[:2], also + "import llama_cpp; print('imported')"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert alone.stdout == "imported\n"
    done = tapedelay(
        "record",
        "-o",
        tmp_path / "run.tape",
        "--devices",
        "2",
        "--",
        *command,
        environment={"PYTHONPATH": path},
    )
    assert done.out == "CPU TAPE0 TAPE1\n", done.err
    assert done.code == 4  # it synchronised, and computed nothing
    assert "no compute was recorded on TAPE0, TAPE1" in done.err
    assert "n_gpu_layers" in done.err
    tape = load_tape(tmp_path / "run.tape")
    assert [op["kind"] for op in tape.table("ops").to_pylist()] == ["sync"]
    assert tape.manifest.engine["package"] in ("llama_cpp", "xllamacpp")
