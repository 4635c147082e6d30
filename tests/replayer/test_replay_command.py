"""`tapedelay replay`: exit codes, text, JSON, files, the next command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.cli import run
from tapedelay.formats.delays import Pattern, parse_plan, read_plan
from tapedelay.formats.load import load_tape
from tapedelay.formats.write import write_tape

from .test_replay import AIM, BUG, SYNC

Capture = pytest.CaptureFixture[str]
TRACES = Path(__file__).resolve().parents[2] / "traces"
BAD, GOOD = (str(TRACES / f"ggml-26040-{n}.tape.zip") for n in ("bad", "good"))


@pytest.fixture
def bug(tmp_path: Path) -> str:
    path = tmp_path / "bug.litmus"
    path.write_text(BUG.format(sync=f"+{SYNC}"))
    return str(path)


def again(err: str) -> list[str]:
    """Return the arguments of the command that the last line of stderr names."""
    line = err.strip().splitlines()[-1]
    assert line.startswith("next: tapedelay ")
    return shlex.split(line.removeprefix("next: tapedelay "))


def test_exit_codes_and_variants(bug: str, capsys: Capture) -> None:
    assert run(["replay", bug]) == 0
    assert "bug.litmus: clean: 0 wrong reads of 4 in 4 ops, on virtual" in capsys.readouterr().out
    assert run(["replay", bug, "--delays", AIM]) == 1
    out = capsys.readouterr()
    assert "bug.litmus: CONFIRMED:" in out.out
    assert "delay: first copy on vk0 +5us before_start: 1 op" in out.out
    assert "the copy of `M0` on vk0 (2) read `M0` bytes 0 to 4,096" in out.out
    assert re.search(r"saw +bytes 1,024 to 2,048: what the host code on H .*\(5\) wrote", out.out)
    assert re.search(r"expected bytes 1,024 to 2,048: what the host code on H .*\(1\) wrote", out.out)
    assert "from there to the host: 2 -> the host at the end" in out.out
    assert "this shows: WAR on `M0`: nothing orders the copy of `M0` on vk0 before" in out.out
    assert run(["replay", bug, "--delays", AIM, "--variant", "fixed"]) == 0
    assert run(["replay", f"{bug}:fixed", "--delays", AIM]) == 0
    assert run(["replay", f"{bug}:fixed", "--delays", AIM, "--variant", "buggy"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--delays", "first memset +1ns"], 2, "no op matches"),
        (["--delays", "frist copy +1ns"], 3, "--delays:1: 'frist'"),
        (["--delays", "nothing.delays"], 3, "cannot be opened"),
        (["--backend", "nowhere"], 2, "no backend 'nowhere'"),
        (["--repeat", "0"], 2, "repeat 0"),
        (["--ops", "5"], 2, "FIRST:LAST"),
        (["--ops", "5:5"], 2, "holds nothing"),
        (["--ops", "70:80"], 2, "no op in 70:80"),
        (["--ops", ":"], 2, "FIRST:LAST"),
        (["--steps", "0:1"], 2, "have no step"),
        (["--ops", "0:1", "--steps", "0:1"], 2, "one of them"),
        (["--search", "--delays", AIM], 2, "--search and --delays"),
        (["--search", "--pin"], 2, "--search and --pin"),
        (["--search", "--repeat", "2"], 2, "--search and --repeat"),
        (["--search", "--out", "x.tape"], 2, "--search and --out"),
        (["--all"], 2, "without --search and --all"),
        (["--write-plans", "x"], 2, "without --search and --write-plans"),
        (["--write-plan", "x.delays"], 2, "--write-plan without delays"),
        (["--delays", "# nothing"], 3, "no delay"),
        (["--time-scale", "nan"], 2, "--time-scale"),
        (["--time-scale", "-1"], 2, "--time-scale"),
        (["--compact"], 2, "--compact on the virtual backend"),
        (["--timeout", "5"], 2, "--timeout on the virtual backend"),
        (["--backend", "threads", "--timeout", "0"], 2, "--timeout 0"),
        (["--backend", "threads", "--timeout", "nan"], 2, "--timeout nan"),
        (["--pin"], 2, "a pin on the backend virtual"),
        (["--time-scale", "2"], 2, "--time-scale on the virtual backend"),
        (["--baseline", "nothing.json"], 3, "cannot be opened"),
        (["--variant", "other"], 2, "other"),
    ],
)
def test_what_is_refused(bug: str, arguments: list[str], code: int, said: str, capsys: Capture) -> None:
    assert run(["replay", bug, *arguments]) == code
    out = capsys.readouterr()
    assert said in out.err
    assert out.out == ""
    assert run(["replay", bug, *arguments, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_what_is_no_tape(tmp_path: Path, capsys: Capture) -> None:
    assert run(["replay", str(tmp_path / "missing.tape")]) == 3
    (tmp_path / "foreign.tape.zip").write_bytes(b"no zip")
    assert run(["replay", str(tmp_path / "foreign.tape.zip"), "--search"]) == 3
    assert run(["replay", BAD, "--variant", "fixed"]) == 2


def test_a_written_plan_is_what_comes_next(bug: str, tmp_path: Path, capsys: Capture) -> None:
    plan = str(tmp_path / "found it.delays")
    write = ["--write-plan", plan, "--force"]
    run(["replay", bug, "--search", *write])
    assert again(capsys.readouterr().err) == ["replay", bug, "--delays", plan]
    # The recording of an engine: the plan is for the engine where its delays are long enough.
    run(["replay", BAD, "--search", *write])
    err = capsys.readouterr().err
    assert again(err.split("  # ")[0]) == ["replay", BAD, "--delays", plan]
    assert err.endswith("  # for the engine: search with --margin 50ms\n")
    run(["replay", BAD, "--search", "--margin", "50ms", *write])
    played = ["--devices", "1", "--profile", "vulkan-like"]
    arguments = ["record", "-o", "late.tape", *played, "--delays", plan, "--", "COMMAND"]
    assert again(capsys.readouterr().err) == arguments
    (line,) = read_plan(plan).lines
    assert line.ns > 50_000_000
    # Nothing was found, nothing was written.
    run(["replay", GOOD, "--search", "--write-plan", str(tmp_path / "none.delays")])
    assert again(capsys.readouterr().err) == ["check", GOOD]


def test_a_long_repetition_shows_how_far_it_is_and_ends_by_ctrl_c(bug: str) -> None:
    words = ["replay", bug, "--delays", "seed=1 max=2us", "--repeat", "10000000"]
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "tapedelay", *words],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    seen = b""
    try:
        while b"replaying bug.litmus" not in seen or b"%" not in seen:
            seen += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        reader = threading.Thread(target=_drain, args=(ours,), daemon=True)  # a full terminal would block it
        reader.start()
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert re.search(r"interrupted after [\d,]+ of 10,000,000 runs", out), out


def _drain(file: int) -> None:
    with contextlib.suppress(OSError):  # the other end is closed
        while os.read(file, 4096):
            pass


def test_search_names_the_delay_that_replay_takes(bug: str, capsys: Capture) -> None:
    assert run(["replay", bug, "--search"]) == 1
    out = capsys.readouterr()
    assert "bug.litmus: CONFIRMED: 1 of 1 finding shown" in out.out
    assert "RACE  WAR on `M0`  once: CONFIRMED" in out.out
    assert "  delay: first copy of 2 on vk0 +" in out.out
    arguments = again(out.err)
    assert arguments[:2] == ["replay", bug]
    assert run(arguments) == 1
    assert "CONFIRMED" in capsys.readouterr().out
    assert run([*arguments, "--variant", "fixed"]) == 0
    capsys.readouterr()
    assert run(["replay", bug, "--search", "--variant", "fixed"]) == 0
    assert "clean: nothing to search for, 0 runs" in capsys.readouterr().out


def test_check_leads_to_the_search(bug: str, capsys: Capture) -> None:
    assert run(["check", BAD]) == 1
    arguments = again(capsys.readouterr().err)
    assert arguments == ["replay", BAD, "--search"]
    assert run(arguments) == 1
    arguments = again(capsys.readouterr().err)
    assert run(arguments) == 1
    assert run([a.replace("-bad", "-good") for a in arguments]) == 0
    capsys.readouterr()
    assert run(["replay", bug]) == 0
    assert again(capsys.readouterr().err) == ["replay", bug, "--search"]


def test_plans_are_written(bug: str, tmp_path: Path, capsys: Capture) -> None:
    folder, file = tmp_path / "my plans", tmp_path / "first.delays"
    assert run(["replay", bug, "--search", "--write-plans", str(folder), "--write-plan", str(file)]) == 1
    out = capsys.readouterr()
    (plan,) = folder.iterdir()
    assert plan.name == "001-WAR-M0.delays"
    assert file.read_text() == plan.read_text()
    text = plan.read_text()
    assert text.startswith("tapedelay-plan 1\n# WAR on M0: nothing orders ")
    assert "before_start  # op 1\n" in text
    assert again(out.err) == ["replay", bug, "--delays", str(plan)]
    assert run(again(out.err)) == 1
    capsys.readouterr()
    assert run(["replay", bug, "--search", "--write-plans", str(folder)]) == 2
    assert "a file is there" in capsys.readouterr().err
    assert run(["replay", bug, "--search", "--write-plans", str(folder), "--force"]) == 1
    assert run(["replay", bug, "--search", "--write-plans", str(plan)]) == 5
    capsys.readouterr()
    assert run(["replay", bug, "--search", "--json", "--write-plans", str(tmp_path / "a" / "b")]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [Path(p).name for p in data["plans"]] == ["001-WAR-M0.delays"]


def test_a_lucky_seed_is_written_out_exactly(bug: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "lucky.delays"
    arguments = ["replay", bug, "--delays", "seed=1 max=5us", "--repeat", "50", "--write-plan", str(file)]
    assert run(arguments) == 1
    out = capsys.readouterr()
    found = re.search(r"50 runs: (\d+) found something, run (\d+) first", out.out)
    assert found is not None
    assert 0 < int(found[1]) < 50
    seed = int(found[2])
    assert f"random seed={seed} max=5us every op before_start: 4 ops" in out.out
    plan = read_plan(file)
    assert all(isinstance(n.anchor, Pattern) or n.note == "no engine issues it" for n in plan.lines)
    assert "first copy on vk0 +" in file.read_text()
    assert "`record` cannot take them" in file.read_text()
    assert "for `replay` alone" in out.err
    assert run(["replay", bug, "--delays", str(file)]) == 1
    assert f"--delays 'random seed={seed} max=5us every op before_start'" in out.err


def test_a_result_is_a_tape(tmp_path: Path, bug: str, capsys: Capture) -> None:
    out = tmp_path / "result.tape.zip"
    assert run(["replay", bug, "--delays", AIM, "--out", str(out)]) == 1
    assert again(capsys.readouterr().err) == ["check", str(out)]
    tape = load_tape(out)
    assert tape.table("ops").column("start_after_issue_ns").to_pylist()[1] == 5_000
    assert tape.manifest.notes[-1] == "replayed on virtual with 1 delay"
    assert run(["replay", bug, "--out", str(out)]) == 2
    assert run(["replay", bug, "--out", str(out), "--force"]) == 0
    folder = tmp_path / "result.tape"
    assert run(["replay", bug, "--out", str(folder)]) == 0
    assert run(["replay", bug, "--out", str(folder)]) == 2
    assert run(["replay", bug, "--out", str(folder), "--force"]) == 0
    assert run(["replay", str(folder), "--out", str(folder), "--force"]) == 2
    assert load_tape(folder).table("ops").num_rows == 4
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    assert run(["replay", bug, "--out", str(other), "--force"]) == 2
    assert (other / "mine").read_text() == "mine"


def test_a_line_that_matches_nothing_is_said(bug: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "two.delays"
    file.write_text("tapedelay-plan 1\n#1 +1ns\n#99 +1ns\n")
    run(["replay", bug, "--delays", str(file)])
    out = capsys.readouterr()
    assert f"warning: {file}:3 matched no op: #99 +1ns before_start" in out.err
    assert "#99 +1ns before_start: 0 ops" in out.out


def test_a_baseline(bug: str, tmp_path: Path, capsys: Capture) -> None:
    known = str(tmp_path / "known.json")
    assert run(["check", bug, "--write-baseline", known]) == 0
    assert run(["replay", bug, "--delays", AIM, "--baseline", known]) == 0
    out = capsys.readouterr().out
    assert "accepted" in out
    assert "FIRST WRONG READ (accepted by the baseline)" in out
    assert run(["replay", bug, "--search", "--baseline", known]) == 0
    out = capsys.readouterr().out
    assert "accepted by the baseline, not searched:" in out
    assert "nothing to search for" in out


def test_json_holds_what_the_text_says(capsys: Capture) -> None:
    assert run(["replay", BAD, "--search", "--json"]) == 1
    out = capsys.readouterr()
    data: dict[str, Any] = json.loads(out.out)
    assert (data["schema"], data["verdict"], data["counts"]["confirmed"]) == (
        "tapedelay-search-1",
        "confirmed",
        1,
    )
    (attempt,) = data["attempts"]
    assert attempt["wrong"]["op"]["op"] == 75
    assert attempt["replay"]["schema"] == "tapedelay-replay-1"
    assert out.err == ""
    assert run(["replay", BAD, "--delays", attempt["delays"], "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["wrong"][0]["op"]["op"] == 75
    assert data["confirmed"][0]["ops"][1]["op"] == 77


def test_every_process_says_the_same() -> None:
    said = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", "from tapedelay.formats.cli import main; main()",
             "replay", BAD, "--search", "--all", "--json"],
            capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, "")
        said.add(done.stdout)
    assert len(said) == 1


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    b = TapeBuilder()
    d = b.device(name="cpu", kind="host")
    h = b.queue(device=d, name="H\x1b[31m", kind="host_thread")
    q = b.queue(device=d, name="q\n\x1b]0;x\x07")
    m = b.buffer(device=d, name="M\x1b[2J", bytes=64)
    write = b.access_set([{"buffer": m, "offset": 0, "bytes": 64, "mode": "write", "name": "t\r\n"}])
    read = b.access_set([{"buffer": m, "offset": 0, "bytes": 64, "mode": "read", "name": "t\r\n"}])
    b.op(kind="host", queue=h, issuer=h, access_set=write, name="a\x1b[1m")
    b.op(kind="copy", queue=q, issuer=h, access_set=read, name="b\n\x1b[1m")
    b.op(kind="host", queue=h, issuer=h, access_set=write, name="c\u2028")
    path = write_tape(b.build(), tmp_path / "evil.tape")
    for arguments in (
        ["--search", "--write-plans", str(tmp_path / "plans")],
        ["--delays", "2nd op on * +1us"],
    ):
        assert run(["replay", str(path), *arguments]) == 1
        out = capsys.readouterr()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028]", out.out + out.err)
    (plan,) = (tmp_path / "plans").iterdir()
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", plan.name)
    text = plan.read_text()
    assert "\x1b" not in text
    assert run(["replay", str(path), "--delays", str(plan)]) == 1
    assert parse_plan(text).lines


def test_windows(capsys: Capture) -> None:
    delays = "first copy of model.input_embed on TAPE0 +3ms"
    assert run(["replay", BAD, "--ops", "70:141", "--delays", delays]) == 1
    out = capsys.readouterr().out
    assert " in 71 ops" in out
    assert "a window 70:141 of 1423 ops" in out
    assert run(["replay", BAD, "--ops", ":75", "--delays", delays]) == 2
    assert run(["replay", BAD, "--search", "--ops", "70:141"]) == 1


HUGE = """
buffer A 8589934592
buffer D 8589934592
1 | host | H   |   | A |
2 | copy | vk0 | A | D |
3 | host | H   |   | A |
"""


def test_memory_above_the_limit_is_scaled_down_when_asked(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "huge.litmus"
    path.write_text(HUGE)
    for more in ([], ["--search"]):
        asked = ["replay", str(path), "--backend", "threads", *more]
        assert run(asked) == 4
        err = capsys.readouterr().err
        assert re.search(r"the buffers need \d\d,\d{3},\d{3},\d{3} bytes of real memory", err)
        assert "--compact" in err
        assert run([*asked, "--compact"]) in (0, 1)
        assert "--compact" in again(capsys.readouterr().err)


def test_patience_in_real_time(bug: str, capsys: Capture) -> None:
    """With ops of 0.1 s, 0.02 s without one that ends are too few."""
    slow = ["replay", bug, "--backend", "threads", "--variant", "fixed", "--time-scale", "1e5"]
    assert run([*slow, "--timeout", "0.02"]) == 4
    err = capsys.readouterr().err
    assert "given up: no op ended for 0.02 s" in err
    assert "--timeout SECONDS" in err
    assert run([*slow, "--timeout", "15"]) == 0


def test_too_many_delays_to_write_out(
    bug: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.delays"
    monkeypatch.setattr("tapedelay.formats.delays.exact.MAX_LINES", 3)
    arguments = ["replay", bug, "--delays", "seed=3 max=9us", "--write-plan", str(file)]
    code = run(arguments)
    err = capsys.readouterr().err
    assert "4 delays: a plan has at most 3 lines" in err
    assert "Traceback" not in err
    assert "random seed=3 max=9us every op" in file.read_text()
    assert run(["replay", bug, "--delays", str(file)]) == code


def test_a_search_that_finds_nothing_says_that_it_writes_nothing(
    bug: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "none.delays"
    assert run(["replay", f"{bug}:fixed", "--search", "--write-plan", str(file)]) == 0
    assert f"no delay was found: {file} is not written" in capsys.readouterr().err
    assert not file.exists()


def test_a_plan_without_a_delay_is_refused(bug: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "empty.delays"
    file.write_text("tapedelay-plan 1\n# on bug.litmus:\n")
    assert run(["replay", bug, "--delays", str(file)]) == 2
    assert f"{file}: a plan without any delay" in capsys.readouterr().err


def test_errors_say_what_to_do(bug: str, capsys: Capture) -> None:
    for arguments in (["--backend", "foo"], ["--time-scale", "nan"]):
        assert run(["replay", bug, *arguments]) == 2
        assert "\n  next: " in capsys.readouterr().err


def test_an_unknown_pair_leads_to_check(capsys: Capture) -> None:
    file = str(TRACES.parent / "tests/corpus/own/unresolved-wait.litmus")
    assert run(["replay", file, "--delays", "#3 +5us"]) == 4
    assert again(capsys.readouterr().err) == ["check", file]
