"""What the tap costs a call on the scheduler, and each node of a graph that is built again.

Budget: a scheduler call per token must cost no more than a few records do (300 ns); building a graph again
costs the engine microseconds per node, finding out that it is the same may cost 100 ns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from record_ns import ROOT, load_build

from tapedelay.recorder.plugin import ggml_plugin
from tapedelay.recorder.tap import ggml_tap

CALL_NS = 300.0
NODE_NS = 100.0
ROUNDS = int(os.environ.get("TAPEDELAY_BENCH_ROUNDS", "31"))
TESTS = ROOT / "tests/recorder/engines/ggml"


def measure() -> dict[str, tuple[float, float]] | str:
    """Return ns per call and per node, by what stands in between; a string says why it cannot be measured."""
    build = load_build()
    compiler = build.compiler()
    if compiler is None:
        return "no C++ compiler"
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        flags = [
            "-std=c++17",
            "-O2",
            "-fPIC",
            f"-I{build.NATIVE}",
            f"-I{TESTS / 'native'}",
            f"-I{TESTS / 'tap'}",
        ]
        fake = [str(TESTS / "native/fake_host.cpp"), str(TESTS / "tap/fake_sched.cpp")]
        library = here / "libfake.so"
        subprocess.run([compiler, *flags, "-shared", *fake, "-o", str(library), "-ldl"], check=True)
        program = here / "tap_ns"
        source = str(Path(__file__).with_suffix(".cpp"))
        subprocess.run([compiler, *flags, source, str(library), "-o", str(program)], check=True)
        plugin, tap = str(ggml_plugin()), {"LD_PRELOAD": str(ggml_tap())}
        return {
            "nothing": _run(here, program, {}),
            "the plugin": _run(here, program, {}, plugin),
            "the tap alone": _run(here, program, tap),
            "both": _run(here, program, tap, plugin),
        }


def _run(here: Path, program: Path, more: dict[str, str], *plugin: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(dir=here) as spool:
        env = {**os.environ, "TAPEDELAY_SPOOL": spool, "TAPEDELAY_DEVICES": "0", **more}
        command = [str(program), str(ROUNDS), *plugin]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    call, node = map(float, done.stdout.split())
    return call, node


def main() -> int:
    """Measure and print a table; exit 4 where it cannot be measured."""
    measured = measure()
    if isinstance(measured, str):
        print(f"tap_ns: {measured}, not measured")
        return 4
    print(f"{'median of ' + str(ROUNDS) + ' rounds':44} {'ns per call':>12} {'ns per node':>12}")
    for what, (call, node) in measured.items():
        print(f"{what:44} {call:12.1f} {node:12.1f}")
    base, both = measured["the plugin"], measured["both"]
    added = [b - a for a, b in zip(base, both, strict=True)]
    verdicts = ["within" if a <= most else "OVER" for a, most in zip(added, (CALL_NS, NODE_NS), strict=True)]
    print(f"{'  added by the tap to a recorded process':44} {added[0]:12.1f} {added[1]:12.1f}")
    print(f"{f'  budget {CALL_NS:.0f} ns and {NODE_NS:.0f} ns':44} {verdicts[0]:>12} {verdicts[1]:>12}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
