"""One measurement in a process of its own, on one core; prints JSON. `run.py` calls it.

python bench/measure.py WHAT TAPE [OPTIONS]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapedelay.formats.load import load_tape

HERE = Path(__file__).parent


def one_core() -> None:
    """Keep this process, and what it starts, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def peak_kib() -> int:
    """Return the most memory that this process has had, in KiB."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
        return int(next(line for line in text.splitlines() if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def check(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Open a tape and check it: time, and memory beyond what the imports took."""
    from tapedelay.replayer.check import check_tape

    before, busy = peak_kib(), time.process_time()
    begin = time.perf_counter()
    tape = load_tape(path)
    opened = time.perf_counter()
    report = check_tape(tape)
    end = time.perf_counter()
    return {
        "ops": tape.rows("ops"),
        "accesses": report.accesses_checked,
        "races": report.count("race"),
        "open_seconds": opened - begin,
        "check_seconds": end - opened,
        "cpu_seconds": time.process_time() - busy,
        "bytes": (peak_kib() - before) * 1024,
    }


def replay(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Replay a tape in virtual time, with and without values."""
    from tapedelay.formats.delays import Delays
    from tapedelay.replayer.backends.protocol import Options
    from tapedelay.replayer.backends.virtual import VirtualBackend
    from tapedelay.replayer.program import Program

    tape = load_tape(path)
    begin = time.perf_counter()
    program = Program.from_tape(tape)
    found: dict[str, Any] = {"ops": program.rows, "program_seconds": time.perf_counter() - begin}
    for name, values in (("timing", False), ("values", True)):
        begin = time.perf_counter()
        loaded = VirtualBackend().load(program, Options(values=values))
        found[f"{name}_load_seconds"] = time.perf_counter() - begin
        seconds = []
        for _ in range(options.times):
            begin = time.perf_counter()
            outcome = loaded.run(Delays.of())
            seconds.append(time.perf_counter() - begin)
            found["total_ns"], found["wrong"] = outcome.total_ns, outcome.wrong_count
            del outcome
        found[f"{name}_seconds"] = min(seconds)
        loaded.close()
    return found


def plans(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Replay a small tape under many random plans."""
    from tapedelay.formats.delays import random_delays
    from tapedelay.replayer.backends.protocol import Options
    from tapedelay.replayer.backends.virtual import VirtualBackend
    from tapedelay.replayer.program import Program

    program = Program.from_tape(load_tape(path))
    delays = [random_delays(program.op_ids, seed, 5000) for seed in range(1000)]
    found: dict[str, Any] = {"ops": program.rows, "delays": sum(map(len, delays)) / len(delays)}
    for name, values in (("timing", False), ("values", True)):
        loaded = VirtualBackend().load(program, Options(values=values))
        seconds = []
        for _ in range(options.times):
            begin = time.perf_counter()
            runs = loaded.run_many(delays)
            seconds.append(time.perf_counter() - begin)
        found[f"{name}_per_second"] = len(delays) / min(seconds)
        found[f"{name}_wrong"] = int(runs.wrong_count.sum())
    return found


def simpy(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the queues of a tape in SimPy."""
    from peers.queues import queues_of
    from peers.simpy_queues import run_simpy

    from tapedelay.replayer.program import Program

    program = Program.from_tape(load_tape(path))
    try:
        seconds, end_ns = run_simpy(queues_of(program))
    except ImportError:
        return {"absent": "SimPy is not installed (pip install simpy)"}
    return {"ops": program.rows, "seconds": seconds, "total_ns": end_ns}


def heap(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the queues of a tape by a binary heap in C++."""
    from peers.queues import queues_of

    from tapedelay.replayer.program import Program

    compiler = os.environ.get("CXX", "c++")
    program = Program.from_tape(load_tape(path))
    folder = path.parent
    queues_of(program).write(folder / "queues.bin")
    try:
        subprocess.run(
            [compiler, "-O3", "-march=native", "-std=c++17", "-o", folder / "heap", HERE / "peers/heap.cpp"],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return {"absent": f"no C++ compiler ({error})"}
    rows = program.rows
    del program
    done = subprocess.run(
        [folder / "heap", folder / "queues.bin", str(options.times)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, total_ns = done.stdout.split()
    return {"ops": rows, "seconds": float(seconds), "total_ns": int(total_ns)}


def csan(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the accesses of a tape through torch's CUDA sanitizer."""
    from peers.csan import run_csan

    tape = load_tape(path)
    try:
        seconds, errors = run_csan(tape)
    except ImportError:
        return {"absent": "torch is not installed (pip install 'tapedelay[bench]')"}
    return {"ops": tape.rows("ops"), "seconds": seconds, "errors": errors}


WHAT = {f.__name__: f for f in (check, replay, plans, simpy, heap, csan)}


def main() -> int:
    """Measure one thing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(WHAT))
    parser.add_argument("tape", type=Path)
    parser.add_argument("--times", type=int, default=3, help="runs, of which the fastest counts")
    options = parser.parse_args()
    one_core()
    print(json.dumps(WHAT[options.what](options.tape, options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
