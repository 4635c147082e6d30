"""What one record costs the engine's thread, beside clock_gettime in the same run.

Budget (design, section 10): clock_gettime + 12 ns. Peers, from their own measurements on two noisy cores:
LTTng 115 ns, VizTracer 197 ns, torch.profiler 420-640 ns per event.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

BUDGET_NS = 12.0
ROUNDS = int(os.environ.get("TAPEDELAY_BENCH_ROUNDS", "31"))
ROOT = Path(__file__).parents[1]


def load_build() -> ModuleType:
    """Return the module that compiles the plugin's sources (it belongs to the native tests)."""
    path = ROOT / "tests/recorder/engines/ggml/native/native_build.py"
    spec = importlib.util.spec_from_file_location("native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure() -> tuple[float, ...] | str:
    """Compile and measure; return ns per clock call, record, added, blocking call, copy, declined copy.

    A string says why it cannot be measured.
    """
    build = load_build()
    if build.compiler() is None:
        return "no C++ compiler"
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        source = Path(__file__).with_suffix(".cpp")
        library = build.compile_with_plugin(source, here / "record_ns.so", shared=True, optimise="-O2")
        function = ctypes.CDLL(str(library)).record_ns
        function.restype = ctypes.c_bool
        out = (ctypes.c_double * 6)()
        spool = here / "spool"
        spool.mkdir()
        if not function(str(spool).encode(), ROUNDS, out):
            return "the spool could not be written"
        return tuple(out)


def main() -> int:
    """Measure and print a table; exit 4 where it cannot be measured."""
    measured = measure()
    if isinstance(measured, str):
        print(f"record_ns: {measured}, not measured")
        return 4
    clock, record, added, blocking, copy, declined = measured
    verdict = "within" if added <= BUDGET_NS else "OVER"
    print(f"{'per call, median of ' + str(ROUNDS) + ' rounds':44} {'ns':>8}")
    print(f"{'clock_gettime(CLOCK_MONOTONIC)':44} {clock:8.1f}")
    print(f"{'one record':44} {record:8.1f}")
    print(f"{'  added to the clock (budget 12 ns: ' + verdict + ')':44} {added:8.1f}")
    print(f"{'a copy: two tensors and a name looked up':44} {copy:8.1f}")
    print(f"{'a blocking call (two clock reads)':44} {blocking:8.1f}")
    print(f"{'a declined copy (no record)':44} {declined:8.1f}")
    print(f"{'bytes per record':44} {64:8d}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
