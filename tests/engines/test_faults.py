"""A real engine computes the same, whatever of the plugin's allocations, system calls and mappings fails.

The calls are counted in an undisturbed run, then made to fail; `tests/recorder/engines/ggml/faults` does the
same on a host of our own, call by call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo.commands import PROGRAMS

FAULTS = Path(__file__).parents[1] / "recorder" / "engines" / "ggml" / "faults"
ENTRY = "from tapedelay.formats.cli import main; main()"
SETTINGS = {
    "two-devices": ["--devices", "2", "--profile", "cuda-like"],
    "tap-and-plan": ["--tap", "--delays", "2nd copy on TAPE0 +1ms before_start", "--allow-unmatched"],
    "ring": ["--last", "500"],
}
# In make test-engines: what takes the most away, and one of each kind.
FEW = {
    "two-devices": [
        "malloc:1+",
        "posix_memalign:0.5",
        "realloc:0.3+",
        "pthread_create:1+",
        "mmap:1",
        "open:1",
    ],
    "tap-and-plan": ["*:0.3+", "write:0.5+"],
    "ring": ["*:0.6+", "mmap:0.9+"],
}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("injection", FAULTS / "injection.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["injection"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


injection = _load()


@dataclass
class Run:
    """What one recording came to."""

    fault: Any
    ended: Any
    answer: tuple[Any, ...]
    report: dict[str, Any]
    notes: list[str]


@dataclass
class Lab:
    """Records the tiny model under a setting, with a fault."""

    injector: Any
    program: list[str]
    folder: Path

    def run(self, setting: str, fault: Any = None) -> Run:
        folder = self.folder / f"{setting}-{str(fault).replace('*', 'all')}"
        folder.mkdir()
        answer, tape = folder / "answer", folder / "run.tape"
        inner = 'exec "$@" > "$0"'  # stdout of `record` is its report
        words = [sys.executable, "-c", ENTRY, "record", "--json", "-o", tape, *SETTINGS[setting], "--"]
        ended = self.injector.run(
            [*words, "sh", "-c", inner, answer, *self.program], folder / "counts", fault, timeout_s=120
        )
        lines = answer.read_text().splitlines() if answer.exists() else []
        assert lines, f"{setting}, {fault}: {ended.code} {ended.out} {ended.err}"
        value = json.loads(lines[-1])
        notes = list(load_tape(tape).manifest.notes) if tape.exists() else []
        report = json.loads(ended.out.strip().splitlines()[-1])
        shutil.rmtree(folder)
        return Run(fault, ended, (value["tokens"], value["logits_sha256"]), report, notes)


@pytest.fixture(scope="module")
def lab(
    newest: dict[str, str],
    tiny_model: Path,
    compiled: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Lab:
    folder = tmp_path_factory.mktemp("faults")
    library = compiled("faults.so", "-std=gnu11", "-O2", "-fPIC", "-shared", FAULTS / "faults.c", "-ldl")
    program = [
        sys.executable, str(PROGRAMS / "llama_library.py"), "--package", "xllamacpp",
        "--model", str(tiny_model), "--prompt-tokens", "40", "--n-predict", "4", "--gpu-layers", "99",
    ]  # fmt: skip
    return Lab(injection.Injector(library, {**os.environ, **newest}), program, folder)


def place(text: str, calls: dict[str, int]) -> Any:
    """Return the fault that ``FUNCTION:PLACE[+]`` names; a place below 1 is a part of all calls."""
    function, _, where = text.partition(":")
    total = sum(n for f, n in calls.items() if function in (f, "*") and f != "device_memory")
    value = float(where.rstrip("+"))
    return injection.Fault(
        function, max(1, int(value * total) if value < 1 else int(value)), where.endswith("+")
    )


def judge(run: Run, reference: Run) -> list[str]:
    """Return in what a run is not as it has to be."""
    found = []
    if run.answer != reference.answer:
        found.append(f"the engine answered {run.answer}")
    said = [line for line in run.ended.said if "TAPE" in line or "recording" in line or "memory" in line]
    if len(said) > (2 if run.fault.function == "*" else 1) or len(set(said)) < len(said):
        found.append(f"said {said}")
    if run.report["command_exit_code"]:
        found.append(f"the command ended with {run.report['command_exit_code']}: {run.ended.err[-500:]}")
    if any("recording stopped" in s or "out of memory" in s for s in said):
        if run.fault.function == "open" and run.fault.for_ever:
            return found  # where no file can be made, nobody can be told but on stderr
        texts = [f["found"] for f in run.report["faults"]]
        if run.report["exit_code"] != 5 or not any("recording stopped early" in t for t in texts):
            found.append(f"said {said}, yet record reports {run.report}")
        if run.report["tape"] and not any(n.startswith("recording stopped early") for n in run.notes):
            found.append(f"the tape does not say why: {run.notes}")
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_engine_answers_the_same_whatever_fails(lab: Lab, setting: str) -> None:
    reference = lab.run(setting)
    assert reference.report["exit_code"] == 0, reference.report
    assert reference.report["computes"]
    calls = reference.ended.calls
    names = FEW[setting]
    if os.environ.get("TAPEDELAY_SOAK"):
        names = [
            f"{f}:{p}{e}"
            for f in (*calls, "*")
            if f != "device_memory"
            for p in (1, 0.5, 0.9)
            for e in ("", "+")
        ]
    runs = [lab.run(setting, place(name, calls)) for name in names]
    wrong = [f"{run.fault}: {problem}" for run in runs for problem in judge(run, reference)]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(runs)} faults", *wrong[:20]])
    assert sum(bool(run.ended.failed) for run in runs) > len(runs) * 0.6
