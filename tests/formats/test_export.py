"""`tapedelay export` and the window that `--ops` cuts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.cli import run
from tapedelay.formats.commands.export import export
from tapedelay.formats.commands.info import info
from tapedelay.formats.errors import InfrastructureError, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.window import window, windows
from tapedelay.formats.write import write_tape

TABLES = ("devices", "queues", "syncs", "buffers", "accesses", "ops", "edges", "lists")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(export, [str(a) for a in arguments], catch_exceptions=False)


def test_prints_what_parses_back(rich_tape: Tape, written: Path) -> None:
    result = call(written, "--format", "litmus")
    assert result.exit_code == 0
    tape = parse(result.stdout).tape()
    for name in TABLES:
        assert tape.table(name).to_pylist() == rich_tape.table(name).to_pylist()


def test_writes_a_file_and_names_the_next_step(written: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.litmus"
    result = call(written, "--format", "litmus", "-o", out)
    assert result.stdout == f"{out}: 17 ops\n"
    assert result.stderr == f"next: tapedelay check {out}\n"
    assert out.read_text() == call(written, "--format", "litmus").stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.litmus", "rich.tape"]


def test_json(written: Path, tmp_path: Path) -> None:
    data = json.loads(call(written, "--format", "litmus", "--json").stdout)
    assert (data["format"], data["ops"]) == ("litmus", 17)
    assert parse(data["text"]).tape().table("ops").num_rows == 17
    out = tmp_path / "out.litmus"
    assert json.loads(call(written, "--format", "litmus", "--json", "-o", out).stdout)["file"] == str(out)


def test_a_place_that_cannot_be_written(written: Path, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"out\.litmus: cannot write: No such file"):
        call(written, "--format", "litmus", "-o", tmp_path / "no" / "out.litmus")


def test_usage(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(written)]) == 2
    assert run(["export", str(written), "--format", "poem"]) == 2
    assert run(["export", str(tmp_path / "none.tape"), "--format", "litmus"]) == 3
    for ops in ("5", "9:3", "a:b", "-1:5", "1" * 30 + ":"):
        assert run(["export", str(written), "--format", "litmus", f"--ops={ops}"]) == 2
    assert "FIRST:LAST" in capsys.readouterr().err
    for ops, said in (
        (
            "90:90",
            "--ops 90:90 holds no op: LAST is not included (expected FIRST:LAST with FIRST",
        ),
        ("9000:", "no op in 9000: (expected op ids 0 to 150)"),
        ("1:10", "no op in 1:10 (expected op ids 0 to 150)"),
        (":", "FIRST:LAST, FIRST: or :LAST"),
    ):
        assert run(["export", str(written), "--format", "litmus", f"--ops={ops}"]) == 2
        assert said in capsys.readouterr().err, ops


def test_too_large_for_a_litmus_file(tmp_path: Path) -> None:
    b = TapeBuilder()
    h = b.queue(device=b.device(name="host", kind="host"), name="H", kind="host_thread")
    for _ in range(10_001):
        b.op(kind="host", queue=h, issuer=h, access_set=0)
    path = write_tape(b.build(), tmp_path / "big.tape")
    with pytest.raises(UsageError, match=r"10001 ops .*at most 10000") as e:
        call(path, "--format", "litmus")
    assert "--ops FIRST:LAST" in e.value.next_step
    assert call(path, "--format", "litmus", "--ops", "9990:").stdout.count("| host |") == 11


# --- window ---


def test_a_window_says_so_wherever_it_goes(written: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.litmus"
    assert run(["export", str(written), "--format", "litmus", "-o", str(out), "--ops", ":60"]) == 0
    notes = load_tape(out).manifest.notes
    assert notes[-1] == "window 0:60 of 17 ops"
    again = window(load_tape(out), 0, 11)
    assert windows(again.manifest) == ("window 0:60 of 17 ops", "window 0:11 of 6 ops")
    stored = write_tape(again, tmp_path / "again.tape")
    for path, shown in (
        (out, ": complete, a window, "),
        (stored, ": complete, a window, "),
        (written, ": complete, 2"),
    ):
        assert shown in CliRunner().invoke(info, [str(path)]).stdout
    whole = tmp_path / "whole.litmus"
    assert run(["export", str(written), "--format", "litmus", "-o", str(whole), "--ops", "0:"]) == 0
    assert windows(load_tape(whole).manifest) == ()


TEXT = """
1 | alloc | H | | | A=M0[0:64]
2 | kernel | s0 | | A |
3 | record | s0 | | | e
4 | semsig | s0 | | | s
5 | compute | s1 | | |
6 | wait | s1 | | | e
7 | kernel | s1 | A | B |
8 | semwait | s2 | | | s
9 | kernel | s2 | B[0:8/8] | C | | units=4,5
10 | wait_any | s2 | | | e,f
11 | kernel | s3 | C | D | | parent=5
12 | coll | s1 | | | c
13 | coll | s2 | | | c
14 | free | H | | | A
"""


def cut(begin: int, end: int) -> Tape:
    tape = window(parse(TEXT).tape(), begin, end)
    assert validate(tape) == []
    return tape


def labels(tape: Tape) -> list[str]:
    rows: list[str] = tape.table("ops").column("label").to_pylist()
    return rows


def names(tape: Tape, table: str) -> list[str]:
    rows: list[str] = tape.table(table).column("name").to_pylist()
    return rows


def test_window_keeps_ids_and_drops_what_nothing_names() -> None:
    tape = cut(1, 3)
    assert tape.table("ops").column("op").to_pylist() == [1, 2]
    assert names(tape, "buffers") == ["M0", "A"]
    assert names(tape, "syncs") == ["e"]
    (root, sub) = tape.table("buffers").to_pylist()
    assert (root["buffer"], sub["parent"], sub["alloc_op"], sub["free_op"]) == (0, 0, None, None)
    assert tape.table("accesses").column("set").to_pylist() == [1]


def test_whole_window_is_the_tape() -> None:
    tape = parse(TEXT).tape()
    for name in TABLES:
        assert window(tape, 0, 99).table(name).to_pylist() == tape.table(name).to_pylist(), name


def test_window_keeps_parents_and_collectives() -> None:
    assert labels(cut(10, 11)) == ["5", "11"]
    assert labels(cut(12, 13)) == ["12", "13"]
    assert labels(cut(99, 100)) == []


def test_a_wait_for_an_earlier_record_is_no_edge() -> None:
    text = "1 | record | s0 | | | e\n2 | wait | s1 | | | e | of=1\n3 | kernel | s1 | A | |"
    tape = window(parse(text).tape(), 1, 9)
    (wait, _) = tape.table("ops").to_pylist()
    assert (wait["sync_of"], wait["wait_state"]) == (None, "none")


def test_semaphores_across_the_border() -> None:
    tape = cut(4, 9)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == [
        "compute",
        "wait",
        "kernel",
        "mark",
        "kernel",
    ]
    text = TEXT + "15 | semsig | s0 | | | s\n16 | semwait | s3 | | | s\n17 | kernel | s3 | D | |\n"
    tape = window(parse(text).tape(), 13, 99)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == ["free", "mark", "mark", "kernel"]
    assert [(e["src"], e["dst"]) for e in tape.table("edges").to_pylist()] == [(14, 15)]
    assert names(tape, "syncs") == []


def test_a_wait_that_never_ends_stays_one() -> None:
    text = (
        "1 | semsig | s0 | | | s\n2 | semwait | s1 | | | s\n3 | semwait | s1 | | | s\n4 | kernel | s1 | A | |"
    )
    tape = window(parse(text).tape(), 1, 9)
    assert [r["kind"] for r in tape.table("ops").to_pylist()] == ["mark", "semwait", "kernel"]
