"""What runs in the engine's own Python needs nothing but the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tapedelay

MODULES = ("serving", "worker", "perturb", "plan", "registry", "case", "reduce", "drive")


def test_the_worker_imports_the_standard_library_only() -> None:
    (package,) = list(tapedelay.__path__)[:1]
    code = (
        f"import sys; sys.path.append({str(Path(package).parent)!r})\n"
        f"import importlib\n"
        f"for name in {MODULES!r}: importlib.import_module('tapedelay.replayer.rerun.' + name)\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('numpy', 'pyarrow', 'click', 'rich', 'msgpack', 'pynvml')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
