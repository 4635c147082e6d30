"""A tape of a real run holds nothing of what was asked, answered, or where it ran."""

from __future__ import annotations

import getpass
import json
import platform
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tapedelay.recorder.demo.commands import prompt_program, record_arguments, record_program

MARKERS = {
    "prompt": "zanzibarprompt",
    "path": "zanzibarpath",
    "environment": "zanzibarenv",
    "out": "zanzibarout",
}


def decompressed(tape: Path) -> bytes:
    """Return every byte of the tape, the tables without compression."""
    everything = []
    for path in sorted(tape.rglob("*")):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        everything.append(raw)
        if path.suffix in {".arrow", ".feather"}:
            with pa.ipc.open_file(pa.BufferReader(raw)) as reader:
                table = reader.read_all()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            everything.append(sink.getvalue().to_pybytes())
    return b"\0".join(everything)


@pytest.fixture(scope="module")
def run(
    newest: dict[str, str], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bytes, dict[str, Any]]:
    folder = tmp_path_factory.mktemp(MARKERS["path"])
    model = folder / f"{MARKERS['path']}.gguf"
    shutil.copyfile(tiny_model, model)
    tape = folder / f"{MARKERS['out']}.tape"
    program = prompt_program(model, "--prompt", f"{MARKERS['prompt']} w1 w2 w3 w4", "--n-predict", "12")
    environment = {
        **newest,
        "GGML_MARKER": MARKERS["environment"],
        "LLAMA_MARKER": MARKERS["environment"],
    }
    recording = record_program(record_arguments(tape, program), environment)
    return decompressed(tape), recording.answer


def test_the_search_sees_what_is_there(run: tuple[bytes, dict[str, Any]]) -> None:
    tape, _ = run
    assert b"TAPE0" in tape
    assert b"input_embed" in tape


@pytest.mark.parametrize("what", sorted(MARKERS))
def test_no_marker_is_in_the_tape(what: str, run: tuple[bytes, dict[str, Any]]) -> None:
    tape, _ = run
    assert MARKERS[what].encode() not in tape.lower()
    assert MARKERS[what].encode("utf-16-le") not in tape.lower()


def test_no_answer_is_in_the_tape(run: tuple[bytes, dict[str, Any]]) -> None:
    tape, answer = run
    assert answer["text"].strip().encode() not in tape
    tokens = answer["tokens"][:4]
    for layout in ("<4i", "<4q", "<4H"):
        assert struct.pack(layout, *tokens) not in tape
    assert json.dumps(tokens)[1:-1].encode() not in tape


def test_no_host_or_user_is_in_the_tape(run: tuple[bytes, dict[str, Any]]) -> None:
    tape, _ = run
    for word in (platform.node(), str(Path.home()), getpass.getuser()):
        # short words ("root") occur in names that have nothing to do with the user
        if len(word) > 5:
            assert word.encode() not in tape, word
