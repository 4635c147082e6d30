"""Every allocation, system call and mapping of the plugin fails in turn, on the fake host.

The program's output must not change, the reason is said once, and what was recorded up to there can be
collected. A bounded sample here; every single call in soak.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tapedelay.formats.profiles import BUILTIN
from tapedelay.recorder import plugin
from tapedelay.recorder.delays.plans import engine_plan
from tapedelay.recorder.delays.spool import leave_plan
from tapedelay.recorder.engines.ggml.collect import collect_directory
from tapedelay.recorder.engines.ggml.spool import read_spools

HERE = Path(__file__).parent
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
HOST = HERE.parent / "native"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


injection = _load("injection")
Fault = injection.Fault

REFUSES = {"dlopen", "dlsym", "dladdr", "dl_iterate_phdr"}
"""Where these fail, the engine's library is not found: the plugin may stay out."""


@dataclass(frozen=True)
class Setting:
    """How the workload runs: its variables, delay lines of its plan."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    plan: tuple[str, ...] = ()


SETTINGS = [
    Setting("recorded"),
    Setting("unrecorded", {"TAPEDELAY_SPOOL": ""}),
    Setting("synchronous", {"TAPEDELAY_SYNC": "1"}),
    Setting("ring", {"TAPEDELAY_RING_RECORDS": "2000"}),
    Setting(
        "delayed", {}, ("3rd copy on TAPE0 +200us before_start", "2nd compute on TAPE1 +200us after_end")
    ),
]


@dataclass
class Lab:
    """The compiled program and library, and runs of them."""

    injector: Any
    workload: Path
    folder: Path

    def run(self, setting: Setting, fault: Any = None) -> Outcome:
        folder = self.folder / f"{setting.name}-{str(fault).replace('*', 'all')}"
        spool = folder / "spool"
        spool.mkdir(parents=True)
        variables = {
            "TAPEDELAY_SPOOL": str(spool), "TAPEDELAY_DEVICES": "2", "TAPEDELAY_PROFILE": "full-async",
            "TAPEDELAY_PROFILE_DATA": BUILTIN["full-async"].device_data(),
            "CHILD_STDERR": str(folder / "child"),
        }  # fmt: skip
        if setting.plan:
            variables |= leave_plan(engine_plan(list(setting.plan)), spool)
        try:
            ended = self.injector.run(
                [self.workload, plugin.ggml_plugin()],
                folder / "counts",
                fault,
                **(variables | setting.variables),
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"{setting.name}, {fault}: it hangs")
        child = folder / "child"
        said = child.read_text().splitlines() if child.exists() else []
        spools = read_spools(spool)
        complete = all(s.complete for s in spools) if spools else None
        notes = collect_directory(spool).manifest.notes if complete is False else ()
        shutil.rmtree(folder)
        return Outcome(
            setting, fault, ended, said, complete, [n for n in notes if n.startswith("recording stopped")]
        )

    def reference(self, setting: Setting) -> Outcome:
        """Return an undisturbed run, which says nothing and is recorded completely."""
        one = self.run(setting)
        assert one.ended.code == 0, one.ended.err
        assert one.ended.err == ""
        assert one.child == []
        assert one.complete is (None if "TAPEDELAY_SPOOL" in setting.variables else True)
        assert "refused" not in one.ended.out
        return one


@dataclass
class Outcome:
    """What became of one run: the program, its forked child's words, its tape."""

    setting: Setting
    fault: Any
    ended: Any
    child: list[str]
    complete: bool | None
    stopped: list[str]

    def problems(self, reference: Outcome) -> list[str]:
        """Return in what this run is not as it has to be."""
        found = []
        fails, said = self.fault.function if self.ended.failed else "", self.ended.said
        if self.ended.code:
            found.append(f"exit code {self.ended.code}: {self.ended.err[-300:]}")
        # A plan that cannot be read is told beside a recording that cannot be written.
        reasons = 1 if self.fault.function != "*" and not self.setting.plan else 2
        if max(len(said), len(self.child)) > reasons or len(set(said)) < len(said):
            found.append(f"said {said + self.child}")
        if len(said) != len(self.ended.err.splitlines()):
            found.append(f"stderr: {self.ended.err}")
        if fails == "device_memory":  # the engine's own affair
            if not reference.ended.out.startswith(self.ended.out.partition("no device memory")[0]) or said:
                found.append(f"output changed: {self.ended.out[-200:]}")
            return found
        if self.ended.out != reference.ended.out and not (
            self.ended.out == "refused\n" and said and (fails in REFUSES or self.fault.function == "*")
        ):
            found.append(f"output changed: {self.ended.out[-200:]}")
        if self.complete is False and not (said or self.child):
            found.append("the recording is not complete and nothing was said")
        if self.complete and any("recording stopped" in s or "out of memory" in s for s in said):
            found.append(f"said {said}, yet the tape is complete")
        if self.stopped and self.complete:
            found.append(f"complete, yet {self.stopped}")
        return found


@pytest.fixture(scope="module")
def lab(compiled: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    c_flags = ["-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    flags = ["-std=c++17", "-O1", "-pthread", f"-I{NATIVE}", f"-I{HOST}", "-rdynamic"]
    library = compiled("faults.so", *c_flags, HERE / "faults.c", "-ldl")
    workload = compiled("workload", *flags, HOST / "fake_host.cpp", HERE / "workload.cpp", "-ldl")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
    return Lab(injection.Injector(library, clean), workload, tmp_path_factory.mktemp("runs"))


def check(lab: Lab, setting: Setting, faults: list[Any], reference: Outcome) -> None:
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda fault: lab.run(setting, fault), faults))
    wrong = [f"{o.fault}: {problem}" for o in outcomes for problem in o.problems(reference)]
    assert not wrong, "\n".join([f"{setting.name}: {len(wrong)} of {len(faults)} faults", *wrong[:20]])
    hit = sum(bool(o.ended.failed) for o in outcomes)
    assert hit > len(faults) * 0.6, "most faults must have come to pass"


def sample(calls: dict[str, int]) -> list[Any]:
    """Return one fault of every function that is called: its first call, one in the middle, its last."""
    return [
        Fault(function, (1, 1 + calls[function] // 2, calls[function])[i % 3], for_ever=i % 2 == 1)
        for i, function in enumerate(sorted(calls))
    ]


# --- the harness itself --------------------------------------------------------------------------------


def test_every_import_of_the_plugin_has_a_rule() -> None:
    known = injection.injected() | {n for names in injection.CANNOT_FAIL.values() for n in names.split()}
    unknown = injection.imports(plugin.ggml_plugin()) - known
    assert not unknown, (
        f"make them fail in faults.c, or say in injection.py why they cannot: {sorted(unknown)}"
    )
    assert not injection.injected() & {n for names in injection.CANNOT_FAIL.values() for n in names.split()}


def test_an_import_without_a_rule_is_found(compiled: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "new.c"
    source.write_text("#include <sys/mman.h>\nint f(void *p) { return mlock(p, 1); }\n")
    library = compiled("new.so", "-shared", "-fPIC", source)
    assert "mlock" in injection.imports(library)
    assert "mlock" not in injection.injected()


def test_only_calls_of_the_plugin_fail(lab: Lab) -> None:
    """The host allocates too: what it asks for must be given, or the harness would find faults of its own."""
    one = lab.run(Setting("recorded"), Fault("malloc", 1, for_ever=True))
    assert one.ended.failed["malloc"] == one.ended.calls["malloc"] > 100
    assert one.ended.code == 0
    assert one.stopped == ["recording stopped early: the process ran out of memory"]


# --- the plugin ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_a_sample_of_faults_changes_nothing(lab: Lab, setting: Setting) -> None:
    reference = lab.reference(setting)
    faults = sample(reference.ended.calls)
    if setting.name != "recorded":  # the functions in turn, not all of them with every setting
        faults = faults[SETTINGS.index(setting) :: 6]
    total = sum(n for function, n in reference.ended.calls.items() if function != "device_memory")
    everything = [
        Fault("*", k, for_ever=True) for k in (150, total - 250)
    ]  # at the start; about where it forks
    check(lab, setting, [*faults, *everything], reference)


@pytest.mark.soak
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_each_call_fails_once_and_for_ever(lab: Lab, setting: Setting) -> None:
    reference = lab.reference(setting)
    limit = 500 if setting.name == "recorded" else 12
    faults = []
    for function, count in reference.ended.calls.items():
        step = max(1, count // limit)
        for k in range(1, count + 1, step):
            faults += [Fault(function, k), Fault(function, k, for_ever=True)]
    total = sum(reference.ended.calls.values())
    faults += [Fault("*", k, for_ever=True) for k in range(1, total, max(1, total // 100))]
    check(lab, setting, faults, reference)
