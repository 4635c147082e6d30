"""The import hook: what it does to a Python program that knows nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.recorder.engines.deepinfer.hooks import METHODS
from tapedelay.recorder.hook import SITE
from tapedelay.recorder.hook.engine_hook import STARTED

ENGINE = """
__version__ = "9.9"
print("engine imported", __loader__.__class__.__name__, __spec__.loader is __loader__)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a package that has the name of an engine, and a library without ggml in its place."""
    package = tmp_path / "lib" / "xllamacpp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import xllamacpp\n" + ENGINE)
    (package / "xllamacpp.py").write_text("")
    return tmp_path / "lib"


def run(code: str, *path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "PYTHONPATH": os.pathsep.join(map(str, (SITE, *path))), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_engine_is_imported_as_ever_and_the_failure_is_said_once(program: Path, tmp_path: Path) -> None:
    done = run(
        "import xllamacpp, xllamacpp.xllamacpp, importlib\n"
        "importlib.import_module('xllamacpp'); print('went on')",
        program,
        TAPEDELAY_PLUGIN="/nowhere/plugin.so",
        TAPEDELAY_SPOOL=str(tmp_path),
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["engine imported SourceFileLoader True", "went on"]
    assert done.stderr.count("tapedelay: xllamacpp was imported, but the plugin is not in it") == 1
    reports = list(tmp_path.glob("hook-*.json"))
    assert len(reports) == 1
    assert '"version": "9.9"' in reports[0].read_text()


@pytest.mark.parametrize("names", [("TAPEDELAY_PLUGIN", "TAPEDELAY_SPOOL"), ("TAPEDELAY_SPOOL",)])
def test_a_program_that_clears_its_environment_is_told_so(
    program: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    done = run(
        f"import os\nfor n in {names!r}: del os.environ[n]\nimport xllamacpp",
        program,
        TAPEDELAY_PLUGIN="/nowhere/plugin.so",
        TAPEDELAY_SPOOL=str(tmp_path),
    )
    assert done.returncode == 0
    fault = f"the program removed {' and '.join(names)} from its environment"
    assert done.stderr == f"tapedelay: xllamacpp was imported, but the plugin is not in it ({fault})\n"
    (report,) = tmp_path.glob("hook-*.json")
    assert fault in report.read_text()


def test_an_engine_of_another_layout_and_a_closed_stderr(program: Path, tmp_path: Path) -> None:
    (program / "xllamacpp" / "__init__.py").write_text("")
    env = {"TAPEDELAY_PLUGIN": "/nowhere/plugin.so", "TAPEDELAY_SPOOL": str(tmp_path)}
    done = run("import xllamacpp", program, **env)
    assert "its modules are not those that this version knows" in done.stderr
    assert "Error" not in done.stderr
    assert run("import sys; sys.stderr = None; import xllamacpp; print(1)", program, **env).stdout == "1\n"


def test_a_python_that_has_the_hook_says_so_in_the_spool(tmp_path: Path) -> None:
    run("pass", TAPEDELAY_PLUGIN="/nowhere/plugin.so", TAPEDELAY_SPOOL=str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == [STARTED]
    assert (tmp_path / STARTED).read_bytes() == b""
    done = run("pass", TAPEDELAY_PLUGIN="/nowhere/plugin.so", TAPEDELAY_SPOOL=str(tmp_path / "gone"))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_happens_without_a_recording(program: Path) -> None:
    done = run(
        "import xllamacpp, sys; print(any('Finder' == type(f).__name__[1:] for f in sys.meta_path))", program
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert done.stderr == ""


def test_other_modules_are_left_alone(program: Path) -> None:
    (program / "other.py").write_text("print(type(__loader__).__name__)")
    done = run("import other", program, TAPEDELAY_PLUGIN="/nowhere/plugin.so")
    assert done.stdout == "SourceFileLoader\n"
    assert done.stderr == ""


def test_an_engine_that_is_not_installed_gives_the_usual_error(tmp_path: Path) -> None:
    done = run("import llama_cpp", TAPEDELAY_PLUGIN="/nowhere/plugin.so")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'llama_cpp'" in done.stderr


def test_the_programs_own_sitecustomize_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("value = 42\nprint('own', __name__)")
    done = run(
        "import sitecustomize; print(sitecustomize.value)", tmp_path, TAPEDELAY_PLUGIN="/nowhere/plugin.so"
    )
    assert done.stdout.splitlines() == ["own sitecustomize", "42"]
    assert done.stderr == ""


def test_a_sitecustomize_that_fails_fails_as_it_would_without_us(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('own trouble')")
    done = run("print('went on')", tmp_path, TAPEDELAY_PLUGIN="/nowhere/plugin.so")
    assert done.stdout == "went on\n"
    assert "own trouble" in done.stderr


def test_it_is_light() -> None:
    done = run(
        "import sys; heavy = {'tapedelay', 'pyarrow', 'numpy', 'ctypes', 'subprocess'}\n"
        "print(heavy & set(sys.modules))",
        TAPEDELAY_PLUGIN="/nowhere/plugin.so",
    )
    assert done.stdout == "set()\n"


def test_it_speaks_old_python() -> None:
    import ast

    for path in (SITE / "sitecustomize.py", SITE.parent / "engine_hook.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


def test_a_scheduler_of_a_program_that_cleared_its_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "lib" / "deepinfer").mkdir(parents=True)
    (tmp_path / "lib" / "deepinfer" / "_C.py").write_text(
        "class engine:\n class BlockManager: pass\n class Scheduler:\n  "
        + "\n  ".join(f"def {name}(self): pass" for name in METHODS)
    )
    done = run(
        "import os; os.environ.pop('TAPEDELAY_SPOOL'); import deepinfer._C; print('went on')",
        tmp_path / "lib",
        *map(Path, sys.path),
        TAPEDELAY_SPOOL=str(tmp_path),
    )
    assert done.stdout == "went on\n", done.stderr
    fault = "the program removed TAPEDELAY_SPOOL from its environment"
    assert done.stderr.count(fault) == 1
    (said,) = tmp_path.glob("refused-requests-*.txt")
    assert fault in said.read_text()
