"""Workers: a scheduler that crashes or hangs is a finding; what ends a worker from outside is none."""

from __future__ import annotations

import operator
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError, InputError, Unsupported
from tapedelay.formats.load import load_tape
from tapedelay.replayer.rerun import workers
from tapedelay.replayer.rerun.api import rerun_strict
from tapedelay.replayer.rerun.budget import budget_of
from tapedelay.replayer.rerun.campaign import Campaign
from tapedelay.replayer.rerun.crew import Crew
from tapedelay.replayer.rerun.from_tape import recording_of
from tapedelay.replayer.rerun.outcome import Outcome
from tapedelay.replayer.rerun.recipe import Aim, Recipe
from tapedelay.replayer.rerun.reducing import reduce_death
from tapedelay.replayer.rerun.scenario import Scenario
from tapedelay.replayer.rerun.violation import CRASH, HANG
from tapedelay.replayer.rerun.workers import Died, Worker

from .searching import RECORDINGS
from .taping import taped

TOY = "toy:ToyDriver"
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _toy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def worker(timeout_s: float = 30.0) -> Worker:
    return Worker(TOY, timeout_s=timeout_s)


@pytest.fixture
def opened() -> Iterator[Worker]:
    with worker() as made:
        made.start()
        yield made


def abort(phase: str, scenario: str) -> tuple[Scenario, Recipe]:
    shrink = (("kv_units", 9),) if phase == "preempted" else ()
    return RECORDINGS[scenario], Recipe(shrink=shrink, aims=(Aim("abort", phase, "output"),))


def message(recipe: Recipe, plant: str) -> dict[str, object]:
    return {"do": "recipe", "recipe": recipe.as_dict(), "plant": plant}


def died(scenario: Scenario, recipe: Recipe, plant: str, timeout_s: float = 30.0) -> Died:
    with worker(timeout_s) as made:
        made.start()
        made.ask({"do": "base", "scenario": scenario.as_dict()})
        assert not made.ask({"do": "recipe", "recipe": recipe.as_dict()})["violations"]
        with pytest.raises(Died) as e:
            made.ask(message(recipe, plant))
        return e.value


def test_a_crash_in_a_call_is_a_finding() -> None:
    found = died(*abort("preempted", "long"), "crashes").violation
    assert found is not None
    assert found.invariant == CRASH
    assert "SIGABRT" in found.words
    assert found.call > 0


def test_a_call_that_does_not_come_back_is_a_finding() -> None:
    found = died(*abort("chunk", "session"), "hangs", timeout_s=1.5).violation
    assert found is not None
    assert found.invariant == HANG
    assert found.what == "abort does not come back"


ENDS = {
    "killed": ("os.kill(os.getpid(), 9)", "SIGKILL"),
    "ended": ("os.kill(os.getpid(), 15)", "SIGTERM"),
    "left": ("sys.exit(3)", "exit code 3"),
    "grown": (
        "held = [bytearray(b'x') * (8 << 20) for _ in range(1000) if not time.sleep(0.01)]",
        "may have",
    ),
    "files closed": ("os.closerange(3, 256)", "exit code 1"),
    "disk full": (
        "raise tapedelay.formats.errors.InfrastructureError('no space is left')",
        "no space is left",
    ),
    "no memory": ("raise MemoryError", "no memory is left"),
}


@pytest.fixture(params=ENDS)
def ending(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """An engine whose process comes to an end that says nothing of its scheduler; words for it."""
    code, words = ENDS[request.param]
    (tmp_path / "ending.py").write_text(
        "import os, sys, time\nimport tapedelay.formats.errors\n"
        "from toy import ToyDriver\nfrom toy.driver import ToyEngine\n"
        "class Engine(ToyEngine):\n"
        "    def submit(self, submission):\n"
        f"        {code}\n"
        "        return super().submit(submission)\n"
        "class Ending(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        return Engine(config, tokens)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "ending:Ending", words


def test_every_other_end_is_infrastructure_in_a_strict_rerun(ending: tuple[str, str], tmp_path: Path) -> None:
    engine, words = ending
    recording = recording_of(load_tape(taped(RECORDINGS["plain"], tmp_path)))
    with pytest.raises(InfrastructureError) as e:
        rerun_strict(recording, lambda: Worker(engine, memory_bytes=200 << 20))
    assert e.value.exit_code == 5
    assert words in e.value.text()
    assert e.value.next_step


def test_every_other_end_is_infrastructure_in_a_campaign(ending: tuple[str, str]) -> None:
    engine, words = ending
    made = Campaign(
        RECORDINGS["plain"],
        lambda: Worker(engine, memory_bytes=200 << 20),
        budget=budget_of("1 runs"),
        plant_s=0.0,
    )
    out = made.run()
    assert out.verdict == "failed"
    assert not out.found
    assert words in out.troubles[0]


def test_a_scheduler_that_takes_too_long_to_build_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\nfrom toy import ToyDriver\n"
        "class Slow(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        time.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("slow:Slow", timeout_s=0.5) as made:
        made.start()
        with pytest.raises(Died, match=r"build \(call 0\) did not come back") as e:
            made.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})
        assert e.value.violation is None
        assert "--timeout" in e.value.next_step


def test_a_worker_that_is_killed_says_nothing_about_the_engine(opened: Worker) -> None:
    assert opened._process is not None
    os.kill(opened._process.pid, signal.SIGKILL)
    with pytest.raises(Died) as e:
        opened.ask({"do": "base", "scenario": RECORDINGS["plain"].as_dict()})
    assert e.value.violation is None
    assert "SIGKILL" in e.value.words


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine that takes more and more memory while something arrives."""
    (tmp_path / "growing.py").write_text(
        "import time\nfrom toy import ToyDriver\nfrom toy.driver import ToyEngine\n"
        "class Engine(ToyEngine):\n"
        "    def submit(self, submission):\n"
        "        held = []\n"
        "        while True:\n"
        "            held.append(bytearray(b'x') * (8 << 20))\n"
        "            time.sleep(0.01)\n"
        "class Growing(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        return Engine(config, tokens)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "growing:Growing"


GROWN = r"during submit: it had .* more than the 0.2 GiB that it may have"


def test_a_worker_that_grows_is_ended_and_says_nothing_about_the_engine(growing: str) -> None:
    with Worker(growing, memory_bytes=200 << 20) as made:
        made.start()
        with pytest.raises(Died, match=GROWN) as e:
            made.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})
        assert e.value.violation is None
        assert "tapedelay info --dump" in e.value.next_step
        assert not made.started


def test_a_worker_is_what_the_kernel_ends_first(opened: Worker) -> None:
    assert opened._process is not None
    assert Path(f"/proc/{opened._process.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_hang_is_found_beside_a_worker_that_is_busy() -> None:
    scenario, recipe = abort("chunk", "session")
    jobs = ((n, message(recipe, "" if n else "hangs")) for n in range(100_000))
    found: list[object] = []
    with Crew(lambda: worker(1.0), 2, scenario.as_dict()) as crew:
        for told in crew.run(jobs, goes_on=partial(operator.not_, found)):
            found += [told.job] if told.violation is not None else []
            assert told.job < 99_999
    assert found == [0]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os\nwhile True: os.write(1, b'y' * 65536)", "expected an answer of a worker"),
        ("print('hello')", "expected an answer of a worker"),
        ("print('[]')", "expected an answer of a worker"),
        ("print('{}')", "expected an answer of a worker"),
        ("import os\nos.write(1, bytes(range(128, 256)) + b'\\n')", "expected an answer of a worker"),
        ("import sys\nsys.exit(7)", "exit code 7"),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os\nos.abort()", "SIGABRT"),
        ("import os, time\nos.close(1)\ntime.sleep(60)", "closed its pipe and goes on"),
    ],
)
def test_whatever_is_no_worker_is_infrastructure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(workers, "END_S", 0.5)
    with Worker(TOY, python=str(python)) as made, pytest.raises(InfrastructureError) as e:
        made.start()
    assert words in e.value.text()
    assert "next: " in e.value.text()


def test_a_worker_that_does_not_read_is_not_waited_for_without_end(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!{sys.executable}\nimport time\nprint(\'{{"version": "1"}}\', flush=True)\ntime.sleep(60)\n'
    )
    python.chmod(0o755)
    with Worker(TOY, python=str(python), timeout_s=0.5) as made:
        made.start()
        with pytest.raises(Died, match=r"no answer for 0\.5 s") as e:
            made.ask({"do": "base", "scenario": "x" * (1 << 20)})
        assert e.value.violation is None


def test_an_engine_that_prints_without_end_takes_no_disk_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "printing.py").write_text(
        "import os\nfrom toy import ToyDriver\nfrom toy.driver import ToyEngine\n"
        "class Engine(ToyEngine):\n"
        "    def submit(self, submission):\n"
        "        for _ in range(100):\n"
        "            os.write(2, b'x' * 99_999 + b'\\n')\n"
        "        os.kill(os.getpid(), 6)\n"
        "class Printing(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        return Engine(config, tokens)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("printing:Printing") as made:
        made.start()
        with pytest.raises(Died) as e:
            made.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})
    assert e.value.violation is not None
    assert e.value.words.endswith("x" * 300)
    assert len(e.value.words) < 500


def test_a_long_run_of_short_calls_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its calls a worker looks the same whenever it is looked at, and yet it goes on."""
    (tmp_path / "thinking.py").write_text(
        "import time\nfrom toy import ToyDriver\nfrom toy.driver import ToyEngine\n"
        "class Engine(ToyEngine):\n"
        "    def state(self):\n"
        "        time.sleep(0.05)\n"
        "        return super().state()\n"
        "class Thinking(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        return Engine(config, tokens)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("thinking:Thinking", timeout_s=1.0) as made:
        made.start()
        assert made.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})["drained"]


def test_an_engine_that_is_not_there_is_said() -> None:
    with Worker("nosuch") as made, pytest.raises(Unsupported, match="nosuch"):
        made.start()


def test_a_python_that_is_not_there_is_infrastructure() -> None:
    with Worker(TOY, python="/nonexistent/python") as made, pytest.raises(InfrastructureError):
        made.start()


def test_an_adapter_that_fails_is_infrastructure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing.py").write_text(
        "from toy import ToyDriver\n"
        "class Failing(ToyDriver):\n"
        "    inputs = frozenset({3})\n"
        "    def faults(self):\n"
        "        return None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("failing:Failing") as made, pytest.raises(InfrastructureError, match="adapter failed"):
        made.start()


@pytest.mark.parametrize("do", ["base", "scenario", "strict"])
@pytest.mark.parametrize("config", [{}, {"kv_units": "many"}, {"unit_tokens": [4]}, {"depth": {}}])
def test_a_configuration_of_which_nothing_can_be_built_is_said(
    opened: Worker, do: str, config: dict[str, object]
) -> None:
    whole = dict(RECORDINGS["plain"].config) | config if config else {}
    bad = RECORDINGS["plain"].but(config=whole)
    message = {"do": do, "scenario": bad.as_dict(), "recorded": []}
    with pytest.raises(Unsupported, match="nothing can be built with this configuration"):
        opened.ask(message)
    assert opened.ask({**message, "scenario": RECORDINGS["plain"].as_dict()})


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """An engine whose recorder always writes two settings."""
    (tmp_path / "whole.py").write_text(
        "from toy import ToyDriver\n"
        "class Whole(ToyDriver):\n"
        "    def missing(self, config):\n"
        "        return [k for k in ('kv_units', 'depth') if k not in config]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("whole:Whole") as made:
        made.start()
        yield made


@pytest.mark.parametrize("do", ["base", "strict"])
def test_a_tape_without_a_setting_is_refused_with_its_name(whole: Worker, do: str) -> None:
    message = {"do": do, "scenario": RECORDINGS["plain"].as_dict(), "recorded": []}
    with pytest.raises(InputError, match="no depth \\(expected every setting") as refused:
        whole.ask(message)
    assert refused.value.exit_code == 3
    complete = RECORDINGS["plain"].but(config={**RECORDINGS["plain"].config, "depth": 1})
    assert "error" not in whole.ask({**message, "scenario": complete.as_dict()})


def test_a_case_written_by_hand_may_leave_settings_out(whole: Worker) -> None:
    assert whole.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})["drained"]


def test_what_is_next_fits_why_it_cannot_be_run(opened: Worker) -> None:
    """An engine that is not there is installed; one that refuses what it is given is not."""
    with Worker("vllm:None") as made, pytest.raises(Unsupported) as absent:
        made.start()
    assert "--python names the interpreter that has it" in (absent.value.next_step or "")
    bad = RECORDINGS["plain"].but(config={**RECORDINGS["plain"].config, "kv_units": "many"})
    with pytest.raises(Unsupported) as refused:
        opened.ask({"do": "scenario", "scenario": bad.as_dict()})
    assert (refused.value.next_step or "").startswith("record a run without it")


def test_what_an_engine_prints_does_not_disturb_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud.py").write_text(
        "import os\nfrom toy import ToyDriver\n"
        "class Loud(ToyDriver):\n"
        "    def build(self, config, tokens):\n"
        "        print('{}'); os.write(1, b'{\"drained\": false}\\n')\n"
        "        return super().build(config, tokens)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Worker("loud:Loud") as made:
        made.start()
        answer = made.ask({"do": "scenario", "scenario": RECORDINGS["plain"].as_dict()})
    assert answer["drained"]


def test_a_crash_is_tried_again_and_counts_once() -> None:
    scenario, recipe = abort("preempted", "long")
    with Crew(worker, 2, scenario.as_dict()) as crew:
        jobs = [(n, message(recipe, "crashes" if n == 1 else "")) for n in range(4)]
        told = {t.job: t for t in crew.run(jobs)}
    assert sorted(told) == [0, 1, 2, 3]
    assert told[1].violation is not None
    assert told[1].answer is None
    assert all(told[n].answer is not None and not told[n].trouble for n in (0, 2, 3))


def campaign(scenario: str, runs: int, seed: int = 0, **more: object) -> Outcome:
    made = Campaign(
        RECORDINGS[scenario],
        lambda: worker(5.0),
        budget=budget_of(f"{runs} runs"),
        seed=seed,
        **more,  # type: ignore[arg-type]
    )
    return made.run()


def test_a_campaign_is_clean_and_bites() -> None:
    out = campaign("plain", 50)
    assert out.verdict == "clean"
    assert out.planted.name
    assert out.planted.found is not None
    assert 45 <= out.runs <= 50
    assert out.actions["abort"] > 5
    assert not out.unjudged
    assert not out.troubles


def test_a_campaign_whose_fault_is_not_found_judges_nothing() -> None:
    """A fault of what waits to be made schedulable cannot show where no aim is at it."""
    out = campaign("plain", 5, plant="schedulable-lost", only=frozenset({"pause"}), plant_s=0.5)
    assert out.planted.found is None
    assert not out.found
    assert out.verdict == "cannot judge"


def test_a_crash_is_reduced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine crashes by itself here: its adapter plants the fault."""
    (tmp_path / "crashing.py").write_text(
        "from toy import FAULTS, ToyDriver\n"
        "planted = FAULTS['crashes'].planted()\n"
        "planted.__enter__()\n"
        "class Crashing(ToyDriver):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario, recipe = abort("preempted", "long")
    with Crew(lambda: Worker("crashing:Crashing", timeout_s=10.0), 1, scenario.as_dict()) as crew:
        (told,) = crew.run([(recipe, {"do": "recipe", "recipe": recipe.as_dict()})])
        assert told.violation is not None
        cut = reduce_death(crew, recipe, told.violation, 3.0)
    assert len(cut.scenario.submissions()) <= 3
    assert "> abort" in cut.litmus
    assert "breaks: crash" in cut.litmus
