"""Thousands of damaged tapes: each refused, no crash, no hang, no memory blow-up."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import (
    InputError,
)
from tapedelay.formats.pack import pack_tape
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import SCHEMAS

from .damage import mutate, read_all


def test_mutated_files(written: Path, tmp_path: Path) -> None:
    """1,500 damaged tapes, directory and zip: each refused. No change goes unseen."""
    r = random.Random(2)
    packed = pack_tape(written, tmp_path / "a.zip").read_bytes()
    small = sorted(written.iterdir())
    for i in range(1500):
        if i % 3:
            damaged = mutate(r, packed)
            if damaged == packed:
                continue
            (tmp_path / "b.zip").write_bytes(damaged)
            try:
                read_all(tmp_path / "b.zip")
            except InputError:
                continue
            # dates, modes and the like are no content
            assert len(damaged) == len(packed)
            assert sum(x != y for x, y in zip(damaged, packed, strict=True)) <= 64
            same_content(tmp_path / "a.zip", tmp_path / "b.zip")
        else:
            f = r.choice(small)
            whole = f.read_bytes()
            damaged = mutate(r, whole)
            if damaged == whole:
                continue
            f.write_bytes(damaged)
            with pytest.raises(InputError):
                read_all(written)
            f.write_bytes(whole)


def same_content(a: Path, b: Path) -> None:
    x, y = open_tape(a), open_tape(b)
    assert x.manifest == y.manifest
    for name in SCHEMAS:
        assert x.table(name).to_pylist() == y.table(name).to_pylist()


DEEP = """
import faulthandler, random, resource, sys
from pathlib import Path
faulthandler.enable()
sys.path.insert(0, sys.argv[1])
from damage import claims, mutate
from tapedelay.formats.dump import dump_lines
from tapedelay.formats.errors import InputError
from tapedelay.formats.manifest import TableEntry
from tapedelay.formats.read import decode_table, open_tape
from tapedelay.formats.summary import summarise
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
path, seed, count, limit = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
whole = open_tape(path)
tables = {n: whole.table(n) for n in whole.present}
files = {n: (path / f"{n}.arrow").read_bytes() for n in tables}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
r = random.Random(seed)
refused = opened = 0
for _ in range(count):
    name = r.choice(list(files))
    data = mutate(r, files[name])
    try:
        table = decode_table(data, TableEntry(name, **claims(data)))
    except InputError:
        refused += 1
        continue
    got = Tape(whole.manifest, {**tables, name: table})
    validate(got)
    sum(len(x) for x in dump_lines(got))
    summarise(got)
    opened += 1
peak = next(n for n in open("/proc/self/status") if n.startswith("VmHWM"))  # ru_maxrss has the parent's, too
print(refused, opened, peak.split()[1])
"""


@pytest.mark.parametrize("count", [1000, pytest.param(40_000, marks=pytest.mark.soak)])
def test_mutated_below_the_checksums(written: Path, count: int) -> None:
    """Someone who seals the damage again reaches the Arrow reader: it must not crash, hang or fill memory."""
    done = subprocess.run(
        [sys.executable, "-c", DEEP, str(Path(__file__).parent), str(written), "3", str(count), str(4 << 30)],
        capture_output=True,
        text=True,
        timeout=count,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused, opened, rss_kib = map(int, done.stdout.split())
    assert refused + opened == count
    assert refused > count / 4
    assert opened > count / 40, "mutations of what is only described are harmless"
    assert rss_kib < 1 << 20, f"{rss_kib} KiB"
