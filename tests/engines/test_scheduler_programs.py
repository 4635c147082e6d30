"""The programs that the documentation names for a first recording say how they are used."""

from __future__ import annotations

import subprocess

import pytest

from .scheduler_engines import PROGRAMS, TIMEOUT_S, engine_python, environment


@pytest.mark.parametrize(
    ("engine", "program", "words", "said"),
    [
        ("vllm", "vllm_llm.py", (), "required: FOLDER"),
        ("deepinfer", "deepinfer_engine.py", (), "required: configuration"),
        ("deepinfer", "deepinfer_engine.py", ("nothing",), "chunked-states"),
        ("transformers", "transformers_serve.py", ("nothing",), "unshared"),
    ],
)
def test_usage(engine: str, program: str, words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [engine_python(engine), str(PROGRAMS / program), *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"usage: {program} ")
    assert said in done.stderr
