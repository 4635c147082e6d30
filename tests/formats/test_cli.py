"""The command line: lazy, one screen, stable text, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.cli import COMMANDS
from tapedelay.formats.dump import dump_lines
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import SCHEMAS
from tapedelay.formats.summary import summarise
from tapedelay.formats.tape import Manifest, Tape
from tapedelay.formats.validate import RULES


def test_starts_without_heavy_imports() -> None:
    code = (
        "import sys\n"
        "from tapedelay.formats.cli import run\n"
        "assert run(['--help']) == 0\n"
        "heavy = {'pyarrow', 'numpy', 'rich', 'msgpack', 'hypothesis'} & set(sys.modules)\n"
        "ours = {m for m in sys.modules if m.startswith('tapedelay.') and m.count('.') > 1}\n"
        "print(heavy, sorted(ours), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    light = ("cli", "commands", "commands.common", "errors", "shown")
    assert done.stderr.strip() == f"set() {[f'tapedelay.formats.{n}' for n in light]}"
    for name in COMMANDS:
        assert f"\n  {name}" in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_there(run_cli: Any, name: str) -> None:
    done = run_cli(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: tapedelay {name}" in done.stdout
    assert "--json" in done.stdout


def test_the_span_reaches_to_the_last_end_that_was_seen() -> None:
    b = TapeBuilder()
    queue = b.queue(device=b.device(name="g", kind="gpu"), name="q", kind="queue")
    for issue, after, took in ((None, 900, 900), (5, 10, 4_000), (25, None, None), (30, 3, None)):
        b.op(kind="kernel", queue=queue, issue_ns=issue, start_after_issue_ns=after, duration_ns=took)
    assert summarise(b.build(Manifest()))["span_ns"] == 4_010
    assert summarise(TapeBuilder().build(Manifest()))["span_ns"] is None


def test_info(written: Path, run_cli: Any) -> None:
    done = run_cli("info", written)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24, "one screen"
    for words in (
        "rich.tape: complete, 2 records lost, format 0",
        "engine     llama.cpp build 10229, api_version 2",
        "switches   GGML_SCHED_DEBUG off",
        "span       20 ns, 1 steps, 1 process",
        "0 host (host, profile ggml-host)",
        "0 H (host_thread of device 0): 6 ops; host_accesses partial, waits partial",
        "1 TAPE0 (queue of device 1): 5 ops; all seen",
        "ops        17: coll 2, sync 2, wait 2,",
        "unknown    1 unresolved waits, 2 ops with unknown accesses",
        "sets       3 access sets of 4 rows",
        "note       split and step: not seen without the tap",
    ):
        assert any(words in line for line in lines), (words, lines)
    assert done.stderr == f"next: tapedelay check {written}\n"
    facts = json.loads(run_cli("info", "--json", written).stdout)
    assert facts["ops_by_kind"]["wait"] == 2
    assert facts["steps"] == 1
    assert facts["tables"]["nodes"] == 3
    assert facts["lost"] == 2


def test_incomplete_and_hostile_names(rich_builder: Any, tmp_path: Path, run_cli: Any) -> None:
    from tapedelay.formats.tape import Process
    from tapedelay.formats.write import write_tape

    rich_builder.rows("devices")[1].update(name="evil\x1b[2J\n", profile="strict")
    manifest = Manifest(complete=False, processes=(Process(0, complete=False),), notes=("a\x07b",))
    done = run_cli("info", write_tape(rich_builder.build(manifest), tmp_path / "a.tape"))
    assert "NOT complete" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "evil\\x1b[2J\\n" in done.stdout


def test_dump(written: Path, run_cli: Any) -> None:
    done = run_cli("info", "--dump", written)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    tape = open_tape(written)
    assert lines == list(dump_lines(tape))
    heads = [line.split(" ")[0] for line in lines if not line.startswith("manifest")]
    assert heads == [f"{n}{{{i}}}" for n in SCHEMAS for i in range(tape.table(n).num_rows)]
    for line in (
        "manifest format_write=0 format_read=0 complete=true lost=2",
        "manifest.coverage{0} queue=0 accesses=full host_accesses=partial waits=partial times=full",
        'buffers{2} buffer=2 device=0 name="M0 \\u2013 gr\\u00f6\\u00dfer" kind=host generation=0',
        "ops{6} op=60 kind=wait queue=2 issuer=0 sync=0 sync_of=50 access_set=0 issue_ns=12 origin=observed",
        "nodes{0} graph=0 node=0 op=MUL_MAT op_params=00ff dtype=f32 shape=[4,2,1,1] strides=[4,16,32,32] "
        "sources=[1,2] flags=0 is_input=false is_output=true",
        'requests{0} request=0 scheduler=0 prompt_tokens=12 flags=["stream","echo"] id_rank=1',
        "telemetry{0} at_ns=4 device=1 metric=power value=12.5 unit=W",
    ):
        assert line in lines
    objects = [json.loads(x) for x in run_cli("info", "--dump", "--json", written).stdout.splitlines()]
    assert len(objects) == len(heads)
    assert objects[-1] == {
        "table": "telemetry",
        "row": 0,
        "values": {"at_ns": 4, "device": 1, "metric": "power", "value": 12.5, "unit": "W"},
    }


def test_dump_without_times_compares_two_runs(rich_builder: Any, rich_tape: Tape) -> None:
    import dataclasses

    for row in rich_builder.rows("ops"):
        if row["issue_ns"] is not None:
            row["issue_ns"] += 1000
        row["duration_ns"] = 5
    rich_builder.rows("telemetry").append({**rich_builder.rows("telemetry")[0], "value": 99.0})
    process = dataclasses.replace(rich_tape.manifest.processes[0], wall_offset_ns=5)
    other = rich_builder.build(dataclasses.replace(rich_tape.manifest, processes=(process,)))
    assert list(dump_lines(rich_tape)) != list(dump_lines(other))
    one = list(dump_lines(rich_tape, times=False))
    assert one == list(dump_lines(other, times=False))
    assert not any("_ns=" in line or "telemetry" in line for line in one)
    rich_builder.rows("ops")[4]["bytes"] = 1
    assert one != list(dump_lines(rich_builder.build(rich_tape.manifest), times=False))


def test_validate(written: Path, rich_builder: Any, rich_tape: Tape, tmp_path: Path, run_cli: Any) -> None:
    from tapedelay.formats.write import write_tape

    done = run_cli("info", "--validate", written)
    assert (done.returncode, done.stdout) == (0, f"rich.tape: valid, {len(RULES)} rules hold\n")
    rich_builder.rows("ops")[2]["queue"] = 9
    rich_builder.rows("edges")[0]["src"] = 120
    bad = write_tape(rich_builder.build(rich_tape.manifest), tmp_path / "bad.tape")
    done = run_cli("info", "--validate", bad)
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "ref: ops{2}: queue 9 is not in queues",
        "edge: edges{0}: src and dst are the same op",
    ]
    found = json.loads(run_cli("info", "--validate", "--json", bad).stdout)
    assert not found["valid"]
    assert [v["code"] for v in found["violations"]] == ["ref", "edge"]
    # what draws conclusions refuses it; what only shows it does not
    assert run_cli("check", bad).returncode == 3
    assert run_cli("info", bad).returncode == 0


def test_pack(written: Path, run_cli: Any) -> None:
    done = run_cli("pack", written)
    packed = written.with_name("rich.tape.zip")
    assert done.returncode == 0
    assert done.stderr == f"next: tapedelay info {packed}\n"
    relative = run_cli("pack", written.name, cwd=written.parent)
    assert relative.returncode == 2, "it is there already"
    relative = run_cli("pack", written.name, "--force", cwd=written.parent)
    assert relative.stdout == f"rich.tape.zip: {packed.stat().st_size:,} bytes\n"
    assert relative.stderr == "next: tapedelay info rich.tape.zip\n"
    assert run_cli("info", "--dump", packed).stdout == run_cli("info", "--dump", written).stdout
    again = run_cli("pack", "--json", written, "-o", written.with_name("b.zip"))
    assert json.loads(again.stdout)["bytes"] == packed.stat().st_size
    assert packed.read_bytes() == written.with_name("b.zip").read_bytes()
    assert run_cli("pack", packed).returncode == 2
    assert run_cli("pack", written, "-o", written).returncode == 2
    assert run_cli("pack", written, "-o", written.with_name("no") / "x.zip").returncode == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["info"],
        ["info", "--bad", "x"],
        ["info", "x", "--dump", "--validate"],
        ["info", "x", "--no-times"],
    ],
)
def test_usage(run_cli: Any, arguments: list[str]) -> None:
    assert run_cli(*arguments).returncode == 2
    done = run_cli(*arguments, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "UsageError"


def test_reader_that_leaves(written: Path) -> None:
    code = f"from tapedelay.formats.cli import main; main(['info', '--dump', {str(written)!r}])"
    script = f'set -o pipefail; "{sys.executable}" -c "{code}" | head -1'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode in (0, 141)  # 1 would mean that something was found
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_internal_errors_are_one_line(written: Path) -> None:
    code = (
        "import tapedelay.formats.summary as s\n"
        "s.summarise = lambda t: 1 / 0\n"
        "from tapedelay.formats.cli import main\n"
        f"main(['info', {str(written)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr.startswith("error: internal error: ZeroDivisionError")
    assert "Traceback" not in done.stderr
