"""The pytest plugin: a marked test is red where a read saw something wrong, and green where none did."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.registry import backends_present
from tapedelay.replayer.pytest_plugin import Case
from tapedelay.replayer.replay import replay
from tapedelay.replayer.replay.render import render_replay

pytest_plugins = ["pytester"]

PLUGIN = "tapedelay.replayer.pytest_plugin"
_INSTALLED = any(p.value == PLUGIN for p in entry_points(group="pytest11"))
LOADED = () if _INSTALLED else ("-p", PLUGIN)
RACE = """
1 | host   | H   |    | M0[0:4096] |
2 | copy   | vk0 | M0[0:4096] | D0 |
3 | kernel | vk0 | D0 | D1 |
+4 | sync  | H   |    |    | vk0
5 | host   | H   |    | M0[1024:2048] |
"""
PLAN = "first copy on vk0 +5us"


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Load what the inner runs need: pytester forgets what they import, and numpy loads once only."""
    tape = parse(RACE).tape()
    for backend in backends_present().values():
        render_replay(replay(tape, backend=backend))


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a folder with a race in it."""
    pytester.path.joinpath("race.litmus").write_text(RACE)
    return pytester


def outcome(tests: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    tests.makepyfile(f"import pytest\n{text}")
    return tests.runpytest(*LOADED, "--strict-markers", "-p", "no:cacheprovider", *arguments)


def marked(arguments: str, body: str = "pass", name: str = "it") -> str:
    return f"@pytest.mark.tapedelay({arguments})\ndef test_{name}(tape_replay): {body}\n"


def virtual(arguments: str, **more: str) -> str:
    return marked(f"{arguments}, backends='virtual'", **more)


# --- light ---


def test_loading_it_imports_nothing_of_the_library() -> None:
    code = (
        f"import sys, pytest\nbefore = set(sys.modules)\nimport {PLUGIN}\nfresh = set(sys.modules) - before\n"
        "ours = ('tapedelay', 'numpy', 'pyarrow', 'click', 'rich')\n"
        "print(sorted(m for m in fresh if m.split('.')[0] in ours))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["tapedelay", "tapedelay.replayer", PLUGIN])


def test_tests_that_do_not_use_it_do_not_load_the_library(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        "import sys\ndef test_it(): assert not {'numpy', 'pyarrow', 'tapedelay.formats'} & set(sys.modules)"
    )
    tests.runpytest_subprocess(*LOADED).assert_outcomes(passed=1)


# --- both directions ---


def test_red_where_a_read_is_wrong_and_green_where_none_is(tests: pytest.Pytester) -> None:
    good = virtual(f"'race.litmus:fixed', plan='{PLAN}'", body="assert tape_replay.result.verdict == 'clean'")
    bad = virtual(f"'race.litmus', plan='{PLAN}'", body="print('body ran')", name="bad")
    result = outcome(tests, good + bad)
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "test_bad[virtual]" in text
    assert "expected: every read sees what it sees in the reference order; got: confirmed" in text
    assert "FIRST WRONG READ" in text
    assert "nothing orders the copy of `M0` on vk0 before the host code on H that writes `M0`" in text
    assert "body ran" not in text
    assert "pytest_plugin.py" not in text  # the explanation, not our insides


def test_the_negative_control(tests: pytest.Pytester) -> None:
    wrong = virtual(f"'race.litmus', plan='{PLAN}', expect='wrong'", name="wrong")
    clean = virtual(f"'race.litmus:fixed', plan='{PLAN}', expect='wrong'", name="clean")
    result = outcome(tests, wrong + clean, "-rA")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*expected: a read sees something else than*; got: clean*",
            "PASSED*test_wrong*",
            "FAILED*test_clean*",
        ]
    )


def test_deadlocks_and_what_cannot_be_judged(tests: pytest.Pytester) -> None:
    tests.path.joinpath("never.litmus").write_text("1 | semwait | s0 | | | s\n2 | kernel | s0 | | A |\n")
    tests.path.joinpath("unknown.litmus").write_text("1 | kernel | s0 | ? | |\n2 | kernel | s1 | | A |\n")
    cases = [
        ("never", "deadlock", ""), ("never", "clean", "deadlock"), ("race", "deadlock", "confirmed"),
        ("unknown", "clean", "cannot judge"), ("unknown", "wrong", "cannot judge"),
    ]  # fmt: skip
    text = "".join(
        virtual(f"'{tape}.litmus', expect='{expect}', plan='every op +9us'", name=f"{tape}_{expect}")
        for tape, expect, _ in cases
    )
    result = outcome(tests, text, "-rA")
    result.assert_outcomes(passed=1, failed=4)
    said = re.findall(r"got: (.*)", result.stdout.str())
    assert [s for s in said if s] == [got for _, _, got in cases if got]


def test_the_command_that_it_prints_shows_it_again(
    tests: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tests.mkdir("deep dir").joinpath("a plan.delays").write_text(f"tapedelay-plan 1\n{PLAN}\n")
    arguments = "'race.litmus', plan='deep dir/a plan.delays', backends='virtual', repeat=2, ops=(0, None)"
    result = outcome(tests, marked(arguments))
    (command,) = re.findall(r"to see it again: tapedelay (.*)", result.stdout.str())
    asked = ["--delays", "deep dir/a plan.delays", "--repeat", "2", "--ops", "0:"]
    assert shlex.split(command) == ["replay", "race.litmus", "--backend", "virtual", *asked]
    monkeypatch.chdir(tests.path)
    capsys.readouterr()
    assert run(shlex.split(command)) == 1
    assert "FIRST WRONG READ" in capsys.readouterr().out


def test_a_pin_is_for_the_backends_in_real_time(tests: pytest.Pytester) -> None:
    wrong = f"'race.litmus', plan={PLAN!r}, backends=['virtual', 'threads'], pin=True"
    text = marked(f"{wrong}, expect='wrong', repeat=5", name="wrong") + marked(wrong, name="clean")
    result = outcome(tests, text)
    result.assert_outcomes(passed=2, failed=2)
    commands = re.findall(r"again: tapedelay replay race.litmus (.*)", result.stdout.str())
    assert sorted("--pin" in c for c in commands if c) == [False, True]


def test_options_of_real_time_reach_the_backend_and_the_command(tests: pytest.Pytester) -> None:
    tests.path.joinpath("huge.litmus").write_text("buffer A 8589934592\n1 | kernel | q0 | | A |\n")
    threads, deadlock = "'huge.litmus', backends='threads'", ", expect='deadlock'"
    text = marked(threads, name="full") + marked(f"{threads}, compact=True", name="compact")
    text += marked(f"{threads}, compact=True, timeout_s=2.5{deadlock}", name="command")
    text += virtual(f"'huge.litmus', compact=True, timeout_s=2.5{deadlock}", name="virtual")
    text += marked(f"'race.litmus', plan='seed=1 max=1us', backends='threads'{deadlock}", name="plain")
    result = outcome(tests, text, "-rA")
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(["*need 8,589,934,* bytes of real memory*", "PASSED*test_compact*"])
    commands = re.findall(r"again: tapedelay replay huge.litmus --backend (.*)", result.stdout.str())
    assert [c for c in commands if c] == ["threads --compact --timeout 2.5", "virtual"]
    result.stdout.fnmatch_lines(["*again: tapedelay replay race.litmus --backend threads --delays *"])


# --- backends ---


def test_each_backend_that_can_run_here(tests: pytest.Pytester) -> None:
    names = list(backends_present())
    assert "virtual" in names
    result = outcome(tests, marked(f"'race.litmus:fixed', plan='{PLAN}'"), "-v")
    result.assert_outcomes(passed=len(names))
    for name in names:
        result.stdout.fnmatch_lines([f"*test_it[[]{name}[]] PASSED*"])


def test_a_backend_that_cannot_run_is_skipped_if_it_was_asked_for(
    tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tapedelay.replayer.backends.virtual.VirtualBackend.available", lambda _: "no clock here"
    )
    result = outcome(tests, marked("'race.litmus:fixed', backends=('virtual',)"), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*backend virtual cannot run here: no clock here*"])


# --- with others ---


def test_under_xdist(tests: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    text = "\n".join(
        f"@pytest.mark.tapedelay('race.litmus{variant}', plan='{PLAN}', backends='virtual')\n"
        f"def test_{name}_{i}(): pass"
        for name, variant in (("bad", ""), ("good", ":fixed"))
        for i in range(3)
    )
    tests.makepyfile(f"import pytest\n{text}")
    result = tests.runpytest_subprocess(*LOADED, "--strict-markers", "-n", "2")
    result.assert_outcomes(passed=3, failed=3)
    assert result.stdout.str().count("to see it again: tapedelay replay race.litmus --backend virtual") == 3


def test_with_other_parameters_and_on_classes(tests: pytest.Pytester) -> None:
    text = (
        "@pytest.mark.tapedelay('race.litmus:fixed', backends='virtual')\n"
        "class TestIt:\n"
        "    @pytest.mark.parametrize('n', [1, 2])\n"
        "    def test_numbers(self, n, tape_replay): assert tape_replay.result.outcome.clean\n"
        "    @pytest.mark.tapedelay('race.litmus', plan='%s', backends='virtual')\n"
        "    def test_own(self): pass\n"
        "def test_plain(): pass\n"
    )
    outcome(tests, text % PLAN).assert_outcomes(passed=3, failed=1)


def test_files_lie_beside_the_test_or_in_the_root_folder(tests: pytest.Pytester) -> None:
    folder = tests.mkdir("sub")
    text = f"import pytest\n{marked(repr('beside.litmus') + ', backends=' + repr('virtual'))}"
    folder.joinpath("test_a.py").write_text(text)
    folder.joinpath("beside.litmus").write_text("1 | host | H | | A |\n")
    text = f"import pytest\n{marked(repr('race.litmus+') + ', backends=' + repr('virtual'))}"
    folder.joinpath("test_b.py").write_text(text)
    tests.makeini("[pytest]")
    tests.runpytest(*LOADED).assert_outcomes(passed=2)


# --- the fixture alone ---


def test_the_fixture_as_a_call(tests: pytest.Pytester) -> None:
    text = f"""
def test_good(tape_replay):
    result = tape_replay("race.litmus:fixed", plan="{PLAN}")
    assert result.verdict == "clean"
    assert tape_replay.result is result
    assert tape_replay.backend == "virtual"

def test_bad(tape_replay):
    tape_replay("race.litmus", plan="{PLAN}")

def test_control(tape_replay):
    tape_replay("race.litmus", plan=["{PLAN}"], expect="wrong", backend="virtual")
"""
    result = outcome(tests, text)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*to see it again: tapedelay replay race.litmus *"])


# --- what is asked for wrongly ---


def test_markers_that_make_no_sense(tests: pytest.Pytester) -> None:
    cases = {
        "": "*marker tapedelay*tape*",
        "'race.litmus', plam='x'": "*unexpected keyword argument 'plam'*",
        "'race.litmus', expect='red'": "*expect 'red': expected one of clean, wrong, deadlock*",
        "3": "*tape 3: expected the name of a file*",
        "'race.litmus', backends='vitrual'": "*no backend 'vitrual' (expected virtual, *",
    }
    for n, arguments in enumerate(cases):
        tests.path.joinpath(f"test_{n}.py").write_text(f"import pytest\n{marked(arguments)}")
    result = tests.runpytest(*LOADED)
    result.assert_outcomes(errors=len(cases))
    result.stdout.fnmatch_lines(list(cases.values()))


def test_bad_input_is_a_failure_with_its_reason(tests: pytest.Pytester) -> None:
    cases = {
        "'none.litmus'": "*none.litmus: cannot be opened*",
        "'race.litmus', plan='no such plan at all'": "*--delays:1: 'no' (expected first, last, every*",
        "'race.litmus', plan='first kernel on nowhere +1ms'": "*no op matches*",
    }
    text = "".join(virtual(arguments, name=f"it_{n}") for n, arguments in enumerate(cases))
    result = outcome(tests, text)
    result.assert_outcomes(failed=len(cases))
    result.stdout.fnmatch_lines(list(cases.values()))
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_a_marker_that_would_do_nothing_is_refused(tests: pytest.Pytester) -> None:
    text = (
        "import unittest\nclass TestIt(unittest.TestCase):\n"
        "    @pytest.mark.tapedelay('race.litmus')\n    def test_it(self): pass\n"
    )
    result = outcome(tests, text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it: the marker tapedelay works on functions*"])


def test_the_marker_is_listed(tests: pytest.Pytester) -> None:
    result = tests.runpytest(*LOADED, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.tapedelay(tape, plan, backends, expect, *"])


def test_what_a_case_holds() -> None:
    assert Case("a").plans == []
    assert Case("a", plan="x").plans == ["x"]
    assert Case("a", plan=("x", Path("y"))).plans == ["x", Path("y")]
    assert Case("a", backends="virtual").names == ["virtual"]
    assert Case("a", backends=("a", "b")).names == ["a", "b"]


# --- the fixture that runs an engine; with one: tests/engines/test_engine_fixture.py ---


def test_what_the_engine_fixture_refuses_before_anything_runs(tests: pytest.Pytester) -> None:
    calls = {
        "test_it.f, plan='first copy +1ms', expect='red'": "expect 'red': expected equal or wrong",
        "test_it.f, plan='first copy +1ms', plam=1": "*unexpected keyword argument 'plam'",
        "test_it.f, plan='no plan at all'": "--delays:1: 'no' (expected first, last, every*",
        "test_it.f, plan='missing.delays'": "missing.delays: cannot be opened: *",
        "test_it.f, plan='first copy +1ms', devices=0": "0 test devices (expected 1 to 15: *",
        "test_it.f, plan='first copy +1ms', arguments=[{1}]": "arguments that cannot be written as JSON: *",
        "lambda: 1, plan='first copy +1ms'": "program '*<lambda>' (expected a function at the top *",
        "'nowhere.py:f', plan='first copy +1ms'": "*nowhere.py: there is no such file*",
        "[], plan='first copy +1ms'": "program [[][]] (expected *",
    }
    text = "import sys\ntest_it = sys.modules[__name__]\ndef f(): return 1\n"
    text += "".join(f"def test_{n}(tapedelay_engine): tapedelay_engine({c})\n" for n, c in enumerate(calls))
    result = outcome(tests, text)
    result.assert_outcomes(failed=len(calls))
    result.stdout.fnmatch_lines(list(calls.values()))
    assert "Traceback" not in result.stdout.str()
    assert not list(tests.path.glob("**/engine-1"))


def test_what_the_engine_fixture_says_where_no_engine_runs(tests: pytest.Pytester) -> None:
    tests.mkdir("sub").joinpath("uploads.delays").write_text("tapedelay-plan 1\nfirst copy +1ms\n")
    tests.path.joinpath("sub", "test_it.py").write_text(
        "import pytest\ndef f(): return [1]\ndef test_it(tapedelay_engine):\n"
        "    with pytest.raises(AttributeError, match='no engine has run yet'): tapedelay_engine.result\n"
        "    try: tapedelay_engine(f, plan='uploads.delays')\n"
        "    finally: assert tapedelay_engine.result.verdict == 'vacuous'\n"
    )
    result = tests.runpytest(*LOADED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "expected: equal; got: vacuous",
            "no work ran on the device: a right answer would mean nothing",
            "  on synchronous devices: nothing was recorded: *",
            "to run it again: tapedelay record -o again.tape --force --devices 1 * --sync -- *",
        ]
    )
