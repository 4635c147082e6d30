"""The conformance kit: the built-in backends keep every promise, and a backend that breaks one is caught."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tapedelay.formats.errors import ReplayFailed
from tapedelay.formats.litmus import parse
from tapedelay.formats.validate import require_valid
from tapedelay.replayer.backends.protocol import Capabilities, Loaded, Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.conformance import Case, cases, core_cases, run_all, run_case, step_ns
from tapedelay.replayer.program import Program

from .broken_backends import BROKEN, Altered, without


def test_virtual_keeps_every_promise() -> None:
    report = run_all(VirtualBackend(), core_cases())
    assert report.passed, report.text()
    assert {r.case.name.split("/")[0] for r in report.of("skipped")} == {"pins"}
    assert len(report.of("passed")) > 100


def test_threads_keep_every_promise() -> None:
    report = run_all(ThreadsBackend(), core_cases())
    assert report.passed, report.text()
    assert not report.of("skipped")


def test_the_backend_that_is_altered_in_nothing_passes() -> None:
    report = run_all(Altered(), core_cases())
    assert report.passed, report.text()


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_caught(what: str) -> None:
    backend, only, case = BROKEN[what]
    report = run_all(backend, core_cases(), only=only)
    assert not report.passed
    assert case in {r.case.name for r in report.of("failed")}, report.text(every=True)


@pytest.mark.parametrize(("kind", "left"), [("wait", 1), ("coll", 2)])
def test_an_altered_tape_has_lost_what_it_should(kind: str, left: int) -> None:
    text = "w | kernel | s0 | | A\n1 | record | s0 | | | e\n2 | wait | s1 | | | e\nr | kernel | s1 | A | Y\n"
    if kind == "coll":
        text = (
            "w | kernel | s0 | | A\n1 | coll | s0 | | | c\n2 | coll | s1 | | | c\nr | kernel | s1 | A | Y\n"
        )
    tape = parse(text).tape()
    assert not check_tape(tape).findings
    altered = without(kind)(tape)
    assert altered.table("ops").column("kind").to_pylist().count("mark") == left
    assert [f.verdict for f in check_tape(altered).findings] == ["race"]


def test_cases_are_valid_tapes_with_names_of_their_own() -> None:
    found = list(core_cases())
    assert len({c.name for c in found}) == len(found)
    for case in found:
        require_valid(case.tape)
        assert case.promise


def test_expectations_are_those_of_check() -> None:
    """A case that has to be clean has nothing that `check` finds, one that has to be wrong has something."""
    for case in core_cases():
        # These are right by what they do in time, or by what nobody reads.
        if case.trial is not None or case.name in ("values/overwritten", "pins/right-order"):
            continue
        if case.name in ("edges/program-order-missing", "values/use-after-destroy") or case.expect == "any":
            continue
        found = check_tape(case.tape).findings
        assert bool(found) == (case.expect != "clean"), (case.name, [f.text for f in found])


def test_patterns_are_cases_too() -> None:
    found = list(cases())
    patterns = [c for c in found if c.name.startswith("patterns/")]
    assert len(patterns) > 300
    report = run_all(VirtualBackend(), patterns[::30])
    assert report.passed, report.text()


def test_a_case_that_needs_what_is_not_there_is_skipped() -> None:
    case = Case("x/y", "whatever", "a | kernel | s0 | | A\n", needs=frozenset({"pin"}))
    assert run_case(VirtualBackend(), case).state == "skipped"
    assert run_case(VirtualBackend(), case).why == "needs pin"


def test_a_backend_that_fails_fails_the_case() -> None:
    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def capabilities(self) -> Capabilities:
            return Capabilities("failing")

        def available(self) -> str:
            return ""

        def load(self, program: Program, options: Options) -> Loaded:
            raise self.error

    case = Case("x/y", "whatever", "a | kernel | s0 | | A\n")
    result = run_case(Failing(ReplayFailed("no luck")), case)
    assert result.state == "failed"
    assert result.why == "ReplayFailed: no luck"
    result = run_case(Failing(ZeroDivisionError("oops")), case)
    assert result.why == "ZeroDivisionError is no error of this package: oops"


def test_steps_are_long_against_the_resolution() -> None:
    assert step_ns(Capabilities("x", real_time=True, resolution_ns=1_000_000)) == 8_000_000
    assert step_ns(Capabilities("x")) > 1


def test_the_report_says_what_was_promised_and_what_was_found() -> None:
    backend, only, name = BROKEN["hides deadlocks"]
    report = run_all(backend, core_cases(), only=only)
    text = report.text()
    assert f"failed   {name}: rows [] never start, by the edges rows [0, 1, 2, 3]" in text
    assert "promised: Two queues that wait for each other are told." in text
    assert text.endswith("virtual: 0 passed, 4 failed, 0 skipped")
    assert report.as_dict()["counts"] == {"passed": 0, "failed": 4, "skipped": 0}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tapedelay.replayer.conformance", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command() -> None:
    done = run("virtual", "--only", "edges/event*", "--patterns", "none", "--all")
    assert done.returncode == 0
    assert "passed   edges/event-host" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed, 0 skipped")
    assert done.stderr.splitlines()[-1] == "next: tapedelay replay TAPE --backend virtual"
    done = run("virtual", "--only", "deadlocks/*", "--patterns", "none", "--json")
    assert json.loads(done.stdout)["counts"] == {"passed": 4, "failed": 0, "skipped": 0}
    done = run("nothing-of-that-name", "--patterns", "none")
    assert done.returncode == 2
    assert "virtual, threads, opencl" in done.stderr
    done = run("virtual", "--list", "--patterns", "none")
    assert "edges/event: A wait on a queue comes after the record of its event." in done.stdout
