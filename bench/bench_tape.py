"""Write the bench tape of the design's budgets.

python bench/bench_tape.py OUT.tape [--ops N] [--seed S] [--race]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from decode import bench_tape

from tapedelay.formats.write import write_tape


def main() -> int:
    """Write the tape and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ops", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--race", action="store_true", help="leave out one wait in the middle token")
    asked = parser.parse_args()
    begin = time.perf_counter()
    tape = bench_tape(asked.ops, seed=asked.seed, race=asked.race)
    built = time.perf_counter()
    out = write_tape(tape, asked.out)
    written = time.perf_counter()
    files = [out] if out.is_file() else list(out.iterdir())
    size = sum(f.stat().st_size for f in files)
    print(
        f"{tape.table('ops').num_rows:,} ops, {size:,} bytes, {size / asked.ops:.2f} bytes/op "
        f"(built in {built - begin:.1f} s, written in {written - built:.1f} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
