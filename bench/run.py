"""The figures of the design's budgets, each beside its peers of the same run.

python bench/run.py [--quick] [--only NAME,...]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from figures import Figures

HERE = Path(__file__).parent
MILLION = 1_000_000
PARTS = ("recorder", "size", "check", "replay", "linear", "recorded", "production", "requests", "rerun")
STEP_LIMIT = 1.5
"""Cost per op at one size may be so many times that of the size before: a quadratic part would double it."""

_SHORT = ("record_ns.py", "delay_ns.py", "tap_ns.py")
PROCESSES = 3
"""So many processes measure open + check; the fastest counts."""

Found = dict[str, Any]


class Bench:
    """The tapes of one run and what is measured on them."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.ops = 200_000 if quick else 2 * MILLION
        self.figures = Figures()

    # --- helpers ---

    def tape(self, ops: int) -> Path:
        """Return the bench tape with so many ops, written when first asked for."""
        path = self.folder / f"{ops}.tape"
        if not path.exists():
            script = [sys.executable, str(HERE / "bench_tape.py"), str(path), "--ops", str(ops)]
            subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
        return path

    def measure(self, what: str, tape: Path) -> Found:
        """Return what `measure.py` finds in a process of its own; ``absent`` says why it found nothing."""
        command = [sys.executable, str(HERE / "measure.py"), what, str(tape)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            killed = f"it was ended by signal {-done.returncode}" + " (out of memory?)" * (
                done.returncode == -9
            )
            why = killed if done.returncode < 0 else f"it failed with code {done.returncode}"
            return {"absent": (done.stderr.strip().splitlines() or [why])[-1]}
        found: Found = json.loads(done.stdout)
        return found

    def checked(self, tape: Path) -> Found:
        """Return the fastest of several open + check, with their sum as ``seconds``."""
        found = [self.measure("check", tape) for _ in range(PROCESSES)]
        absent = [f for f in found if "absent" in f]
        if absent:
            return absent[0]
        for f in found:
            f["seconds"] = f["open_seconds"] + f["check_seconds"]
        return min(found, key=lambda f: float(f["seconds"]))

    def missing(self, what: str, *found: Found) -> bool:
        """Print why something was not measured; False where it was."""
        for f in found:
            if "absent" in f:
                self.figures.absent(what, f["absent"])
                return True
        return False

    # --- parts ---

    def recorder(self) -> None:
        """What recording costs: one record, and a whole engine."""
        for script in _SHORT if self.quick else (*_SHORT, "engine_overhead.py"):
            self.figures.title(script)
            done = subprocess.run(
                [sys.executable, HERE / script], stdout=subprocess.PIPE, text=True, check=False
            )
            print(done.stdout, end="", flush=True)
            for held in re.findall(r"budget .*: (within|OVER)", done.stdout):
                self.figures.judge(script, held == "within")
            if done.returncode:
                self.figures.absent(script, (done.stdout.strip().splitlines() or ["it failed"])[-1])

    def size(self) -> None:
        """Bytes per op of the tape, and of a Perfetto trace of the same ops."""
        show = self.figures.show
        tape = self.tape(self.ops)
        self.figures.title(f"tape: {self.ops:,} ops")
        show("tape size", _bytes(tape) / self.ops, "bytes/op", most=12)
        few = 20_000
        small, out = self.tape(few), self.folder / "export.pftrace"
        code = "from tapedelay.formats.cli import main; main()"
        arguments = ["export", "--format", "perfetto", "-o", str(out), str(small)]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        if done.returncode or not out.exists():
            why = (done.stderr.strip().splitlines() or ["no export"])[0][:100]
            self.figures.absent("a Perfetto trace", why)
            return
        own = _bytes(small) / few
        show("a Perfetto trace", _bytes(out) / few, "bytes/op", remark=f"{few:,} ops; their tape: {own:.1f}")

    def check(self) -> None:
        """Open and check, beside torch's CUDA sanitizer."""
        show = self.figures.show
        self.figures.title(f"open + check: {self.ops:,} ops, one core, the fastest of {PROCESSES} processes")
        got = self.checked(self.tape(self.ops))
        if self.missing("open + check", got):
            return
        rate = got["ops"] / got["seconds"]
        parts = f"open {got['open_seconds']:.2f} s, check {got['check_seconds']:.2f} s"
        if got["cpu_seconds"] < 0.9 * got["seconds"]:
            parts += f" ({got['cpu_seconds']:.2f} s of it on the CPU: the core was shared)"
        accesses = f"{got['accesses'] / got['seconds']:,.0f} accesses/s"
        show("open + check", rate, "ops/s", least=2 * MILLION, remark=f"{parts}; {accesses}")
        show("memory", got["bytes"] / got["ops"], "bytes/op", most=200)
        name = "torch CSAN's event handler"
        peer = self.measure("csan", self.tape(20_000 if self.quick else 100_000))
        if self.missing(name, peer):
            return
        theirs = peer["ops"] / peer["seconds"]
        what = f"{peer['ops']:,} ops; tensors by address, no ranges, nothing read from disk"
        show(name, theirs, "ops/s", remark=f"{what}; ours: {rate / theirs:,.0f} x")

    def replay(self) -> None:
        """Virtual replay, beside SimPy and a plain heap on the same queues."""
        show = self.figures.show
        self.figures.title(f"virtual replay: {self.ops:,} ops, one core, the fastest of 3 runs")
        tape, small = self.tape(self.ops), self.tape(100_000)
        got = self.measure("replay", tape)
        if self.missing("virtual replay", got):
            return
        timing = got["ops"] / got["timing_seconds"]
        for name, what, least in (("timing", "timing alone", 5), ("values", "with values", 1)):
            loaded = got["program_seconds"] + got[f"{name}_load_seconds"]
            remark = f"loaded once in {loaded:.2f} s"
            show(what, got["ops"] / got[f"{name}_seconds"], "ops/s", least=least * MILLION, remark=remark)
        for name, peer, ours in (
            ("a binary heap in C++", self.measure("heap", tape), got),
            ("SimPy", self.measure("simpy", small), self.measure("replay", small)),
        ):
            if self.missing(name, peer, ours):
                continue
            rate = peer["ops"] / peer["seconds"]
            same = "the same end" if peer["total_ns"] == ours["total_ns"] else "ANOTHER END"
            remark = f"{peer['ops']:,} ops, {same}; timing alone: {timing / rate:,.1f} x"
            show(name, rate, "ops/s", remark=remark)
        self.figures.title("many plans on a tape of 1,000 ops, a delay before every op")
        got = self.measure("plans", self.tape(1000))
        if not self.missing("plans", got):
            show("timing alone", got["timing_per_second"], "plans/s", least=5000)
            show("with values", got["values_per_second"], "plans/s", least=1000)

    def linear(self) -> None:
        """Cost per op at several sizes."""
        show = self.figures.show
        self.figures.title("cost per op by size")
        sizes = (50_000, 100_000, 200_000) if self.quick else tuple(n * MILLION // 2 for n in (1, 2, 4, 8))
        costs: dict[str, dict[int, float]] = {}
        for ops in sizes:
            tape = self.tape(ops)
            checked, replayed = self.checked(tape), self.measure("replay", tape)
            if self.missing(_millions(ops), checked, replayed):
                continue
            for name, seconds in (
                ("open + check", checked["seconds"]),
                ("timing alone", replayed["timing_seconds"]),
                ("with values", replayed["values_seconds"]),
            ):
                costs.setdefault(name, {})[ops] = 1e9 * seconds / ops
                show(f"{_millions(ops)}: {name}", costs[name][ops], "ns/op")
        for name, per_op in costs.items():
            for (few, before), (many, after) in pairwise(per_op.items()):
                what = f"{name}: {_millions(many)} / {_millions(few)}"
                show(what, after / before, "", most=STEP_LIMIT)
            first, last = min(per_op), max(per_op)
            what = f"{name}: {_millions(last)} / {_millions(first)}"
            if len(per_op) > 2:
                show(what, per_op[last] / per_op[first], "", most=1.5)

    def recorded(self) -> None:
        """A long context of a real engine: recorded, opened, checked, replayed."""
        from recorded import record_long

        show = self.figures.show
        prompt, predicted = (2048, 64) if self.quick else (20_480, 512)
        self.figures.title(f"recorded: a tiny model of llama.cpp, {prompt:,} + {predicted} tokens")
        made = record_long(self.folder / "recorded.tape.zip", prompt, predicted)
        if isinstance(made, str):
            self.figures.absent("recording", made)
            return
        tape, answer = made
        show("the engine took", answer["seconds"], "s")
        show("tape size", _bytes(tape) / MILLION, "MB", most=2)
        got, replayed = self.checked(tape), self.measure("replay", tape)
        if self.missing("open + check", got) or self.missing("virtual replay", replayed):
            return
        found = f"{got['ops']:,} ops, {got['accesses']:,} accesses, {got['races']} races"
        show("open + check", 1000 * got["seconds"], "ms", remark=found)
        for name, what in (("timing", "timing alone"), ("values", "with values")):
            seconds = replayed[f"{name}_seconds"]
            show(what, 1000 * seconds, "ms", remark=f"{replayed['ops'] / seconds:,.0f} ops/s")

    def production(self) -> None:
        """What recording a long run costs an operator; what a flight recorder keeps."""
        from production import production

        production(self.folder, self.figures, quick=self.quick)

    def requests(self) -> None:
        """What recording a request scheduler costs per step."""
        from engine_hooks import engine_hooks
        from request_steps import request_steps

        request_steps(self.folder, self.figures, quick=self.quick)
        engine_hooks(self.folder, self.figures, quick=self.quick)

    def rerun(self) -> None:
        """How fast request schedulers are rerun, exactly and perturbed."""
        from reruns import reruns

        reruns(self.folder, self.figures)


def _millions(ops: int) -> str:
    return f"{ops / MILLION:g} M ops"


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.iterdir())


def main() -> int:
    """Print all figures, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small tapes, for development")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    asked = parser.parse_args()
    chosen = asked.only.split(",")
    strange = [c for c in chosen if c not in PARTS]
    if strange:
        parser.error(f"no part {strange[0]!r}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), quick=asked.quick)
        for part in chosen:
            getattr(bench, part)()
        print(f"\n{bench.figures.summary()}")
        if asked.quick:
            print("(small tapes: the budgets are those of the full ones)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
