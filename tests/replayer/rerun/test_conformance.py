"""The conformance kit for engine adapters: the toy keeps every promise, a broken one is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapedelay.replayer.rerun.conformance import Subject, cases, run_all
from tapedelay.replayer.rerun.protocol import Driver

from .broken_drivers import BROKEN, CONFIG, Altered
from .toy import ToyDriver

FULL = {**CONFIG, "sharing": True, "priority": True}


def subject(driver: Driver, config: dict[str, Any]) -> Subject:
    return Subject(
        driver, config, tight={**config, "kv_units": 11}, session=("session",), blocked=("blocked",)
    )


def test_the_toy_keeps_every_promise() -> None:
    report = run_all(subject(ToyDriver(), FULL))
    assert report.passed, report.text()
    # The toy has every input; the other configurations have what this one has not.
    assert {r.case.name for r in report.of("skipped")} == {"driver/refuses"}


@pytest.mark.parametrize("change", [{"depth": 1}, {"slots": 4, "priority": True}])
def test_the_toy_keeps_every_promise_under_other_configurations(change: dict[str, Any]) -> None:
    report = run_all(subject(ToyDriver(), {**CONFIG, **change}))
    assert report.passed, report.text()
    assert len(report.of("passed")) > 40


def test_an_adapter_that_is_altered_in_nothing_passes() -> None:
    report = run_all(subject(Altered(), FULL))
    assert report.passed, report.text()


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_caught(what: str) -> None:
    driver, case = BROKEN[what]
    report = run_all(subject(driver, FULL), only=case)
    assert [r.case.name for r in report.of("failed")] == [case], report.text(every=True)
    assert report.of("failed")[0].why in report.text()
    assert not report.passed


def test_every_promise_has_an_adapter_that_breaks_it() -> None:
    names = [c.name for c in cases()]
    assert len(set(names)) == len(names)
    assert all(c.promise for c in cases())
    assert {case for _, case in BROKEN.values()} == set(names)


def kit(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tapedelay.replayer.rerun.conformance", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parent,
    )


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(FULL))
    flags = ["--session", "session", "--blocked", "blocked"]
    done = kit("toy:ToyDriver", "--config", str(config), *flags, "--only", "[is]*", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert report["engine"] == "toy"
    assert report["counts"]["failed"] == 0
    assert report["counts"]["passed"] > 15
    config.write_text("[1")
    done = kit("toy:ToyDriver", "--config", str(config))
    assert done.returncode == 2
    assert "no JSON" in done.stderr
    done = kit("nobody", "--config", str(config))
    assert done.returncode == 4
    assert "nobody" in done.stderr
