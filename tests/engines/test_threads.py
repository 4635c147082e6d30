"""A model that one thread loads, a context that another one uses, a third one that frees it: all legitimate.

How the threads of the program meet is in no function table; what may be assumed about it is in
``recorder/engines/ggml/serial.py``. The names of the tests there show what may not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import record_arguments, record_program

PROGRAM = Path(__file__).parent / "programs" / "llama_threads.py"


@pytest.mark.parametrize(
    ("stages", "threads", "assumed"),
    [("context", 2, ("weights are loaded", "one backend object")), ("decode", 3, ("one backend object",))],
)
def test_work_that_threads_hand_over_is_clean(
    stages: str, threads: int, assumed: tuple[str, ...], tiny_model: Path, tmp_path: Path
) -> None:
    try:
        libraries = engines.npm_libraries(engines.VULKAN_FIXED)
    except InfrastructureError as error:
        pytest.skip(f"no build with shared libraries: {error.found}")
    program = [sys.executable, str(PROGRAM), stages, "--libraries", str(libraries)]
    program += ["--model", str(tiny_model), "--prompt-tokens", "100", "--kv-host"]
    recording = record_program(record_arguments(tmp_path / "a.tape", program), {})
    tape = load_tape(recording.tape)
    assert tape.table("queues").column("kind").to_pylist().count("host_thread") == threads
    notes = [n for n in tape.manifest.notes if n.startswith("assumed: ")]
    assert len(notes) == len(assumed)
    assert all(any(words in n for n in notes) for words in assumed)
    assert recording.check() == (0, [])
