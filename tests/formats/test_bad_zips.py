"""Zip files that lie: names, kinds, sizes, overlaps."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import (
    CorruptTape,
    InputError,
    NotATape,
)
from tapedelay.formats.read import open_tape

from .damage import read_all


def zip_of(tape: Path, out: Path, **kwargs: Any) -> zipfile.ZipFile:
    z = zipfile.ZipFile(out, "w", **kwargs)
    for f in sorted(tape.iterdir()):
        z.write(f, f.name)
    return z


@pytest.mark.parametrize(
    "name",
    [
        "../ops.arrow",
        "/etc/passwd",
        "a/ops.arrow",
        "..\\ops.arrow",
        "C:\\x.arrow",
        "notes.txt",
        "x/",
        "OPS.arrow",
        "ops.arrow ",
    ],
)
def test_zip_member_names(written: Path, tmp_path: Path, name: str) -> None:
    with zip_of(written, tmp_path / "a.zip") as z:
        z.writestr(name, b"x")
    with pytest.raises(CorruptTape, match="a member"):
        open_tape(tmp_path / "a.zip")
    assert not (tmp_path.parent / "ops.arrow").exists()


def test_zip_kinds(written: Path, tmp_path: Path) -> None:
    zip_of(written, tmp_path / "good.zip").close()
    read_all(tmp_path / "good.zip")
    zip_of(written, tmp_path / "packed.zip", compression=zipfile.ZIP_DEFLATED).close()
    with pytest.raises(CorruptTape, match="compressed"):
        open_tape(tmp_path / "packed.zip")
    with zip_of(written, tmp_path / "twice.zip") as z, pytest.warns(UserWarning, match="Duplicate"):
        z.writestr("ops.arrow", b"x")
    with pytest.raises(CorruptTape, match="two members"):
        open_tape(tmp_path / "twice.zip")
    with zip_of(written, tmp_path / "comment.zip") as z:
        z.comment = b"hello"
    with pytest.raises(NotATape):
        open_tape(tmp_path / "comment.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as z:
        z.writestr("ops.arrow", b"x")
    with pytest.raises(NotATape, match=r"without manifest\.json"):
        open_tape(tmp_path / "other.zip")
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as z:
        z.writestr("a/b.py", b"x")
    with pytest.raises(InputError):
        open_tape(tmp_path / "wheel.zip")
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as z:
        for i in range(2000):
            z.writestr(f"t{i}.arrow", b"")
    with pytest.raises(CorruptTape, match="member"):
        open_tape(tmp_path / "many.zip")
    with zipfile.ZipFile(tmp_path / "long.zip", "w") as z:
        for i in range(4000):
            z.writestr(f"t{i:050}.arrow", b"")
    with pytest.raises(CorruptTape, match="member list"):
        open_tape(tmp_path / "long.zip")


@pytest.mark.parametrize("where", ["central", "local", "both"])
@pytest.mark.parametrize("size", [0, 1, 5, 1 << 20, 0xFFFFFFFE])
def test_zip_sizes_that_lie(written: Path, tmp_path: Path, where: str, size: int) -> None:
    zip_of(written, tmp_path / "a.zip").close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = {"local": data.index(b"ops.arrow") - 30 + 18, "central": data.rindex(b"ops.arrow") - 46 + 20}
    for place, offset in at.items():
        if where in (place, "both"):
            data[offset : offset + 8] = size.to_bytes(4, "little") * 2
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError):
        read_all(tmp_path / "a.zip")


def test_zip_members_on_top_of_each_other(written: Path, tmp_path: Path) -> None:
    """Every member name points at one body: a small file must not be read many times."""
    zip_of(written, tmp_path / "a.zip").close()
    data = bytearray((tmp_path / "a.zip").read_bytes())
    first = data.index(b"accesses.arrow") - 30
    at = data.rindex(b"ops.arrow") - 46 + 42
    data[at : at + 4] = first.to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError):
        read_all(tmp_path / "a.zip")
