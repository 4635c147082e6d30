"""`tapedelay check`: exit codes, text, JSON, baselines, variants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.cli import run
from tapedelay.formats.tape import Manifest
from tapedelay.formats.write import write_tape

from .test_check import BUG, ggml_like, under

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bug(tmp_path: Path) -> Path:
    path = tmp_path / "bug.litmus"
    path.write_text(BUG + "+4 | sync | H | | | vk0\nrace: 2x5 WAR M0\n", encoding="utf-8")
    text = path.read_text(encoding="utf-8").splitlines()
    text.insert(3, text.pop(4))  # the fix stands before row 5
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def test_exit_codes_and_variants(bug: Path, capsys: Capture) -> None:
    assert run(["check", str(bug)]) == 1
    out = capsys.readouterr()
    assert "1 race in 3 ops" in out.out
    assert "nothing orders the copy of `M0` on vk0 before the host code on H that writes `M0`" in out.out
    assert "missing: an edge from the end of 2 to the start of 5" in out.out
    assert out.err == f"next: tapedelay replay {bug} --search\n"
    assert run(["check", str(bug), "--variant", "buggy"]) == 1
    assert run(["check", str(bug), "--variant", "fixed"]) == 0
    assert "clean: 0 races" in capsys.readouterr().out


def test_verdict_lines_are_compared(bug: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(["check", str(bug)]) == 1
    assert capsys.readouterr().out.endswith("\nverdict lines: hold\n")
    assert run(["check", str(bug), "--expect"]) == 0
    assert run(["check", f"{bug}:fixed", "--expect"]) == 0
    wrong = tmp_path / "wrong.litmus"
    for stated in (
        "clean",
        "race: 2x5 RAW M0",
        "race: 2x5 WAR M0; 1x5 WAW M0",
        "unknown:",
        "possible: 2x5 WAR M0",
    ):
        wrong.write_text(BUG + stated + "\n")
        assert run(["check", str(wrong)]) == 1
        assert run(["check", str(wrong), "--expect"]) == 1
        found = "found race: 2x5 WAR M0[1024:2048]"
        assert f"verdict lines: differ: expected {stated}, {found}" in capsys.readouterr().out
        run(["check", str(wrong), "--json"])
        lines = json.loads(capsys.readouterr().out)["verdict_lines"]
        assert lines == {"hold": False, "expected": [stated], "found": ["race: 2x5 WAR M0[1024:2048]"]}
    wrong.write_text("1 | host | H | | M |\nrace: 1x1 WAW M\n")
    assert run(["check", str(wrong)]) == 0
    assert run(["check", str(wrong), "--expect"]) == 1
    wrong.write_text("1 | kernel | s0 | ? | |\nunknown:\n")
    assert run(["check", str(wrong)]) == 4
    assert run(["check", str(wrong), "--expect"]) == 0
    capsys.readouterr()
    wrong.write_text(BUG)
    assert run(["check", str(wrong), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict_lines"] is None
    assert run(["check", str(wrong)]) == 1
    assert "verdict lines" not in capsys.readouterr().out
    assert run(["check", str(wrong), "--expect"]) == 2


def test_the_next_command_can_be_pasted(tmp_path: Path, bug: Path, capsys: Capture) -> None:
    folder = tmp_path / "my runs"
    folder.mkdir()
    tape, known = folder / "run.tape", folder / "known it.json"
    write_tape(ggml_like(3), tape)
    clean = folder / "clean.tape"
    write_tape(ggml_like(synchronised=True), clean)
    litmus = tmp_path / "e.litmus"
    litmus.write_text("1 | kernel | s0 | ? | |\n")

    def after(*arguments: object) -> str:
        run(["check", *map(str, arguments)])
        (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("next: ")]
        return line.removeprefix("next: tapedelay ")

    assert after(tape) == f"replay '{tape}' --search"
    assert after(tape, "--all") == f"check '{tape}' --write-baseline known.json"
    assert after(tape, "--write-baseline", known) == f"check '{tape}' --baseline '{known}'"
    accepted = known.read_text()
    known.write_text('{"schema": "tapedelay-baseline-1", "accepted": []}')
    assert after(tape, "--baseline", known) == f"replay '{tape}' --baseline '{known}' --search"
    assert after(tape, "--baseline", known, "--all") == f"export '{tape}' --format litmus --ops 0:2"
    known.write_text(accepted)
    random = "--delays 'seed=1 max=200us' --repeat 1000"
    assert after(tape, "--baseline", known) == f"replay '{tape}' --baseline '{known}' {random}"
    assert after(clean) == f"replay '{clean}' {random}"
    assert after(litmus) == f"info {litmus}"
    idle = folder / "idle.tape"
    write_tape(under(Manifest(engine={"device_compute": False}), ggml_like(synchronised=True)), idle)
    assert after(idle) == "doctor -- COMMAND  # why nothing was recorded on a device"
    assert after(bug) == f"replay {bug} --search"
    assert after(bug, "--variant", "buggy") == f"replay {bug} --variant buggy --search"
    assert after(bug, "--all") == f"check {bug} --variant fixed"


def test_an_empty_tape(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "empty.tape"
    write_tape(TapeBuilder().build(), path)
    assert run(["check", str(path)]) == 4
    assert capsys.readouterr().out == "empty.tape: cannot judge: no ops\n"


def test_what_is_possible_is_called_possible(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "p.litmus"
    path.write_text("1 | kernel | s0 | | A:may_write |\n2 | kernel | s1 | | A |\n")
    assert run(["check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "p.litmus: 1 possible in 2 ops and 2 accesses"
    assert lines[2].startswith("POSSIBLE  WAW on `A`")


def test_usage_and_bad_input(tmp_path: Path, bug: Path, capsys: Capture) -> None:
    assert run(["check"]) == 2
    assert run(["check", str(bug), "--variant", "half"]) == 2
    assert run(["check", str(tmp_path / "nothing.tape")]) == 3
    tape = tmp_path / "run.tape"
    write_tape(ggml_like(), tape)
    assert run(["check", str(tape), "--variant", "fixed"]) == 2
    assert run(["check", str(bug), "--baseline", str(tmp_path / "none.json")]) == 3
    for text in ("", "{}", "[]", '{"schema": "tapedelay-baseline-1"}', "\xff", '{"schema": 1}' * 2):
        bad = tmp_path / "bad.json"
        bad.write_text(text, encoding="latin-1")
        assert run(["check", str(bug), "--baseline", str(bad)]) == 3, text
    assert "Traceback" not in capsys.readouterr().err


def test_cannot_judge(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.litmus"
    path.write_text("1 | kernel | s0 | ? | ? |\n", encoding="utf-8")
    assert run(["check", str(path)]) == 4
    out = capsys.readouterr().out
    assert "cannot judge" in out
    assert "what 1 op touches is unknown" in out


def test_json(bug: Path, capsys: Capture) -> None:
    assert run(["check", str(bug), "--json"]) == 1
    out = capsys.readouterr()
    data = json.loads(out.out)
    assert data["exit_code"] == 1
    assert data["groups"][0]["example"]["ops"][0]["label"] == "2"
    assert out.err == ""


def test_a_baseline_accepts_what_it_names_and_nothing_else(tmp_path: Path, capsys: Capture) -> None:
    tape, file = tmp_path / "run.tape", tmp_path / "accepted.json"
    write_tape(ggml_like(2), tape)
    assert run(["check", str(tape), "--write-baseline", str(file)]) == 0
    assert "1 kind of findings accepted" in capsys.readouterr().err
    assert run(["check", str(tape), "--baseline", str(file)]) == 0
    out = capsys.readouterr().out
    assert "2 accepted" in out
    assert "WAR, 2 times: nothing orders the copy" in out
    assert "missing: an edge" not in out
    assert run(["check", str(tape), "--baseline", str(file), "--all"]) == 0
    out = capsys.readouterr().out
    assert "(accepted by the baseline)" in out
    assert "missing: an edge" in out
    # Another run: more layers, other op ids, the same kind.
    longer = tmp_path / "longer.tape"
    write_tape(ggml_like(7), longer)
    assert run(["check", str(longer), "--baseline", str(file)]) == 0
    other = tmp_path / "other.litmus"
    other.write_text(BUG, encoding="utf-8")
    assert run(["check", str(other), "--baseline", str(file)]) == 1
    assert "the baseline has 1 entry that nothing matched" in capsys.readouterr().out
    data = json.loads(file.read_text(encoding="utf-8"))
    assert "nothing orders the copy" in data["accepted"][0]["why"]


def test_a_baseline_that_cannot_be_written(bug: Path, tmp_path: Path) -> None:
    assert run(["check", str(bug), "--write-baseline", str(tmp_path / "no" / "place.json")]) == 5


def test_all_lists_every_pair(tmp_path: Path, capsys: Capture) -> None:
    tape = tmp_path / "run.tape"
    write_tape(ggml_like(5), tape)
    assert run(["check", str(tape)]) == 1
    short = capsys.readouterr().out
    assert "5 times" in short
    assert "WAR TAPE0_Host 0[1028:2052]" not in short
    assert run(["check", str(tape), "--all"]) == 1
    assert "WAR TAPE0_Host 0[1028:2052]" in capsys.readouterr().out


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    b = TapeBuilder()
    gpu = b.device(name="g", kind="gpu")
    m = b.buffer(device=gpu, name="M\x1b[31m", bytes=8)
    touched = b.access_set([{"buffer": m, "offset": 0, "bytes": 8, "mode": "write", "name": "x\x07\r"}])
    for i in range(2):
        b.op(kind="kernel", name="\x1b[2J", queue=b.queue(device=gpu, name=f"q{i}\n"), access_set=touched)
    path = tmp_path / "run.tape"
    write_tape(b.build(), path)
    assert run(["check", str(path), "--all"]) == 1
    out = capsys.readouterr().out
    assert "M\\x1b[31m" in out
    assert not set(out) & set("\x1b\x07\r")
