"""A flight recorder's spool: what it keeps, what it says it dropped, and who may end it in between."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.errors import SpoolError
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml.collect import collect_directory
from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.last import keep_last
from tapedelay.recorder.engines.ggml.layout import HEADER, RING_HEADER, Kind
from tapedelay.recorder.engines.ggml.spool import read_spools

RECORDS = "TAPEDELAY_RING_RECORDS"


def run(driver: Path, mode: str, spool: Path, *numbers: int, **env: str) -> Spool:
    done = subprocess.run(
        [str(driver), mode, str(spool), *map(str, numbers)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout
    (one,) = read_spools(spool)
    return one


def lost_in_all(spool: Path) -> int:
    """What the header counts, also of gaps that were dropped."""
    (path,) = spool.glob("*.rec")
    return int(np.fromfile(path, HEADER, count=1)[0]["lost"])


def disk_bytes(folder: Path) -> int:
    return sum(512 * p.stat().st_blocks for p in folder.iterdir())


@pytest.mark.parametrize("records", [1000, 20_000])
def test_the_newest_records_are_kept_and_the_others_counted(driver: Path, spool: Path, records: int) -> None:
    for count in (200_000, 1_000_000, 5_000_000):  # ten times over, at least
        spool.mkdir(exist_ok=True)
        one = run(driver, "ring", spool, count, 4, **{RECORDS: str(records)})
        total = 3 + count + count // 4 // 1000 + 3
        assert one.recorded + one.dropped + lost_in_all(spool) == total
        if one.dropped:
            break  # on a busy machine the helper may come late: then with more records
        shutil.rmtree(spool)
    assert records <= one.recorded < total
    assert one.ended
    # The collector cuts it to exactly what was asked for, by issue time.
    newest = np.sort(one.records["issue_ns"][one.records["kind"] != Kind.GAP])[-records:]
    keep_last([one])
    assert one.recorded == records
    assert one.dropped + records + lost_in_all(spool) == total
    assert one.records["issue_ns"][one.records["kind"] != Kind.GAP].tolist() == newest.tolist()
    assert one.records["a"][-3:].tolist() == [1 << 20, (1 << 20) + 1, (1 << 20) + 2]
    tape = collect_directory(spool)
    assert validate(tape) == []
    assert tape.manifest.dropped == one.dropped
    assert tape.manifest.processes[0].records == records


def test_the_last_milliseconds(driver: Path, spool: Path) -> None:
    one = run(driver, "ring", spool, 100_000, 2, TAPEDELAY_RING_MS="30")
    assert one.recorded + one.dropped + lost_in_all(spool) == 3 + 100_000 + 50 + 3
    keep_last([one])
    times = one.records["issue_ns"].astype(np.int64)
    assert int(times.max() - times.min()) <= 30_000_000
    assert one.recorded > 0


def test_a_slow_thread_and_an_open_call_keep_their_records(driver: Path, spool: Path) -> None:
    one = run(driver, "open", spool, 300_000, **{RECORDS: "1000"})
    mine = one.records[one.records["queue"] == 3]
    assert mine["a"].tolist() == [42, 43]
    assert mine["end_ns"][0] > one.records["issue_ns"][one.records["queue"] == 0].max()
    assert one.recorded + one.dropped + lost_in_all(spool) == 300_002
    assert disk_bytes(spool) < 16 << 20


def test_disk_and_files_stay_bounded(driver: Path, spool: Path) -> None:
    one = run(driver, "open", spool, 1_000_000, **{RECORDS: "1000"})
    assert one.dropped > 900_000 - lost_in_all(spool)
    assert disk_bytes(spool) < 16 << 20
    assert len(list(spool.iterdir())) < 400


@pytest.mark.soak
def test_memory_and_addresses_stay_bounded(driver: Path, spool: Path) -> None:
    sizes = []
    for count in (200_000, 10_000_000):  # 640 MB of records
        folder = spool / str(count)
        folder.mkdir()
        done = subprocess.run(
            [str(driver), "ring", str(folder), str(count), "1"],
            env={**os.environ, RECORDS: "1000"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        found = dict(re.findall(r"(Vm\w+):\s*(\d+) kB", done.stdout))
        sizes.append({name: int(kib) for name, kib in found.items()})
    few, many = sizes
    assert many["VmSize"] < few["VmSize"] + 100_000
    assert many["VmRSS"] < few["VmRSS"] + 30_000
    assert many["VmPTE"] < few["VmPTE"] + 500


def test_ten_thousand_threads_that_come_and_go(driver: Path, spool: Path) -> None:
    one = run(driver, "short threads", spool, 10_000, **{RECORDS: "500"})
    assert one.recorded + one.dropped == 10_000
    assert one.threads == 10_000
    keep_last([one])
    assert one.records["a"].tolist() == list(range(9500, 10_000))
    assert one.records["thread"].tolist() == list(range(9500, 10_000))
    assert validate(collect_directory(spool)) == []


def test_gaps_stand_where_records_are_missing(driver: Path, spool: Path) -> None:
    one = run(driver, "gaps", spool, 5)
    assert one.recorded + one.lost == 500_001
    is_gap = one.records["kind"] == Kind.GAP
    assert is_gap.any()
    assert one.records["a"][is_gap].sum() == one.lost
    last = -1
    for gap, number in zip(is_gap.tolist(), one.records["a"].tolist(), strict=True):
        if number >= 1 << 50:
            break
        last = (
            last + number if gap else number if number == last + 1 else pytest.fail(f"{number} after {last}")
        )


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_the_counts_are_exact(driver: Path, spool: Path, seed: int) -> None:
    rng = random.Random(seed)
    with subprocess.Popen(
        [str(driver), "ring forever", str(spool)],
        env={**os.environ, RECORDS: "3000"},
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        told = bytearray()
        end = time.monotonic() + 0.1 + 0.5 * rng.random()
        living = 0
        while time.monotonic() < end:
            told += os.read(process.stdout.fileno(), 1 << 16)
            if rng.random() < 0.02:  # a reader beside a writer that goes on
                (one,) = read_spools(spool)
                numbers = np.sort(one.records["a"])
                assert one.recorded + one.dropped + one.lost >= len(told) // 8
                assert len(set(numbers.tolist())) == len(numbers)
                living += 1
        process.send_signal(signal.SIGKILL)
        told += process.stdout.read()
    whole = len(told) // 8
    (one,) = read_spools(spool)
    assert not one.ended
    assert one.recorded + one.dropped + lost_in_all(spool) in (whole, whole + 1)
    keep_last([one])
    assert one.recorded == min(3000, one.recorded + one.dropped)
    if not one.lost:
        assert one.records["a"][-1] in (whole - 1, whole)
        assert np.all(np.diff(np.sort(one.records["a"].astype(np.int64))) == 1)
    assert validate(collect_directory(spool)) == []


@pytest.mark.parametrize("ring", ["", "2000"])
def test_forks_amid_other_threads_mix_nothing(driver: Path, spool: Path, ring: str) -> None:
    env = {RECORDS: ring} if ring else {}
    done = subprocess.run(
        [str(driver), "storm", str(spool), "8", "3"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    spools = read_spools(spool)
    parents = [s for s in spools if 1 in s.records["b"]]
    assert len(parents) == 1
    assert set(parents[0].records["b"].tolist()) == {1}
    assert len(spools) == 9  # programs that were spawned or run by exec record nothing
    for s in spools:
        assert s.ended
        assert s.lost == 0
        if s is not parents[0]:
            assert s.records["a"].tolist() == list(range(100))
            assert set(s.records["b"].tolist()) == {2}
            assert len(set(s.records["c"].tolist())) == 1
    assert len({int(s.records["c"][0]) for s in spools if s is not parents[0]}) == 8
    assert validate(collect_directory(spool)) == []


def test_a_program_that_becomes_another_one_leaves_both_recordings(driver: Path, spool: Path) -> None:
    done = subprocess.run([str(driver), "exec", str(spool)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after = sorted(read_spools(spool), key=lambda s: s.mono_ns)
    assert (before.records["a"].tolist(), before.ended) == ([1], False)
    assert (after.records["a"].tolist(), after.ended) == ([0, 1, 2, 3, 4], True)


@pytest.mark.parametrize(("mode", "number"), [("abort", signal.SIGABRT), ("segfault", signal.SIGSEGV)])
@pytest.mark.parametrize("ring", ["", "100"])
def test_a_crash_leaves_everything(
    driver: Path, spool: Path, mode: str, number: signal.Signals, ring: str
) -> None:
    env = {RECORDS: ring} if ring else {}
    done = subprocess.run(
        [str(driver), mode, str(spool), "5000"], env={**os.environ, **env}, capture_output=True, timeout=60
    )
    assert done.returncode == -number
    (one,) = read_spools(spool)
    assert not one.complete
    assert one.lost == 0
    assert one.records["a"].tolist()[-100:] == list(range(4900, 5000))
    assert one.recorded + one.dropped == 5000


def test_asking_to_save(driver: Path, spool: Path) -> None:
    for listens, answer in (({}, "-1"), ({"TAPEDELAY_SAVE": "1"}, "0")):
        done = subprocess.run(
            [str(driver), "save", str(spool)],
            env={**os.environ, **listens, "TAPEDELAY_SPOOL": str(spool)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.split()[-2:] == [answer, "alive"]
        assert (spool / "hold").exists() == bool(listens)
        assert len(list(spool.glob("save-*.request"))) == len(listens)


def test_nothing_is_dropped_while_a_reader_holds_it(driver: Path, spool: Path) -> None:
    (spool / "hold").touch()
    one = run(driver, "ring", spool, 40_000, 2, **{RECORDS: "1000"})
    assert one.dropped == 0
    assert one.recorded + one.lost == 3 + 40_000 + 20 + 3


def _edit(path: Path, kind: Any, **values: int) -> None:
    head = np.fromfile(path, kind, count=1)
    for name, value in values.items():
        head[name] = value
    with path.open("r+b") as file:
        file.write(head.tobytes())


def test_damage_is_refused(driver: Path, spool: Path) -> None:
    run(driver, "ring", spool, 100_000, 2, **{RECORDS: "1000"})
    (ring,) = spool.glob("*.ring")
    whole = ring.read_bytes()
    for values, says in (
        ({"magic": 7}, "foreign"),
        ({"segment_bytes": 5}, "segments of 5 bytes"),
        ({"segment_bytes": 1 << 40}, "segments of"),
    ):
        _edit(ring, RING_HEADER, **values)
        with pytest.raises(SpoolError, match=says):
            read_spools(spool)
        ring.write_bytes(whole)
    parts = sorted(spool.glob("*.part"), key=lambda p: int(p.suffixes[-2][1:]))
    parts[-2].unlink()
    with pytest.raises(SpoolError, match="missing"):
        read_spools(spool)
