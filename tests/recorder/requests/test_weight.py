"""Small files that would take much memory are refused before they do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.recorder.requests.layout import FRAME_BYTES_MAX
from tapedelay.recorder.requests.weight import weight_of

from .conftest import SCHEDULER, an_input, frame, head, raw_frame

PEAK_BYTES_MAX = 300_000_000
ROOM = FRAME_BYTES_MAX - 1000

COLLECT = """
import sys
from pathlib import Path
from tapedelay.formats.errors import SpoolError
from tapedelay.recorder.spools import collect_all
try:
    tape = collect_all(Path(sys.argv[1]))
    print(tape.rows("requests"), tape.rows("blocks"))
except SpoolError as e:
    print(e.found)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def array(count: int, items: bytes = b"") -> bytes:
    return b"\xdd" + count.to_bytes(4) + items


TOO_MUCH = "that takes more than 128 MiB"
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty lists": (lambda: array(ROOM, b"\x90" * ROOM), TOO_MUCH),
    "maps": (lambda: array(ROOM // 3, b"\x81\0\0" * (ROOM // 3)), TOO_MUCH),
    "texts": (lambda: array(ROOM // 3, b"\xa2ab" * (ROOM // 3)), TOO_MUCH),
    "claims": (lambda: array(ROOM) * 900 + bytes(ROOM // 2), TOO_MUCH),
    "longer than any": (lambda: array(1 << 26, b"\x90" * (1 << 26)), "a frame of 67108869 bytes"),
    "units": (lambda: packed(events=[[2, 0, 0, 0, *range(70_000, 370_000)]]), "1 300000"),
    "requests": (lambda: packed(new=[[n, -1, 8, *[None] * 5] for n in range(150_000)]), "150000 0"),
}


def packed(**fields: Any) -> bytes:
    return bytes(msgpack.packb(an_input(**fields)))


@pytest.mark.parametrize("name", BOMBS)
def test_collecting_takes_little_memory_whatever_a_frame_holds(tmp_path: Path, name: str) -> None:
    make, words = BOMBS[name]
    data = head() + frame(*SCHEDULER) + raw_frame(make())
    (tmp_path / "requests-4711-0.frames").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found, peak_kb = done.stdout.splitlines()
    assert words in found
    assert int(peak_kb) * 1024 < PEAK_BYTES_MAX


ITEMS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers(-(1 << 63), 1 << 63) | st.text(), inner),
    max_leaves=30,
)


def real_bytes(value: object) -> int:
    """Return what a value takes beside its place; small numbers and one letter are there once for all."""
    if value is None or isinstance(value, bool) or (isinstance(value, int) and -5 <= value <= 256):
        return 0
    if isinstance(value, list):
        return sys.getsizeof([None] * len(value)) + sum(map(real_bytes, value))
    if isinstance(value, dict):
        inside = sum(real_bytes(k) + real_bytes(v) for k, v in value.items())
        return (64 + 100 * len(value) if value else 64) + inside
    return min(sys.getsizeof(value), 10_000)


@settings(max_examples=60)
@given(ITEMS)
def test_the_weight_is_that_of_what_is_unpacked(value: object) -> None:
    data = bytes(msgpack.packb(value))
    assert weight_of(data, 1 << 40) + 4 * len(data) >= real_bytes(value) - 64


@given(st.binary())
def test_what_is_no_msgpack_has_a_weight_too(data: bytes) -> None:
    assert weight_of(data, 1 << 40) >= 0


def test_a_heavy_one_is_not_walked_to_its_end() -> None:
    assert weight_of(b"\x90" * 1000, 100) < 200
