"""Every rule of the edge contract, both ways: with it two writes are ordered, without it they race."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.tape import Coverage, Manifest, Tape
from tapedelay.replayer.check import check_tape


@dataclass
class Scene:
    """Two host threads, two devices with two queues each, one buffer, and short ways to add rows."""

    profile: str = "strict"
    coverage: tuple[Coverage, ...] = ()
    b: TapeBuilder = field(default_factory=TapeBuilder)

    def __post_init__(self) -> None:
        b = self.b
        self.cpu = b.device(name="cpu", kind="host")
        self.g0 = b.device(name="g0", kind="gpu", profile=self.profile)
        self.g1 = b.device(name="g1", kind="gpu", profile=self.profile)
        self.h = b.queue(device=self.cpu, name="H", kind="host_thread")
        self.t = b.queue(device=self.cpu, name="T", kind="host_thread")
        self.a = b.queue(device=self.g0, name="a")
        self.c = b.queue(device=self.g0, name="c")
        self.d = b.queue(device=self.g1, name="d")
        self.loose = b.queue(device=self.g1, name="loose", in_order=False)
        self.default = b.queue(device=self.g0, name="default", kind="default")
        self.e = b.sync(name="e", kind="event")
        self.f = b.sync(name="f", kind="event")
        self.s = b.sync(name="s", kind="semaphore")
        self.m = b.buffer(device=self.g0, name="M", bytes=64)
        self.host_memory = b.buffer(device=self.cpu, name="P", bytes=64, kind="host")

    def op(self, kind: str, queue: int, **more: Any) -> int:
        more.setdefault("issuer", queue if queue in (self.h, self.t) else self.h)
        more.setdefault("access_set", 0)
        return self.b.op(kind=kind, queue=queue, **more)

    def write(self, queue: int, **more: Any) -> int:
        """Add an op that writes all of M."""
        touched = self.b.access_set([{"buffer": self.m, "offset": 0, "bytes": 64, "mode": "write"}])
        return self.op(more.pop("kind", "kernel"), queue, access_set=touched, **more)

    def tape(self) -> Tape:
        return self.b.build(Manifest(coverage=self.coverage))

    def lines(self) -> list[str]:
        return check_tape(self.tape()).verdict_lines()

    def ordered(self) -> bool:
        lines = self.lines()
        assert lines in (["clean"], [f"race: {self.pair()} WAW M[0:64]"]), lines
        return lines == ["clean"]

    def pair(self) -> str:
        writers = [r["op"] for r in self.b.rows("ops") if r["access_set"]]
        return f"#{writers[0]}x#{writers[-1]}"


def test_program_order_of_a_host_thread() -> None:
    s = Scene()
    s.write(s.h, kind="host")
    s.write(s.h, kind="host")
    assert s.ordered()
    s = Scene()
    s.write(s.h, kind="host")
    s.write(s.t, kind="host")
    assert not s.ordered()


def test_fifo_of_an_in_order_queue_only() -> None:
    for queue, expected in (("a", True), ("loose", False)):
        s = Scene()
        s.write(getattr(s, queue))
        s.write(getattr(s, queue))
        assert s.ordered() is expected


@pytest.mark.parametrize(("issuer", "expected"), [("h", True), ("t", False), (None, False)])
def test_issue_comes_after_what_the_issuer_did(issuer: str | None, expected: bool) -> None:
    s = Scene()
    s.write(s.h, kind="host")
    s.write(s.a, issuer=None if issuer is None else getattr(s, issuer))
    assert s.ordered() is expected


def test_issue_does_not_wait_for_what_the_thread_only_issued() -> None:
    s = Scene()
    s.write(s.a)
    s.write(s.h, kind="host")
    assert not s.ordered()


@pytest.mark.parametrize(
    ("state", "expected"), [("contract", True), (None, True), ("none", False), ("foreign", False)]
)
def test_record_and_wait(state: str | None, expected: bool) -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("wait", s.d, sync=s.e, wait_state=state)
    s.write(s.d)
    assert s.ordered() is expected


def test_a_wait_of_another_event_or_before_the_record_is_no_edge() -> None:
    for sync, early in (("f", False), ("e", True)):
        s = Scene()
        s.write(s.a)
        if early:
            s.op("wait", s.d, sync=s.e, wait_state="contract")
        s.op("record", s.a, sync=s.e)
        if not early:
            s.op("wait", s.d, sync=getattr(s, sync), wait_state="contract")
        s.write(s.d)
        assert not s.ordered()


def test_the_newest_record_at_issue_counts() -> None:
    for first, second, expected in (("a", "c", False), ("c", "a", True)):
        s = Scene()
        s.write(s.a)
        s.op("record", getattr(s, first), sync=s.e)
        s.op("record", getattr(s, second), sync=s.e)
        s.op("wait", s.d, sync=s.e, wait_state="contract")
        s.write(s.d)
        assert s.ordered() is expected


def test_a_later_record_does_not_change_an_earlier_wait() -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("wait", s.d, sync=s.e, wait_state="contract")
    s.op("record", s.c, sync=s.e)
    s.write(s.d)
    assert s.ordered()


@pytest.mark.parametrize(("record", "expected"), [(1, True), (2, False)])
def test_an_observed_record_overrules_the_newest(record: int, expected: bool) -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("record", s.c, sync=s.e)
    s.op("wait", s.d, sync=s.e, sync_of=record)
    s.write(s.d)
    assert s.ordered() is expected


def test_host_event_wait() -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("wait", s.h, sync=s.e, wait_state="contract")
    s.write(s.d)
    assert s.ordered()


@pytest.mark.parametrize(("queue", "expected"), [("a", True), ("c", False)])
def test_wait_for_any_knows_what_all_records_share(queue: str, expected: bool) -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("record", getattr(s, queue), sync=s.f)
    s.op("wait_any", s.d, list=s.b.unit_list([s.e, s.f]), wait_state="contract")
    s.write(s.d)
    assert s.ordered() is expected


def test_wait_for_any_with_an_unrecorded_event_may_fire_at_once() -> None:
    s = Scene()
    s.write(s.a)
    s.op("record", s.a, sync=s.e)
    s.op("wait_any", s.d, list=s.b.unit_list([s.e, s.f]), wait_state="contract")
    s.write(s.d)
    assert not s.ordered()


@pytest.mark.parametrize(
    ("kind", "target", "expected"),
    [
        ("queue", "a", True),
        ("queue", "c", False),
        ("device", "g0", True),
        ("device", "g1", False),
        ("all", None, True),
    ],
)
def test_host_synchronisation(kind: str, target: str | None, expected: bool) -> None:
    s = Scene()
    s.write(s.a)
    s.op("sync", s.h, target_kind=kind, target=None if target is None else getattr(s, target))
    s.write(s.d)
    assert s.ordered() is expected


def test_synchronisation_waits_for_all_ops_of_a_queue_out_of_order_issued_before() -> None:
    for late in (False, True):
        s = Scene()
        s.op("kernel", s.loose)
        s.op("sync", s.h, target_kind="queue", target=s.loose)
        if not late:
            s.write(s.loose)
            s.op("kernel", s.loose)
        s.op("sync", s.h, target_kind="queue", target=s.loose)
        if late:
            s.write(s.loose)
        s.write(s.h, kind="host")
        assert s.ordered() is not late


def test_semaphores_order_whatever_the_issue_order() -> None:
    s = Scene()
    s.op("semwait", s.d, sync=s.s)
    s.write(s.d)
    s.write(s.a)
    s.op("semsig", s.a, sync=s.s)
    assert s.lines() == ["clean"]
    s = Scene()
    s.op("semwait", s.d, sync=s.s)
    s.write(s.d)
    s.op("semsig", s.a, sync=s.s)
    s.write(s.a)
    # The signal is first in reference order, then the two writes by issue index.
    assert s.lines() == ["race: #1x#3 WAW M[0:64]"]


@pytest.mark.parametrize(("turn", "expected"), [(1, False), (2, True)])
def test_the_kth_binary_wait_pairs_with_the_kth_signal(turn: int, expected: bool) -> None:
    s = Scene()
    s.op("semsig", s.a, sync=s.s)
    s.write(s.a)
    s.op("semsig", s.a, sync=s.s)
    for _ in range(turn):
        s.op("semwait", s.d, sync=s.s)
    s.write(s.d)
    assert s.ordered() is expected


@pytest.mark.parametrize(("value", "expected"), [(1, False), (2, True), (3, True)])
def test_a_timeline_wait_needs_the_first_signal_that_reaches_it(value: int, expected: bool) -> None:
    s = Scene()
    s.op("semsig", s.a, sync=s.s, value=1)
    s.write(s.a)
    s.op("semsig", s.a, sync=s.s, value=3)
    s.op("semwait", s.d, sync=s.s, value=value)
    s.write(s.d)
    assert s.ordered() is expected


def test_a_wait_without_signal_is_stuck_and_so_is_what_follows() -> None:
    s = Scene()
    s.write(s.a)
    s.op("semwait", s.d, sync=s.s, value=4)
    s.write(s.d)
    s.op("semsig", s.a, sync=s.s, value=3)
    report = check_tape(s.tape())
    assert report.verdict_lines() == ["deadlock: #1"]
    assert report.exit_code == 1
    assert any("2 ops never start" in c.detail for c in report.conditions)


def test_a_cycle_names_the_ops_that_wait_for_each_other() -> None:
    s = Scene()
    other = s.b.sync(name="other", kind="semaphore")
    s.op("semwait", s.a, sync=s.s)
    s.op("semsig", s.a, sync=other)
    s.op("semwait", s.d, sync=other)
    s.op("semsig", s.d, sync=s.s)
    s.write(s.d)
    assert s.lines() == ["deadlock: #0,#1,#2,#3"]


@pytest.mark.parametrize(("names", "expected"), [(("e", "e"), True), (("e", "f"), False)])
def test_a_collective_joins_its_members(names: tuple[str, str], expected: bool) -> None:
    s = Scene()
    s.write(s.a)
    s.op("coll", s.a, sync=getattr(s, names[0]))
    s.op("coll", s.d, sync=getattr(s, names[1]))
    s.write(s.d)
    assert s.ordered() is expected


def test_members_of_one_collective_do_not_race() -> None:
    s = Scene()
    s.write(s.a, kind="coll", sync=s.e)
    s.write(s.d, kind="coll", sync=s.e)
    assert s.ordered()
    s = Scene()
    s.write(s.a, kind="coll", sync=s.e)
    s.write(s.d, kind="coll", sync=s.f)
    assert not s.ordered()


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_edges(reverse: bool) -> None:
    s = Scene()
    first, second = s.write(s.loose), s.write(s.loose)
    if reverse:
        s.b.edge(second, first)
    else:
        s.b.edge(first, second)
    assert s.lines() == ["clean"]


def test_children_stand_between_what_comes_before_and_after_their_parent() -> None:
    for child_queue, expected in (("d", True), ("loose", True)):
        s = Scene()
        s.write(s.a)
        parent = s.op("kernel", s.a)
        s.write(getattr(s, child_queue), parent=parent, issuer=None)
        s.write(s.a)
        assert (s.lines() == ["clean"]) is expected
    s = Scene()
    s.write(s.a)
    s.op("kernel", s.a)
    s.write(s.d, issuer=None)
    s.write(s.a)
    assert s.lines() == ["race: #0x#2 WAW M[0:64]; #2x#3 WAW M[0:64]"]


def test_parent_and_child_do_not_race_but_siblings_do() -> None:
    s = Scene()
    parent = s.write(s.a)
    s.write(s.c, parent=parent, issuer=None)
    assert s.ordered()
    s.write(s.d, parent=parent, issuer=None)
    assert s.lines() == ["race: #1x#2 WAW M[0:64]"]


@pytest.mark.parametrize(("profile", "expected"), [("strict", False), ("cuda-legacy", True)])
@pytest.mark.parametrize("default_first", [False, True])
def test_the_legacy_default_queue(profile: str, expected: bool, default_first: bool) -> None:
    s = Scene(profile)
    s.write(s.default if default_first else s.a)
    s.write(s.a if default_first else s.default)
    assert s.ordered() is expected
    s = Scene(profile)
    s.write(s.default if default_first else s.d)
    s.write(s.d if default_first else s.default)
    assert not s.ordered(), "a queue of another device"


@pytest.mark.parametrize(
    ("profile", "memory", "expected"),
    [
        ("strict", "host_memory", False),
        ("cuda-pageable", "host_memory", True),
        ("cuda-pageable", "m", False),
        ("blocking-copies", "m", True),
    ],
)
def test_a_blocking_copy_holds_its_issuer(profile: str, memory: str, expected: bool) -> None:
    s = Scene(profile)
    touched = s.b.access_set(
        [
            {"buffer": getattr(s, memory), "offset": 0, "bytes": 8, "mode": "read"},
            {"buffer": s.m, "offset": 32, "bytes": 8, "mode": "write"},
        ]
    )
    s.op("copy", s.a, access_set=touched)
    s.write(s.c)
    assert (s.lines() == ["clean"]) is expected


@pytest.mark.parametrize(("profile", "expected"), [("strict", False), ("cuda-legacy", True)])
def test_a_free_that_synchronises(profile: str, expected: bool) -> None:
    s = Scene(profile)
    other = s.b.buffer(device=s.g0, name="other", bytes=8)
    s.write(s.a)
    s.op("free", s.h, target=other)
    s.write(s.d)
    assert s.ordered() is expected
    s = Scene(profile)
    s.write(s.a)
    s.op("free", s.h)
    s.write(s.d)
    assert not s.ordered(), "a bare free orders nothing"


def test_an_alloc_that_synchronises() -> None:
    for promise in (False, True):
        s = Scene("mine")
        other = s.b.buffer(device=s.g0, name="other", bytes=8)
        s.write(s.a)
        s.op("alloc", s.h, target=other)
        s.write(s.d)
        manifest = Manifest(profiles={"mine": {"alloc_synchronises": promise}})
        assert (check_tape(s.b.build(manifest)).exit_code == 0) is promise


def test_an_unresolved_wait_makes_unknown_what_stands_before_it_only() -> None:
    s = Scene()
    s.write(s.a)
    s.op("wait", s.d, sync=s.e, wait_state="unresolved")
    s.write(s.d)
    report = check_tape(s.tape())
    assert report.verdict_lines() == ["unknown: #0x#2 WAW M[0:64]"]
    assert report.exit_code == 4
    assert [c.name for c in report.conditions] == ["waits"]
    s = Scene()
    s.op("wait", s.d, sync=s.e, wait_state="unresolved")
    s.write(s.a)
    s.write(s.d)
    assert s.lines() == ["race: #1x#2 WAW M[0:64]"]


@pytest.mark.parametrize(
    ("waits", "verdict"), [("full", "race"), ("partial", "unknown"), ("none", "unknown")]
)
def test_host_threads_whose_meeting_was_not_seen(waits: str, verdict: str) -> None:
    s = Scene()
    s = Scene(coverage=(Coverage(s.t, waits=waits),))
    s.write(s.h, kind="host")
    s.write(s.t, kind="host")
    assert s.lines() == [f"{verdict}: #0x#1 WAW M[0:64]"]
    s = Scene(coverage=(Coverage(s.t, waits=waits),))
    s.write(s.a)
    s.write(s.t, kind="host")
    assert s.lines() == ["race: #0x#1 WAW M[0:64]"], "a device's op is not a host thread's"
