"""The native core by itself under sanitizers: `tests/replayer/native/*_cases.cpp`.

Everything under AddressSanitizer and UBSan, the threads backend under ThreadSanitizer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "native"
CASES = sorted(p.stem for p in SOURCE.glob("*_cases.cpp"))
UNDER = [*(("address,undefined", name) for name in CASES), ("thread", "threads_cases")]
REPORTS = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "ASAN_OPTIONS": "detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}

pytestmark = pytest.mark.engines


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=1500, env={**os.environ, **REPORTS}
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@cache
def tool(name: str) -> str:
    """Return a build tool: the one that the extra `test` puts beside this Python, or one on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found is not None, f"{name} is not installed; it comes with the extra `test`"
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


def built(folder: Path, sanitizer: str, name: str) -> Path:
    """Return an executable under a sanitizer; what others need too is built once."""
    build = folder / sanitizer.replace(",", "-")
    if not build.exists():
        run(
            tool("cmake"), "-S", SOURCE, "-B", build, "-G", "Ninja", f"-DSANITIZE={sanitizer}",
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        )  # fmt: skip
    run(tool("ninja"), "-C", build, name)
    return build / name


@pytest.mark.parametrize(("sanitizer", "name"), UNDER, ids=[f"{name}-{s}" for s, name in UNDER])
def test_cases_hold_and_sanitizers_find_nothing(folder: Path, sanitizer: str, name: str) -> None:
    """A report of a sanitizer ends the executable with another code."""
    setarch = shutil.which("setarch")  # without it, ThreadSanitizer may have to start itself again
    unshuffled = [setarch, "-R"] if setarch else []
    *_, count, word = run(*unshuffled, built(folder, sanitizer, name)).split()
    assert word == "cases"
    assert int(count) > 0


def test_a_sanitizer_that_finds_something_fails(folder: Path) -> None:
    """The compiler here has the sanitizers, and they end a process that is wrong."""
    source = folder / "wrong.cpp"
    source.write_text(
        "#include <thread>\n#include <vector>\n"
        "int shared = 0;\n"
        "int main(int argc, char**) {\n"
        "  if (argc > 1) { std::vector<int> v(1); return v.data()[argc]; }\n"
        "  std::thread other([] { for (int i = 0; i < 1000; ++i) ++shared; });\n"
        "  for (int i = 0; i < 1000; ++i) ++shared;\n"
        "  other.join();\n"
        "}\n"
    )
    for sanitizer, arguments, report in (
        ("address,undefined", ["x"], "heap-buffer-overflow"),
        ("thread", [], "data race"),
    ):
        program = folder / f"wrong-{report[:4]}"
        run(os.environ.get("CXX", "c++"), "-g", f"-fsanitize={sanitizer}", "-pthread", source, "-o", program)
        with pytest.raises(AssertionError, match=report):
            run(program, *arguments)
