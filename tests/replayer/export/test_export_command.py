"""`tapedelay export`: litmus, Perfetto and HTML on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.cli import run
from tapedelay.formats.commands.info import info
from tapedelay.formats.errors import InfrastructureError, UsageError
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.window import window, windows
from tapedelay.formats.write import write_tape
from tapedelay.replayer.export.command import export

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
    left = "only the ops: 1 request scheduler left out, see --scheduler 0\n"
    assert result.stderr == f"{left}next: tapedelay check {out}\n"
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
            "--ops 90:90 holds nothing: LAST is not included (expected FIRST:LAST with FIRST",
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


# --- perfetto and html ---

ROOT = Path(__file__).resolve().parents[3]
BAD = ROOT / "traces" / "ggml-26040-bad.tape.zip"
GOOD = ROOT / "traces" / "ggml-26040-good.tape.zip"


def test_perfetto_with_the_finding_marked(tmp_path: Path) -> None:
    out = tmp_path / "bad.pftrace"
    result = call(BAD, "--format", "perfetto", "-o", out)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{out}: 1,423 ops, ")
    assert result.stdout.rstrip().endswith("1 finding")
    assert "Perfetto UI" in result.stderr
    data = out.read_bytes()
    assert b"RACE WAR on `TAPE_Host.2`" in data
    assert b"missing edge" in data
    assert [p.name for p in tmp_path.iterdir()] == ["bad.pftrace"]


def test_perfetto_without_a_finding(tmp_path: Path) -> None:
    out = tmp_path / "good.pftrace"
    data = json.loads(call(GOOD, "--format", "perfetto", "-o", out, "--json").stdout)
    assert (data["findings"], data["ops"], data["backward"], data["times_recorded"]) == (0, 1616, 0, True)
    assert data["file"] == str(out)
    assert b"missing edge" not in out.read_bytes()


def test_perfetto_of_a_litmus_file_says_that_it_has_no_times(tmp_path: Path) -> None:
    litmus = ROOT / "tests" / "corpus" / "ops" / "B01.litmus"
    result = call(litmus, "--format", "perfetto", "-o", tmp_path / "b.pftrace")
    assert "the tape has no times" in result.stdout
    assert b"missing edge" in (tmp_path / "b.pftrace").read_bytes()
    fixed = call(f"{litmus}:fixed", "--format", "perfetto", "-o", tmp_path / "f.pftrace")
    assert "0 findings" in fixed.stdout


def test_perfetto_of_a_window(tmp_path: Path) -> None:
    result = call(BAD, "--format", "perfetto", "--ops", "70:90", "-o", tmp_path / "w.pftrace")
    assert ": 20 ops, " in result.stdout


def test_html_is_about_the_first_finding(tmp_path: Path) -> None:
    page = call(BAD, "--format", "html").stdout
    assert page.startswith("<!DOCTYPE html>")
    assert "nothing orders the copy of `model.input_embed` on TAPE0 before the CPU compute" in page
    assert page.count('class="link"') == 1
    out = tmp_path / "bad.html"
    result = call(BAD, "--format", "html", "-o", out)
    assert out.read_text() == page
    assert result.stdout == f"{out}: 1423 ops\n"
    data = json.loads(call(BAD, "--format", "html", "--json").stdout)
    assert (data["finding"], data["title"], data["text"]) == (1, "RACE WAR on `TAPE_Host.2`", page)


def test_which_finding(tmp_path: Path) -> None:
    litmus = tmp_path / "two.litmus"
    litmus.write_text(
        "1 | kernel | s0 | | A |\n2 | kernel | s1 | | A |\n3 | kernel | s1 | | B |\n4 | kernel | s2 | B | |\n"
    )
    pages = [call(litmus, "--format", "html", "--finding", n).stdout for n in (1, 2)]
    assert "WAW on `A`" in pages[0]
    assert "RAW on `B`" in pages[1]
    for n, out in enumerate((tmp_path / "all", tmp_path / "one")):
        call(litmus, "--format", "perfetto", "-o", out, *(["--finding", 2] if n else []))
        assert b"RAW on `B`" in out.read_bytes()
        assert (b"WAW on `A`" in out.read_bytes()) == (not n)
    with pytest.raises(UsageError, match=r"finding 3 \(expected a number from 1 to 2\)"):
        call(litmus, "--format", "html", "--finding", 3)
    with pytest.raises(UsageError, match="no finding"):
        call(GOOD, "--format", "html")


def test_usage_of_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(BAD), "--format", "perfetto"]) == 2
    assert "the format is binary" in capsys.readouterr().err
    assert run(["export", str(BAD), "--format", "litmus", "--finding", "1"]) == 2
    assert run(["export", str(BAD), "--format", "html", "--finding", "0"]) == 2
    assert run(["export", str(BAD), "--format", "perfetto", "-o", str(tmp_path / "no" / "x")]) == 5
    assert run(["export", str(BAD), "--format", "perfetto", "-o", str(BAD)]) == 2
    (tmp_path / "there").write_text("x")
    assert run(["export", str(BAD), "--format", "perfetto", "-o", str(tmp_path / "there")]) == 2
    assert (tmp_path / "there").read_text() == "x"
    assert run(["export", str(BAD), "--format", "perfetto", "-o", str(tmp_path / "there"), "--force"]) == 0


def test_an_export_that_is_broken_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tapedelay.formats.exporters.perfetto.export._Trace._counters", stop)
    assert run(["export", str(BAD), "--format", "perfetto", "-o", str(tmp_path / "x")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_bytes_that_are_no_text(tmp_path: Path) -> None:
    source = ROOT / "tests" / "corpus" / "ops" / "B01.litmus"
    folder = tmp_path / os.fsdecode(b"\xff\x1b[31m")
    folder.mkdir()
    path = folder / os.fsdecode(b"\xfe<b>.litmus")
    path.write_bytes(source.read_bytes())
    page = call(path, "--format", "html").stdout
    assert "\\udcfe&lt;b&gt;.litmus" in page
    assert "\x1b" not in page
    out = folder / "x.pftrace"
    done = call(path, "--format", "perfetto", "-o", out)
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert out.is_file()
