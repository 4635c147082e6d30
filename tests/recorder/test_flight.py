"""Flight recorder and gaps, from spools of a writer that knows native/spool.h only; how --last is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import UsageError
from tapedelay.formats.summary import summarise
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.window import windows
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.last import cut_off, keep_last, line_up
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.recorder.flight import Last, parse_last
from tapedelay.recorder.outcome import Evidence, Recording, faults_of
from tapedelay.recorder.saving import Saver, numbered, save, save_living
from tapedelay.replayer.check import check_tape


def collected(folder: Path, *, last: int = 0, last_ns: int = 0) -> Tape:
    spools = read_spools(folder)
    for s in spools:
        s.last_records, s.last_ns = last, last_ns
    line_up(spools)
    keep_last(spools)
    tape = collect(spools)
    assert validate(tape) == []
    return tape


def rows(tape: Tape) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tape.table("ops").to_pylist()
    return found


def working(e: Any, steps: int) -> Path:
    """A device that computes and records an event, another queue that waits for it, in turns."""
    early = e.w.buffer(e.devices[0], 512, name="early")
    event = e.w.event(e.devices[0])
    e.w.record("buffer_alloc", e=early)
    e.w.record("compute", queue=e.queues[0], d=e.w.set([(early, 0, 8, "write", "gone")]))
    graph = e.w.set([(e.memory, 0, 64, "write", "x")])
    for step in range(1, steps + 1):
        e.w.record("compute", queue=e.queues[0], d=graph)
        e.w.record("event_record", queue=e.queues[0], d=event, a=step)
        e.w.record("event_wait", queue=e.queues[1], d=event, a=step)
    folder: Path = e.w.write().parent
    return folder


def test_the_last_records_and_what_they_need(engine: Callable[..., Any]) -> None:
    folder = working(engine(devices=2), 5)
    whole, end = collected(folder), collected(folder, last=7)
    assert (whole.manifest.dropped, windows(whole.manifest)) == (0, ())
    assert (end.manifest.dropped, end.manifest.processes[0].records) == (17 - 7, 7)
    assert windows(end.manifest) == ("window at the end of a run (10 older records dropped)",)
    assert summarise(end)["dropped"] == 10
    kinds = [r["kind"] for r in rows(whole)][-7:]
    assert [r["kind"] for r in rows(end)] == kinds
    # what nothing names any more is gone
    names = [b["name"] for b in end.table("buffers").to_pylist()]
    assert "early" not in names
    assert "early" in [b["name"] for b in whole.table("buffers").to_pylist()]
    # a wait whose record is older has no edge: all that came before the record is older, too
    first = next(r for r in rows(end) if r["kind"] == "wait")
    assert (first["sync_of"], first["wait_state"]) == (None, "none")
    assert [r["sync_of"] is not None for r in rows(end) if r["kind"] == "wait"] == [False, True, True]
    assert any("window at the end" in c.detail for c in check_tape(end).conditions)


def test_a_record_that_may_have_been_lost_stays_unknown(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    e.w.head["lost"] = 1
    end = collected(working(e, 5), last=7)
    assert next(r for r in rows(end) if r["kind"] == "wait")["wait_state"] == "unresolved"


def test_more_than_there_is_and_exactly_that(engine: Callable[..., Any]) -> None:
    folder = working(engine(devices=2), 2)
    for last in (8, 9, 1000):
        tape = collected(folder, last=last)
        assert (tape.manifest.dropped, len(rows(tape))) == (0, 8)
    assert len(rows(collected(folder, last=1))) == 1


def test_the_last_time(engine: Callable[..., Any]) -> None:
    tape = collected(working(engine(devices=2), 5), last_ns=40)  # a record every 10 ns
    assert tape.manifest.processes[0].records == 5
    assert tape.manifest.dropped == 12


def test_the_last_records_of_several_processes(engine: Callable[..., Any]) -> None:
    early, late = engine(wall_ns=1_000, boot=7), engine(mono_ns=500, wall_ns=9_999_999, boot=7)
    for e in (early, late):
        for _ in range(3):
            e.w.record("buffer_free", e=e.host)
        e.w.write()
    tape = collected(early.w.rec.parent, last=4)
    assert [(p.records) for p in tape.manifest.processes] == [1, 3]
    # one clock: the wall clock was set in between, the second process still began 500 ns after the first
    times = [r["issue_ns"] for r in rows(collected(early.w.rec.parent))]
    assert times == [0, 10, 20, 500, 510, 520]
    offsets = [p.wall_offset_ns for p in collected(early.w.rec.parent).manifest.processes]
    assert offsets == [1_010, 9_999_999 - 490]


def test_processes_of_different_boots_meet_by_the_wall_clock(engine: Callable[..., Any]) -> None:
    early, late = engine(wall_ns=1_000, boot=7), engine(mono_ns=0, wall_ns=1_500, boot=8)
    for e in (early, late):
        e.w.record("buffer_free", e=e.host)
        e.w.write()
    assert [r["issue_ns"] for r in rows(collected(early.w.rec.parent))] == [0, 500]


def racing(e: Any, gap: bool) -> Path:
    graph = e.w.set([(e.memory, 0, 64, "write", "x")])
    e.w.record("compute", queue=e.queues[0], d=graph)
    if gap:
        e.w.head["lost"] = 3
        e.w.record("gap", a=3, end=e.w.now + 5)
    e.w.record("compute", queue=e.queues[1], d=graph)
    folder: Path = e.w.write().parent
    return folder


def test_two_queues_that_nothing_orders_race(engine: Callable[..., Any]) -> None:
    whole = check_tape(collected(racing(engine(devices=2), gap=False)))
    assert [f.verdict for f in whole.findings] == ["race"]


def test_a_gap_makes_a_race_unknown(engine: Callable[..., Any]) -> None:
    tape = collected(racing(engine(devices=2), gap=True))
    (mark,) = [r for r in rows(tape) if r["kind"] == "mark"]
    assert mark["name"] == "gap: 3 records lost"
    waits = [r for r in rows(tape) if r["kind"] == "wait"]
    assert [w["wait_state"] for w in waits] == ["unresolved"] * 3  # the thread and both queues
    assert tape.manifest.lost == 3
    report = check_tape(tape)
    assert [f.verdict for f in report.findings] == ["unknown"]
    assert report.verdict == "cannot judge"


def test_lost_times_of_a_worker_order_nothing(engine: Callable[..., Any]) -> None:
    e = engine(devices=2, threads=2)
    slot = e.w.record("compute", queue=e.queues[0], d=e.w.set([(e.memory, 0, 64, "write", "x")]))
    e.w.record("exec", thread=1, a=slot, end=e.w.now + 20)
    e.w.head["lost"] = 2
    e.w.record("gap", thread=1, a=2, end=e.w.now + 15)
    tape = collected(e.w.write().parent)
    assert [r["kind"] for r in rows(tape)] == ["compute"]
    assert tape.manifest.lost == 2


@pytest.mark.parametrize("code", [0, 134])
def test_work_that_was_dropped_is_not_called_missing(
    engine: Callable[..., Any], tmp_path: Path, code: int
) -> None:
    e = engine()
    e.w.record("compute", queue=e.queues[0], d=e.w.set([(e.memory, 0, 64, "write", "x")]))
    e.w.record("sync", queue=e.queues[0])
    folder = e.w.write().parent
    result = Recording(tmp_path / "x.tape", Asked(devices=1), command_code=code, ops=1)
    (fault,) = faults_of(result, collected(folder, last=1), Evidence(), judge_default=False)
    assert fault.exit_code == 4
    assert "in what was kept" in fault.text()
    assert "a greater --last" in fault.text()
    result.computes = {"TAPE0": 1}
    assert faults_of(result, collected(folder), Evidence(), judge_default=False) == []


def test_a_gap_before_the_window_is_forgotten(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    e.w.head["lost"] = 4
    e.w.record("gap", a=4, end=5, at=1)
    tape = collected(working(e, 5), last=7)
    assert tape.manifest.lost == 0
    assert not [r for r in rows(tape) if r["kind"] == "mark"]


def test_a_recording_that_goes_on_ends_at_one_moment(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("sync", queue=e.queues[0], at=100, end=150)
    e.w.record("sync", queue=e.queues[0], at=160, end=400)
    e.w.record("sync", queue=e.queues[0], at=300, end=310)
    spools = read_spools(e.w.write().parent)
    cut_off(spools, 300)
    assert spools[0].records[["issue_ns", "end_ns"]].tolist() == [(100, 150), (160, 0)]
    assert not spools[0].complete


def test_a_command_that_runs_at_that_moment_has_no_end(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    for at, end in ((100, 150), (200, 400)):
        slot = e.w.record("compute", queue=e.queues[0], d=e.w.set([(e.memory, 0, 64, "write", "x")]), at=at)
        e.w.record("exec", thread=1, a=slot, at=at + 10, end=end)
    spools = read_spools(e.w.write().parent)
    cut_off(spools, 300)
    assert [r["duration_ns"] for r in rows(collect(spools))] == [40, None]


def test_a_gap_that_reaches_beyond_that_moment_is_not_forgotten(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.head["lost"] = 4
    e.w.record("gap", a=4, at=150, end=400)
    for at in (100, 160, 170, 180):
        e.w.record("sync", queue=e.queues[0], at=at, end=at + 1)
    spools = read_spools(e.w.write().parent)
    spools[0].last_records = 2
    cut_off(spools, 300)
    keep_last(spools)
    tape = collect(spools)
    assert tape.manifest.lost == 4
    assert [r["name"] for r in rows(tape) if r["kind"] == "mark"] == ["gap: 4 records lost"]


def test_saving_in_a_process_of_its_own(engine: Callable[..., Any], tmp_path: Path) -> None:
    folder = working(engine(devices=2), 3)
    found = save_living(folder, tmp_path / "a.tape")
    assert found == {"ops": 11, "dropped": 0}
    assert (tmp_path / "a.tape").is_dir()
    assert not (folder / "hold").exists()


def test_saving_where_nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not save()  # a program that asks runs without a recorder, too
    monkeypatch.setenv("TAPEDELAY_SPOOL", str(tmp_path))
    assert not save()
    assert not any(tmp_path.iterdir())
    monkeypatch.setenv("TAPEDELAY_SAVE", "1")
    assert save()
    assert sorted(p.name.split("-")[0] for p in tmp_path.iterdir()) == ["hold", "save"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000000", Last(records=1_000_000)), ("1_000", Last(records=1000)), ("30s", Last(ms=30_000)),
        ("500ms", Last(ms=500)), ("1.5s", Last(ms=1500)), ("5m", Last(ms=300_000)),
        ("2h", Last(ms=7_200_000)),
    ],
)  # fmt: skip
def test_what_last_may_say(text: str, expected: Last) -> None:
    assert parse_last(text) == expected
    assert list(expected.variables().values()) == [str(expected.records or expected.ms)]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "0s", "s", "1d", "1e9", "2000000000", "200h", "1 s"])
def test_what_it_may_not(text: str) -> None:
    with pytest.raises(UsageError, match="--last") as error:
        parse_last(text)
    assert error.value.next_step == "say --last 1000000 for records, or --last 30s for a time"
    with pytest.raises(UsageError, match="last=") as error:
        parse_last(text, "last=")
    assert error.value.next_step == "say last=1_000_000 for records, or last='30s' for a time"


def test_tapes_of_an_earlier_run_stay(engine: Callable[..., Any], tmp_path: Path) -> None:
    folder = working(engine(devices=2), 3)
    (tmp_path / "run.1.tape").mkdir()
    (tmp_path / "run.3.tape.zip").write_text("another form")
    result = Recording(tmp_path / "run.tape", Asked())
    saver = Saver()
    for _ in range(2):
        saver._save(result, folder, None)
    assert result.saved == [tmp_path / "run.2.tape", tmp_path / "run.3.tape"]
    assert not any((tmp_path / "run.1.tape").iterdir())


def test_a_request_before_anything_was_recorded_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Recording(tmp_path / "run.tape", Asked())
    Saver()._save(result, tmp_path, None)
    assert (result.faults, result.saved) == ([], [])
    assert "nothing was recorded yet, so nothing is saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run.tape", "run.2.tape"),
        ("run.tape.zip", "run.2.tape.zip"),
        ("a.zip", "a.2.zip"),
        ("run", "run.2"),
        ("a\nb.tape", "a\nb.2.tape"),
    ],
)
def test_names_of_saved_tapes(name: str, expected: str) -> None:
    assert numbered(Path("there") / name, 2) == Path("there") / expected


def test_a_request_that_cannot_be_taken_away_is_said_once(
    engine: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = working(engine(devices=2), 1)
    (folder / "save-1-1.request").mkdir()
    result = Recording(tmp_path / "run.tape", Asked())
    with Saver().along(result, folder):
        pass
    (fault,) = result.faults
    assert "requests to save are not answered any more" in fault.found
    assert capsys.readouterr().err.count("ERROR") == 1
