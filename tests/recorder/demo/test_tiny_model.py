"""The tiny model: a valid GGUF file, the same in every run."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tapedelay.recorder.demo.tiny_model import TinyModel, write_tiny_model


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    first = write_tiny_model(tmp_path / "a.gguf").read_bytes()
    assert write_tiny_model(tmp_path / "b.gguf").read_bytes() == first
    assert write_tiny_model(tmp_path / "c.gguf", TinyModel(seed=8)).read_bytes() != first
    assert 11_000_000 < len(first) < 13_000_000


def test_the_header_counts_what_follows_and_tensors_fill_the_file(tmp_path: Path) -> None:
    data = write_tiny_model(tmp_path / "a.gguf").read_bytes()
    magic, version, tensors, settings = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    assert data.count(b"tokenizer.ggml.") == 9
    assert data.count(b".weight") + data.count(b".ssm_dt.bias") + data.count(b".ssm_a") >= tensors
    assert settings == data[: data.index(b"token_embd.weight")].count(b"qwen35.") + 2 + 9
    # the last tensor is blk.3.ffn_up.weight: its end is the end of the file
    at = data.index(b"blk.3.ffn_up.weight") + len("blk.3.ffn_up.weight")
    dimensions, inputs, outputs, kind, offset = struct.unpack_from("<IQQIQ", data, at)
    assert (dimensions, inputs, outputs, kind) == (2, 256, 512, 0)
    head_bytes = at + struct.calcsize("<IQQIQ")
    head_bytes += -head_bytes % 32
    assert head_bytes + offset + 4 * inputs * outputs == len(data)


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_tiny_model(tmp_path / "taken")  # a folder cannot be replaced by a file
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
