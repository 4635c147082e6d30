"""The spool writer against disks, limits, forks and kills: the real code, driven by a small program."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.layout import HEADER, RECORD, Kind
from tapedelay.recorder.engines.ggml.spool import read_spools


def run(driver: Path, mode: str, spool: Path, *numbers: int) -> subprocess.CompletedProcess[str]:
    command = [str(driver), mode, str(spool), *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout
    return done


def only(spool: Path) -> Spool:
    (one,) = read_spools(spool)
    return one


def messages(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("tapedelay: ")]


# --- what is written --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 62, 63, 64, 8190, 8191, 8192, 60_000])
def test_every_record_of_a_thread_is_there_in_order(driver: Path, spool: Path, count: int) -> None:
    done = run(driver, "numbers", spool, count)
    one = only(spool)
    assert messages(done) == []
    assert (one.ended, one.failed, one.lost, one.torn) == (True, False, 0, False)
    assert one.records["a"].tolist() == list(range(count))
    assert one.records["b"].tolist() == [i ^ 0x5555 for i in range(count)]
    assert one.records["c"].tolist() == [i + 7 for i in range(count)]
    assert one.records["d"].tolist() == list(range(count))
    assert set(one.records["kind"].tolist()) <= {int(Kind.SYNC)}
    assert one.threads == (1 if count else 0)
    assert np.all(np.diff(one.slots) == 1)  # one thread leaves no holes
    assert np.all(np.diff(one.records["issue_ns"].astype(np.int64)) >= 0)


def test_threads_take_chunks_of_their_own(driver: Path, spool: Path) -> None:
    run(driver, "threads", spool, 3000, 6)
    one = only(spool)
    assert one.lost == 0
    assert one.threads == 6
    for ordinal in range(6):
        mine = one.records[one.records["thread"] == ordinal]
        slots = one.slots[one.records["thread"] == ordinal]
        assert (mine["a"] & 0xFFFFFFFF).tolist() == list(range(3000))
        assert len(set((mine["a"] >> 32).tolist())) == 1
        # a chunk is a page of the file, and belongs to one thread
        pages = set(((slots + 1) // 64).tolist())
        others = set(((one.slots[one.records["thread"] != ordinal] + 1) // 64).tolist())
        assert not pages & others


def test_a_declined_call_gives_its_slot_back_or_leaves_a_hole(driver: Path, spool: Path) -> None:
    run(driver, "cancel", spool)
    one = only(spool)
    assert one.records["a"].tolist() == [1, 2, 3]
    assert one.slots.tolist() == [0, 2, 3]
    assert set(one.records["kind"].tolist()) == {int(Kind.SYNC)}


def test_a_definition_that_is_larger_than_a_page_is_whole(driver: Path, spool: Path) -> None:
    run(driver, "definitions", spool, 50, 4096)
    one = only(spool)
    assert [len(n) for n in one.names] == [4096] * 50
    assert one.records["name"].tolist() == list(range(50))


# --- no room ----------------------------------------------------------------------------------------------


def test_a_burst_beyond_the_room_is_counted_and_never_waits(driver: Path, spool: Path) -> None:
    count = 2_000_000
    begin = time.monotonic()
    run(driver, "overflow", spool, count)
    one = only(spool)
    assert one.lost > 0
    assert not one.failed
    assert one.recorded + one.lost == count
    gaps = one.records[one.records["kind"] == Kind.GAP]
    kept = one.records["a"][one.records["kind"] != Kind.GAP].astype(np.int64)
    # each gap says how many numbers are missing where it stands, but for the last one
    missing = np.diff(kept) - 1
    assert gaps["a"].tolist() == missing[missing > 0].tolist()
    assert one.lost == gaps["a"].sum() + count - 1 - kept[-1]
    assert np.all(gaps["issue_ns"] <= gaps["end_ns"])
    assert np.all(np.diff(kept) > 0)
    assert kept[0] == 0
    assert time.monotonic() - begin < 30


def test_a_file_size_limit_ends_the_recording_not_the_engine(driver: Path, spool: Path) -> None:
    count, limit = 100_000, 1_600_000
    done = run(driver, "limited", spool, count, limit)
    one = only(spool)
    assert one.failed
    assert one.ended
    assert len(one.records) + one.lost == count
    assert one.records["a"].tolist() == list(range(len(one.records)))  # what fits is the beginning
    assert len(one.records) == 3 * (512 << 10) // 64 - 1
    (line,) = messages(done)
    assert "TAPEDELAY_SPOOL" in line
    assert os.strerror(27) in line  # EFBIG


def test_a_limit_below_the_first_segment_switches_recording_off(driver: Path, spool: Path) -> None:
    done = run(driver, "limited", spool, 1000, 100_000)
    assert "off" in done.stdout
    (one,) = read_spools(spool)
    assert (len(one.records), one.failed) == (0, True)
    assert len(messages(done)) == 1


def _in_small_tmpfs(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script with ``$1`` = a fresh 1 MiB tmpfs in a mount namespace of its own, or skip."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare on this machine")
    flags = ["-m"] if os.geteuid() == 0 else ["-rm"]
    probe = [unshare, *flags, "sh", "-c", "mount -t tmpfs -o size=1m none /mnt"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {tried.stderr.strip()}")
    mount = 'mount -t tmpfs -o size=1m,${MODE:-rw} none "$1"\n'
    command = [unshare, *flags, "sh", "-ec", mount + script, "sh", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_full_disk_ends_the_recording_not_the_engine(driver: Path, spool: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    done = _in_small_tmpfs('"$2" slow "$1" 100000; cp "$1"/* "$3"', str(spool), str(driver), str(kept))
    assert done.returncode == 0, done.stderr  # no SIGBUS
    assert "alive" in done.stdout
    assert len(messages(done)) == 1
    assert os.strerror(28) in messages(done)[0]  # ENOSPC
    one = only(kept)
    assert one.failed
    assert len(one.records) + one.lost == 100_000
    assert one.records["a"].tolist() == list(range(len(one.records)))
    assert len(one.records) > 0


def test_a_disk_full_of_definitions_stops_records_too(driver: Path, spool: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    done = _in_small_tmpfs(
        '"$2" definitions "$1" 400 4096; cp "$1"/* "$3"', str(spool), str(driver), str(kept)
    )
    assert done.returncode == 0, done.stderr
    assert "alive" in done.stdout
    assert len(messages(done)) == 1
    one = only(kept)
    assert one.failed
    assert one.names
    assert not one.torn  # a frame that did not fit is taken back
    # no record names what was not written, and none came after
    assert one.records["name"].tolist() == list(range(len(one.names)))
    assert len(one.records) + one.lost == 400


@pytest.mark.parametrize("kind", ["missing", "file", "read-only"])
def test_a_place_that_cannot_be_written_is_said_once(driver: Path, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("")
    if kind == "read-only":
        place.mkdir()
        os.environ["MODE"] = "ro"
        try:
            done = _in_small_tmpfs('"$2" numbers "$1" 1000', str(place), str(driver))
        finally:
            del os.environ["MODE"]
    else:
        done = run(driver, "numbers", place, 1000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["off", "alive"]
    (line,) = messages(done)
    assert "TAPEDELAY_SPOOL" in line


# --- forks and kills --------------------------------------------------------------------------------------


def test_a_forked_child_writes_a_spool_of_its_own(driver: Path, spool: Path) -> None:
    run(driver, "fork", spool)
    parent, child, grandchild = sorted(read_spools(spool), key=lambda s: int(s.records["a"][0]))
    assert parent.records["a"].tolist() == [1, 5]
    assert child.records["a"].tolist() == [2, 4]
    assert grandchild.records["a"].tolist() == [3]
    assert (parent.names, child.names, grandchild.names) == (
        ["before"],
        ["before", "child"],
        ["before", "child"],
    )
    assert all(s.ended and s.lost == 0 for s in (parent, child, grandchild))
    # ordinals go on: a thread of the child is none of the parent's
    assert not set(parent.records["thread"].tolist()) & set(child.records["thread"].tolist())


def test_a_killed_process_leaves_every_record_it_issued(driver: Path, spool: Path) -> None:
    for after_s in (0.01, 0.05, 0.2):
        with subprocess.Popen(
            [str(driver), "forever", str(spool)], stdout=subprocess.PIPE, bufsize=0
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            told = bytearray(process.stdout.read(8))
            end = time.monotonic() + after_s
            while time.monotonic() < end:
                told += os.read(process.stdout.fileno(), 1 << 16)
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read()
        whole = len(told) // 8
        (last,) = struct.unpack_from("<Q", told, 8 * (whole - 1))
        one = max(read_spools(spool), key=lambda s: s.mono_ns)
        assert not one.ended
        assert last == whole - 1
        # told means recorded; the record of the number that was not told any more may be there too
        assert one.records["a"].tolist()[:whole] == list(range(whole))
        assert whole <= len(one.records) <= whole + 1


def test_a_call_that_never_returned_is_there_without_an_end(driver: Path, spool: Path) -> None:
    with subprocess.Popen([str(driver), "blocked", str(spool)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert process.stdout.readline() == "issued\n"
        process.kill()
    one = only(spool)
    assert one.records[["a", "queue", "end_ns"]].tolist() == [(42, 3, 0)]


def test_the_header_says_when_and_who(driver: Path, spool: Path) -> None:
    run(driver, "numbers", spool, 10)
    (path,) = spool.glob("*.rec")
    header = np.fromfile(path, HEADER, count=1)[0]
    pid, start_ns = map(int, path.stem.split("-"))
    assert int(header["pid"]) == pid
    assert 0 <= int(header["mono_ns"]) - start_ns < 10**9
    assert abs(int(header["wall_ns"]) - time.time_ns()) < 60 * 10**9
    assert path.stat().st_size % RECORD.itemsize == 0
    assert path.stat().st_mode & 0o077 == 0
