"""Telemetry through a stand-in for the driver's library: what it tells, what not, and when it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.errors import SpoolError
from tapedelay.formats.load import load_tape
from tapedelay.formats.sampled import sampled
from tapedelay.formats.tape import Tape
from tapedelay.recorder.telemetry.files import DESCRIPTION, SAMPLES, SampleFile, write_description
from tapedelay.recorder.telemetry.nvml import METRICS
from tapedelay.recorder.telemetry.table import Place, Samples, read_samples, with_telemetry

Environment = dict[str, str]
Standin = Callable[[str], Environment]
SAMPLE = (
    "import sys, time\nfrom pathlib import Path\nfrom tapedelay.recorder.telemetry import Telemetry\n"
    "spool = Path(sys.argv[1])\n"
    "with Telemetry(10).along(None, spool):\n"
    "    until = time.monotonic() + 20\n"
    "    while time.monotonic() < until and not (%s):\n        time.sleep(0.01)\n"
)
WAIT = "until = time.monotonic() + 20\nwhile time.monotonic() < until and not ({}): time.sleep(0.01)\n"
ENTRY = "from tapedelay.formats.cli import main; main()"
ROW_BYTES = 16 + 8 * len(METRICS)


def rows(spool: str, at_least: int) -> str:
    """Return an expression that holds once so many samples are in the file."""
    path = f"({spool} / 'telemetry.samples')"
    return f"{path}.exists() and {path}.stat().st_size >= {at_least * ROW_BYTES}"


def run_sampler(environment: Environment, spool: Path, until: str) -> Samples:
    """Sample in a process of its own, as ``record`` does, until something holds."""
    done = subprocess.run(
        [sys.executable, "-c", SAMPLE % until, str(spool)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return read_samples(spool)


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until and not holds():
        time.sleep(0.01)
    return holds()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def of(found: Samples, device: int, metric: str) -> list[float]:
    column = [name for name, _ in found.metrics].index(metric)
    values = found.values[found.device == device, column]
    return [float(v) for v in values[np.isfinite(values)]]


def test_what_the_driver_tells(standin: Standin, tmp_path: Path) -> None:
    found = run_sampler(standin(""), tmp_path, rows("spool", 8))
    assert found.notes == []
    assert found.buses == ["00000000:1A:00.0", "00000000:1B:00.0"]
    for device in (0, 1):
        power = of(found, device, "power")
        assert len(power) >= 4
        assert power == [251.5 + i for i in range(len(power))]
        assert set(of(found, device, "sm_clock")) == {1000 + 10 * device}
        assert set(of(found, device, "memory_clock")) == {2000 + 10 * device}
        assert set(of(found, device, "temperature")) == {60}
        assert set(of(found, device, "memory_used")) == {3 * 2**33}
        assert set(of(found, device, "utilisation")) == {97}
        assert set(of(found, device, "memory_utilisation")) == {41}
        assert set(of(found, device, "throttle_reasons")) == {4}
        assert set(of(found, device, "pcie_tx")) == {5_000_000}
        assert set(of(found, device, "pcie_rx")) == {7_000_000}


def test_what_is_not_supported_is_said_once_and_the_rest_goes_on(standin: Standin, tmp_path: Path) -> None:
    found = run_sampler(standin("unsupported"), tmp_path, rows("spool", 6))
    assert len(found.notes) == 2
    assert found.notes[0].startswith("telemetry: nvml0 does not tell pcie_tx, pcie_rx (")
    assert found.notes[1].startswith("telemetry: nvml1 does not tell power, pcie_tx, pcie_rx (")
    assert len(of(found, 0, "power")) >= 3
    assert of(found, 1, "power") == of(found, 0, "pcie_tx") == []
    assert len(of(found, 1, "sm_clock")) >= 3


def test_a_device_that_vanishes_is_said_once_and_the_other_goes_on(standin: Standin, tmp_path: Path) -> None:
    found = run_sampler(standin("lost"), tmp_path, rows("spool", 16))
    (note,) = found.notes
    assert note.startswith("telemetry: nvml1 stopped answering (")
    assert len(of(found, 1, "power")) == 3
    assert len(of(found, 0, "power")) > 6


def test_when_every_device_has_vanished_nobody_is_asked_any_more(standin: Standin, tmp_path: Path) -> None:
    gone = "(spool / 'telemetry.json').exists() and 'nvml1 stopped' in (spool / 'telemetry.json').read_text()"
    found = run_sampler(standin("all-lost"), tmp_path, gone)
    assert len(found.notes) == 2
    assert len(found.at_ns) == 8


def test_a_driver_that_never_answers_again_does_not_hold_up_the_end(standin: Standin, tmp_path: Path) -> None:
    found = run_sampler(standin("hang"), tmp_path, rows("spool", 6))
    assert found.notes == ["telemetry: NVML did not answer at the end of the run"]
    assert len(of(found, 0, "power")) == 3


@pytest.mark.parametrize(
    ("scenario", "how"),
    [
        ("crash-at-init", "ended with signal 11"),
        ("hang-in-constructor", "did not answer at the end of the run"),
    ],
)
def test_a_library_that_crashes_or_hangs_when_it_is_loaded(
    standin: Standin, tmp_path: Path, scenario: str, how: str
) -> None:
    loaded = tmp_path / "loaded"
    environment = {**standin(scenario), "STANDIN_PID": str(loaded)}
    found = run_sampler(environment, tmp_path, f"Path({str(loaded)!r}).exists()")
    assert found.notes == [f"telemetry: NVML {how}"]
    assert not len(found.at_ns)


@pytest.mark.parametrize(
    ("scenario", "how"), [("crash", "ended with signal 11"), ("exit", "ended with exit code 0")]
)
def test_a_library_that_ends_its_process_midway(
    standin: Standin, tmp_path: Path, scenario: str, how: str
) -> None:
    found = run_sampler(standin(scenario), tmp_path, rows("spool", 6))
    assert found.notes == [f"telemetry: NVML {how}"]
    assert found.buses == ["00000000:1A:00.0", "00000000:1B:00.0"]
    assert of(found, 0, "power") == [251.5, 252.5, 253.5], "what was sampled before is kept"


def test_names_that_are_no_utf8_are_left_out_and_the_rest_goes_on(standin: Standin, tmp_path: Path) -> None:
    found = run_sampler(standin("no-utf8"), tmp_path, rows("spool", 6))
    assert found.notes == []
    assert found.buses == ["", "00000000:1B:00.0"]
    assert [d["name"] for d in json.loads((tmp_path / DESCRIPTION).read_text())["devices"]] == ["", ""]
    assert len(of(found, 0, "power")) >= 3


@pytest.mark.parametrize("scenario", ["", "hang-in-constructor"])
def test_the_sampler_has_its_own_session_and_dies_with_a_killed_recorder(
    standin: Standin, tmp_path: Path, scenario: str
) -> None:
    loaded = tmp_path / "loaded"
    environment = {**os.environ, **standin(scenario), "STANDIN_PID": str(loaded)}
    recorder = subprocess.Popen(
        [sys.executable, "-c", SAMPLE % "False", str(tmp_path)], env=environment, start_new_session=True
    )
    try:
        assert eventually(lambda: loaded.exists() and loaded.read_text().endswith("\n"))
        sampler = int(loaded.read_text())
        assert os.getsid(sampler) == sampler != recorder.pid
        os.killpg(recorder.pid, signal.SIGKILL)
    finally:
        recorder.kill()
        recorder.wait()
    assert eventually(lambda: ended(sampler))


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("no-driver", "telemetry: no NVML (Driver Not Loaded"),
        ("no-device", "telemetry: NVML knows no device"),
    ],
)
def test_no_driver_or_no_device(standin: Standin, tmp_path: Path, scenario: str, says: str) -> None:
    found = run_sampler(standin(scenario), tmp_path, "(spool / 'telemetry.json').exists()")
    assert [n[: len(says)] for n in found.notes] == [says]
    assert not len(found.at_ns)


def test_no_place_for_samples_is_said(standin: Standin, tmp_path: Path) -> None:
    (tmp_path / SAMPLES).mkdir()
    reason = "'could not be written' in (spool / 'telemetry.json').read_text()"
    done = subprocess.run(
        [sys.executable, "-c", SAMPLE % f"(spool / 'telemetry.json').exists() and {reason}", str(tmp_path)],
        env={**os.environ, **standin("")},
        timeout=60,
        check=True,
    )
    assert done.returncode == 0
    (note,) = json.loads((tmp_path / DESCRIPTION).read_text())["notes"]
    assert note.startswith("telemetry: ended early: the samples could not be written (")


# --- the file -----------------------------------------------------------------------------------------------


def written(folder: Path, samples: int, *, newest: bool) -> tuple[np.ndarray, np.ndarray, SampleFile]:
    (folder / DESCRIPTION).write_text(
        json.dumps({"metrics": [["a", "x"]], "devices": [{"bus": ""}] * 2, "notes": []})
    )
    file = SampleFile(folder, 1, newest=newest, limit_bytes=100 * 24)
    for i in range(samples):
        file.add(i, 0, [1.0])
        file.add(i, 1, [2.0])
    file.close()
    assert (folder / SAMPLES).stat().st_size <= 100 * 24
    found = read_samples(folder)
    return found.at_ns, found.device, file


def test_a_long_run_is_thinned_out_and_still_covered(tmp_path: Path) -> None:
    at, device, file = written(tmp_path, 1000, newest=False)
    assert file.halvings > 3
    for d in (0, 1):
        mine = at[device == d]
        assert mine[0] == 0
        assert mine[-1] > 980
        assert len(mine) >= 25


def test_of_a_ring_the_end_is_kept(tmp_path: Path) -> None:
    at, device, file = written(tmp_path, 1000, newest=True)
    assert file.halvings == 0
    for d in (0, 1):
        mine = at[device == d]
        assert len(mine) >= 25
        assert mine.tolist() == list(range(int(mine[0]), 1000)), "no gaps, up to the last"


def test_a_row_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    at, *_ = written(tmp_path, 10, newest=False)
    data = (tmp_path / SAMPLES).read_bytes()
    (tmp_path / SAMPLES).write_bytes(data[:-5])
    assert len(read_samples(tmp_path).at_ns) == len(at) - 1


@pytest.mark.parametrize(
    "said",
    [
        "{",
        "[]",
        '{"metrics": 3, "devices": [], "notes": []}',
        '{"metrics": [["a"]], "devices": [], "notes": []}',
        '{"metrics": [["a", 1]], "devices": [], "notes": []}',
        '{"metrics": [["a", "x"]], "devices": [{"bus": ""}], "notes": []}',  # two devices in the rows
        "[" * 10_000,
    ],
)
def test_damage_is_refused(tmp_path: Path, said: str) -> None:
    written(tmp_path, 3, newest=False)
    (tmp_path / DESCRIPTION).write_text(said)
    with pytest.raises(SpoolError, match="not what a sampler writes"):
        read_samples(tmp_path)


# --- whose samples they are ---------------------------------------------------------------------------------

SHORT, LONG = "0000:1a:00.0", "00000000:1A:00.0"


@pytest.mark.parametrize(
    ("buses", "places", "of"),
    [
        ([LONG, "00000000:1B:00.0"], [Place(4, True, SHORT)], [4, None]),
        ([LONG], [Place(4, False, SHORT)], [4]),  # another API of the same card
        ([LONG], [Place(4, True)], [4]),  # the only one
        ([LONG], [Place(4, False)], [None]),  # of another maker
        ([LONG], [Place(4, True, "0001:1a:00.0")], [None]),
        ([LONG, "00000000:1B:00.0"], [Place(4, True), Place(5, True)], [None, None]),  # in which order?
        (["", "x:y"], [Place(4, True, ""), Place(5, True, "x:y")], [None, None]),
        ([LONG], [Place(4, True, SHORT), Place(9, True, SHORT)], [4]),  # of two processes the first
    ],
)
def test_a_device_is_named_where_that_is_certain(
    tmp_path: Path, buses: list[str], places: list[Place], of: list[int | None]
) -> None:
    write_description(
        tmp_path, {"metrics": [["power", "W"]], "devices": [{"bus": b} for b in buses], "notes": []}
    )
    file = SampleFile(tmp_path, 1)
    for i in range(len(buses)):
        file.add(5 + i, i, [1.0])
    file.close()
    builder = TapeBuilder()
    for i in range(10):
        builder.device(name=f"d{i}")
    tape = with_telemetry(builder.build(), tmp_path, places, -5)
    rows = tape.table("telemetry").to_pylist()
    assert [(r["at_ns"], r["device"], r["metric"]) for r in rows] == [
        (i, device, f"nvml{i}.power" if device is None else "power") for i, device in enumerate(of)
    ]
    assert [(s.device, s.metric, s.unit, s.value.tolist()) for s in sampled(tape)] == sorted(
        ([(-1 if d is None else d, r["metric"], "W", [1.0]) for d, r in zip(of, rows, strict=True)]),
        key=lambda s: (s[0] < 0, s),
    )


# --- a recording --------------------------------------------------------------------------------------------


def record(tmp_path: Path, spool: Path, environment: Environment, *words: str, code: str = "") -> Tape:
    """Record a command that leaves a spool behind, as an engine would, then goes on with `code`."""
    plugin = tmp_path / "plugin.so"
    plugin.write_text("")
    copy = (
        f"import os, pathlib, shutil, signal, time\nspool = pathlib.Path(os.environ['TAPEDELAY_SPOOL'])\n"
        f"for f in pathlib.Path({str(spool)!r}).iterdir(): shutil.copy(f, spool)\n"
    )
    if "hold" in code:
        code = code.replace("hold", WAIT.format(rows("spool", 10)))
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "record", "--force", "-o", "run.tape", "--telemetry-ms", "10", *words,
         "--", sys.executable, "-c", copy + code],
        cwd=tmp_path, env={**os.environ, "TAPEDELAY_PLUGIN": str(plugin), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return load_tape(tmp_path / "run.tape")


def an_engine(engine: Any) -> Path:
    """Return a spool of now, with a device that NVML knows by its bus and one that it does not."""
    e = engine(mono_ns=time.monotonic_ns(), wall_ns=time.time_ns())
    card = e.w.device("CUDA0", test=False, profile="", reg="CUDA", bus="0000:1b:00.0")
    queue = e.w.queue(card, "CUDA0")
    e.w.record("compute", queue=queue, d=e.w.set([(e.memory, 0, 8, "write", "x")]))
    folder: Path = e.w.write().parent
    return folder


def test_a_killed_engine_keeps_its_samples_on_the_tapes_clock(
    standin: Standin, engine: Any, tmp_path: Path
) -> None:
    begun = time.monotonic_ns()
    spool = an_engine(engine)
    tape = record(tmp_path, spool, standin("lost"), code="hold\nos.kill(os.getpid(), 9)")
    took = time.monotonic_ns() - begun
    names = {d["name"]: d["device"] for d in tape.table("devices").to_pylist()}
    samples = tape.table("telemetry").to_pylist()
    assert all(0 < s["at_ns"] < took for s in samples)
    assert [s["at_ns"] for s in samples] == sorted(s["at_ns"] for s in samples)
    mapped = {s["metric"] for s in samples if s["device"] == names["CUDA0"]}
    assert mapped == {name for name, _ in METRICS}
    clocks = [s for s in samples if s["metric"] == "sm_clock"]
    assert {(s["value"], s["unit"], s["device"]) for s in clocks} == {(1010.0, "MHz", names["CUDA0"])}
    assert {s["metric"] for s in samples if s["device"] is None} == {f"nvml0.{name}" for name, _ in METRICS}
    assert sum("nvml1 stopped answering" in n for n in tape.manifest.notes) == 1
    assert "Stand-in" not in str(tape.manifest) + str(samples)

    shown = subprocess.run(
        [sys.executable, "-c", ENTRY, "info", "run.tape"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f" CUDA0 sm_clock: 1,010 / 1,010 / 1,010 MHz (min / median / max of {len(clocks)})\n" in shown
    assert "\ntelemetry  CUDA0 memory_clock: " in shown
    assert " nvml0.temperature: 60 / 60 / 60 C (" in shown


def test_without_a_driver_the_tape_says_so_and_is_otherwise_equal(
    no_driver: Environment, engine: Any, tmp_path: Path
) -> None:
    spool = an_engine(engine)
    with_it = record(tmp_path, spool, no_driver, code=WAIT.format("(spool / 'telemetry.json').exists()"))
    tables = {n: with_it.table(n).to_pylist() for n in with_it.present}
    notes = with_it.manifest.notes
    without = record(tmp_path, spool, no_driver, "--no-telemetry")
    said = "telemetry: no NVML (libnvidia-ml.so.1 is not there: no NVIDIA driver)"
    assert notes == (*without.manifest.notes, said)
    assert tables == {n: without.table(n).to_pylist() for n in without.present}
    assert "telemetry" not in tables


def test_a_library_that_crashes_is_said_once_and_the_tape_is_otherwise_equal(
    standin: Standin, engine: Any, tmp_path: Path
) -> None:
    spool = an_engine(engine)
    loaded = tmp_path / "loaded"
    environment = {**standin("crash-at-init"), "STANDIN_PID": str(loaded)}
    with_it = record(tmp_path, spool, environment, code=WAIT.format(f"os.path.exists({str(loaded)!r})"))
    tables = {n: with_it.table(n).to_pylist() for n in with_it.present}
    without = record(tmp_path, spool, environment, "--no-telemetry")
    assert with_it.manifest.notes == (*without.manifest.notes, "telemetry: NVML ended with signal 11")
    assert tables == {n: without.table(n).to_pylist() for n in without.present}


def test_signals_reach_the_command_while_samples_are_taken(
    standin: Standin, engine: Any, tmp_path: Path
) -> None:
    code = (
        "signal.signal(signal.SIGTERM, lambda *a: (spool / 'got').write_text(''))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "until = time.monotonic() + 20\n"
        "while time.monotonic() < until and not (spool / 'got').exists(): time.sleep(0.01)\n"
        "assert (spool / 'got').exists()\nhold\n"
    )
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    tape = record(tmp_path, an_engine(engine), standin(""), code=code)
    assert tape.table("telemetry").num_rows > 10
