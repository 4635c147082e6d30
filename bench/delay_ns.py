"""How exact delays in an engine are, and what a plan costs every op.

Budgets: nine delays of ten are late by at most 50 us (other work of the machine adds to the rest), a thread
that sleeps 1,000 times 1 ms needs at most 5 % of a core, and an op of a run without a plan costs 2 ns more.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from record_ns import load_build

from tapedelay.formats.delays import parse_expression
from tapedelay.recorder.delays import leave_plan

LATE_US = 50.0
CORE_SHARE = 0.05
OFF_NS = 2.0
SLEEPS_US = (10, 57, 200, 1_000, 3_000)
COUNT = 1_000
ROUNDS = 31
PLANS = {
    "1 line": "first copy of nothing on TAPE0 +1us",
    "100,000 lines, 1 pattern": "\n".join(
        f"{i}th sync on host0 +57us before_start" for i in range(1, 100_001)
    ),
    "100,000 lines, counted": "\n".join(
        f"{2 * 10**7 + i}th copy on host0 +57us before_start" for i in range(100_000)
    ),
    "1,000 patterns": "\n".join(f"first copy of t{i} +1us" for i in range(1_000)),
}


def measure() -> dict[str, Any] | str:
    """Compile and measure; a string says why it cannot be measured."""
    build = load_build()
    if build.compiler() is None:
        return "no C++ compiler"
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        source = Path(__file__).with_suffix(".cpp")
        library = build.compile_with_plugin(source, here / "delay_ns.so", shared=True, optimise="-O2")
        return {
            "sleeps": _sleeps(library),
            "ops": {n: _ops(library, here / str(i), p) for i, (n, p) in enumerate(PLANS.items())},
        }


def _sleeps(library: Path) -> dict[int, tuple[list[float], float]]:
    """Return lateness percentiles (50, 90, 99, 100), us, and the share of a core, by length in us."""
    function = ctypes.CDLL(str(library)).sleeps
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p]
    found = {}
    for us in SLEEPS_US:
        late = np.zeros(COUNT)
        cpu_ns = function(us * 1000, COUNT, late.ctypes.data)
        percentiles = np.percentile(late / 1000, (50, 90, 99, 100)).tolist()
        found[us] = percentiles, cpu_ns / (COUNT * us * 1000)
    return found


def _ops(library: Path, spool: Path, plan: str) -> tuple[float, float]:
    """Return ns per op without and with a plan, measured in a process of its own."""
    spool.mkdir()
    env = leave_plan(parse_expression(plan), spool)
    code = (
        "import ctypes; o = (ctypes.c_double * 2)();"
        f"f = ctypes.CDLL({str(library)!r}).ops; f.restype = ctypes.c_bool;"
        f"assert f({str(spool).encode()!r}, {ROUNDS}, o); print(*o)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, check=True
    )
    off, on = map(float, done.stdout.split())
    return off, on


def main() -> int:
    """Measure and print tables; exit 4 where it cannot be measured."""
    measured = measure()
    if isinstance(measured, str):
        print(f"delay_ns: {measured}, not measured")
        return 4
    sleeps, ops = measured["sleeps"], measured["ops"]
    print("delay    late by us: 50%    90%    99%    max   share of a core")
    for us, (late, share) in sleeps.items():
        print(f"{us:>6} us       {'  '.join(f'{x:>6.1f}' for x in late)}   {100 * share:.1f} %")
    print("plan                          ns per op: without   with")
    for name, (off, on) in ops.items():
        print(f"{name:<30} {off:>18.1f} {on:>6.1f}")
    _judge(f"late by {LATE_US:.0f} us", max(late[1] for late, _ in sleeps.values()) <= LATE_US)
    _judge(f"{100 * CORE_SHARE:.0f} % of a core for 1 ms", sleeps[1_000][1] <= CORE_SHARE)
    _judge(f"{OFF_NS:.0f} ns without a plan", min(off for off, _ in ops.values()) <= OFF_NS)
    return 0


def _judge(budget: str, held: bool) -> None:
    print(f"budget {budget}: {'within' if held else 'OVER'}")


if __name__ == "__main__":
    sys.exit(main())
