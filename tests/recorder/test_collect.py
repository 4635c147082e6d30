"""Each rule of the collector, on a spool that holds just enough to show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tapedelay
from tapedelay.formats.dump import dump_lines
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder.engines.ggml.collect import collect, collect_directory
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.replayer.check import check_tape

CHILD, FAILED, FOREIGN, HOST, META, SPAN = 16, 4, 2, 1, 8, 32
INPUT, WIDE = 1, 4


def collected(*engines: Any) -> Tape:
    for e in engines:
        e.w.write()
    tape = collect_directory(engines[0].w.rec.parent)
    assert list(validate(tape)) == []
    return tape


def ops(tape: Tape) -> list[dict[str, Any]]:
    queues = tape.table("queues").column("name").to_pylist()
    rows: list[dict[str, Any]] = tape.table("ops").to_pylist()
    for r in rows:
        r["on"] = queues[r["queue"]]
        r["by"] = queues[r["issuer"]]
    return rows


def short(tape: Tape) -> list[str]:
    return [f"{o['kind']} {o['on']}" for o in ops(tape)]


def accesses(tape: Tape, op: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = tape.table("buffers").column("name").to_pylist()
    return [
        (None if a["buffer"] is None else names[a["buffer"]], a["offset"], a["bytes"], a["mode"], a["origin"])
        for a in tape.table("accesses").to_pylist()
        if a["set"] == op["access_set"]
    ]


# --- devices, queues, buffers -----------------------------------------------------------------------------


def test_the_cpu_device_is_the_host_and_its_work_is_the_callers(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.host, 0, 8, "write", "x")])
    e.w.record("compute", queue=e.cpu_queue, d=g, end=500)
    e.w.record("compute", queue=e.queues[0], d=g)
    tape = collected(e)
    assert [(d["name"], d["kind"], d["profile"]) for d in tape.table("devices").to_pylist()] == [
        ("CPU", "host", "ggml-host"),
        ("TAPE0", "test", "vulkan-like"),
    ]
    assert short(tape) == ["compute host0", "compute TAPE0"]
    assert ops(tape)[1]["by"] == "host0"
    assert set(tape.manifest.profiles) == {"ggml-host", "vulkan-like"}


def test_a_real_gpu_is_not_a_test_device(engine: Callable[..., Any]) -> None:
    e = engine(devices=0)
    gpu = e.w.device("Vulkan0", kind=1, test=False, profile="")
    q = e.w.queue(gpu, "Vulkan0")
    e.w.record("sync", queue=q, end=100)
    row = collected(e).table("devices").to_pylist()[1]
    assert (row["name"], row["kind"], row["profile"]) == ("Vulkan0", "gpu", "ggml-gpu")


def test_workers_of_the_plugin_are_no_host_threads(engine: Callable[..., Any]) -> None:
    e = engine(threads=3)
    s = e.w.record("compute", queue=e.queues[0], thread=2, d=e.w.set([]))
    e.w.record("exec", thread=0, a=s, at=30, end=60)
    assert collected(e).table("queues").column("name").to_pylist() == ["host0", "TAPE0"]


def test_two_backend_objects_of_one_device_are_two_queues(engine: Callable[..., Any]) -> None:
    e = engine()
    other = e.w.queue(e.devices[0], "TAPE0")
    e.w.record("sync", queue=other, end=50)
    tape = collected(e)
    assert tape.table("queues").column("name").to_pylist() == ["host0", "TAPE0", "TAPE0.2"]
    assert ops(tape)[0]["target"] == 2


def test_buffers_are_relocated_and_say_what_they_are(engine: Callable[..., Any]) -> None:
    e = engine()
    base = 0x7FFE12345678
    pinned = e.w.buffer(e.devices[0], 100, host=True, base=base, name="TAPE_Host")
    weights = e.w.buffer(e.devices[0], 200, flags=2, base=base)
    e.w.record("buffer_alloc", e=weights)
    e.w.record("copy", queue=e.queues[0], d=pinned, a=10, e=weights, b=20, c=30, name="t")
    e.w.record("buffer_free", e=weights)
    tape = collected(e)
    rows = tape.table("buffers").to_pylist()
    assert [(b["kind"], b["device"], b["bytes"]) for b in rows] == [
        ("host", 0, 4096), ("device", 1, 4096), ("pinned", 0, 100), ("weights", 1, 200),
    ]  # fmt: skip
    assert [(b["alloc_op"], b["free_op"]) for b in rows] == [(None, None)] * 3 + [(0, 2)]
    assert short(tape) == ["alloc host0", "copy TAPE0", "free host0"]
    assert ops(tape)[0]["target"] == 3
    assert str(base) not in "\n".join(dump_lines(tape))


def test_each_allocation_of_one_address_is_its_own_buffer(engine: Callable[..., Any]) -> None:
    e = engine()
    for _ in range(2):
        b = e.w.buffer(e.devices[0], 64, base=0x1000)
        e.w.record("buffer_alloc", e=b)
        e.w.record("memset", e=b, c=64)
        e.w.record("buffer_free", e=b)
    rows = collected(e).table("buffers").to_pylist()[-2:]
    assert [(b["alloc_op"], b["free_op"], b["parent"]) for b in rows] == [(0, 2, None), (3, 5, None)]


# --- ops and their accesses -------------------------------------------------------------------------------


def test_copies_sets_gets_and_fills(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("copy", queue=e.queues[0], d=e.host, a=8, e=e.memory, b=16, c=4, name="model.input_embed")
    e.w.record("set", e=e.memory, b=32, c=2, end=40, name="w")
    e.w.record("get", d=e.memory, a=64, c=3, end=60, name="logits")
    e.w.record("memset", e=e.memory, b=1, c=5, end=70)
    e.w.record("clear", e=e.host, end=80)
    tape = collected(e)
    assert short(tape) == ["copy TAPE0", "copy host0", "copy host0", "memset host0", "memset host0"]
    assert [o["name"] for o in ops(tape)] == ["model.input_embed", "w", "logits", None, None]
    assert [o["bytes"] for o in ops(tape)] == [4, 2, 3, 5, 4096]
    assert [accesses(tape, o) for o in ops(tape)] == [
        [("CPU", 8, 4, "read", "observed"), ("TAPE0", 16, 4, "write", "observed")],
        [(None, 0, 2, "read", "observed"), ("TAPE0", 32, 2, "write", "observed")],
        [("TAPE0", 64, 3, "read", "observed"), (None, 0, 3, "write", "observed")],
        [("TAPE0", 1, 5, "write", "observed")],
        [("CPU", 0, 4096, "write", "observed")],
    ]


def test_a_set_that_the_device_runs_is_on_its_queue_unless_the_call_did_it(
    engine: Callable[..., Any],
) -> None:
    e = engine()
    e.w.record("set", queue=e.queues[0], e=e.memory, c=4)
    e.w.record("set", queue=e.queues[0], e=e.memory, c=4, flags=HOST, end=50)
    assert short(collected(e)) == ["copy TAPE0", "copy host0"]


def test_computes_are_counted_per_device_and_named_by_the_first_tensor_written(
    engine: Callable[..., Any],
) -> None:
    e = engine()
    g = e.w.set(
        [(e.memory, 0, 8, "read", "a"), (e.memory, 8, 8, "write", "b"), (e.memory, 16, 8, "write", "c")]
    )
    e.w.record("compute", queue=e.queues[0], d=g)
    e.w.record("compute", queue=e.cpu_queue, d=g, end=50)
    e.w.record("compute", queue=e.queues[0], d=g)
    tape = collected(e)
    assert [o["name"] for o in ops(tape)] == ["#1 b", "#1 b", "#2 b"]
    assert len({o["access_set"] for o in ops(tape)}) == 1


def test_a_compute_without_a_set_is_unknown(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("compute", queue=e.queues[0])
    tape = collected(e)
    assert ops(tape)[0]["access_set"] is None
    assert tape.coverage(1).accesses == "none"
    assert tape.coverage(0).accesses == "full"


def test_what_a_graph_satisfies_itself_is_not_exposed(engine: Callable[..., Any]) -> None:
    e = engine()
    m = e.memory
    g = e.w.set(
        [
            (m, 0, 16, "write", "a"), (m, 8, 16, "read", "b"), (m, 0, 8, "read", "a"),
            (m, 64, 8, "update", "kv"), (m, 64, 8, "read", "kv"), (m, 8, 24, "write", "c"),
            (m, 100, 4, "may_write", "s"),
            (m, 100, 4, "read", "s"),
        ]
    )  # fmt: skip
    e.w.record("compute", queue=e.queues[0], d=g)
    tape = collected(e)
    assert [a[1:4] for a in accesses(tape, ops(tape)[0])] == [
        (0, 16, "write"), (16, 8, "read"), (64, 8, "update"), (16, 16, "write"),
        (100, 4, "may_write"), (100, 4, "read"),
    ]  # fmt: skip


def test_a_wide_span_is_inferred_and_hides_no_read(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.memory, 0, 64, "write", "view", WIDE), (e.memory, 0, 8, "read", "x")])
    e.w.record("compute", queue=e.queues[0], d=g)
    e.w.record("copy", queue=e.queues[0], d=e.host, e=e.memory, c=64, flags=SPAN)
    tape = collected(e)
    assert accesses(tape, ops(tape)[0]) == [
        ("TAPE0", 0, 64, "write", "inferred"),
        ("TAPE0", 0, 8, "read", "observed"),
    ]
    assert [a[4] for a in accesses(tape, ops(tape)[1])] == ["inferred", "inferred"]


def test_calls_that_were_declined_did_nothing(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("copy", queue=e.queues[0], d=e.host, e=e.memory, c=4, flags=FAILED)
    e.w.record("sync", queue=e.queues[0], end=100)
    tape = collected(e)
    assert short(tape) == ["sync host0"]
    assert not any("failed" in n for n in tape.manifest.notes)


def test_a_compute_that_failed_has_done_a_part(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.host, 0, 64, "write", "y")])
    e.w.record("compute", queue=e.cpu_queue, d=g, end=20)
    e.w.record("compute", queue=e.cpu_queue, d=g, end=40, flags=FAILED)
    e.w.record("compute", queue=e.queues[0], flags=FAILED)
    tape = collected(e)
    done, failed, unknown = ops(tape)
    assert accesses(tape, done) == [("CPU", 0, 64, "write", "observed")]
    assert accesses(tape, failed) == [("CPU", 0, 64, "write", "inferred")]
    assert unknown["access_set"] is None
    assert any("2 computes failed" in n for n in tape.manifest.notes)


@pytest.mark.parametrize(("flags", "verdict"), [(0, "race"), (FAILED, "possible")])
@pytest.mark.parametrize("waits", [False, True])
def test_a_compute_that_failed_may_have_raced(
    engine: Callable[..., Any], flags: int, verdict: str, waits: bool
) -> None:
    e = engine()
    g = e.w.set([(e.host, 0, 64, "write", "y")])
    e.w.record("copy", queue=e.queues[0], d=e.host, e=e.memory, c=64, name="x")
    if waits:
        e.w.record("sync", queue=e.queues[0], end=e.w.now + 15)
    e.w.record("compute", queue=e.cpu_queue, d=g, end=1000, flags=flags)
    assert [f.verdict for f in check_tape(collected(e)).findings] == ([] if waits else [verdict])


@pytest.mark.parametrize("on_device", [False, True])
def test_computes_on_the_host_alone_are_said(engine: Callable[..., Any], on_device: bool) -> None:
    e = engine()
    g = e.w.set([(e.host, 0, 8, "write", "y")])
    e.w.record("copy", queue=e.queues[0], d=e.memory, e=e.memory, b=64, c=8)
    e.w.record("compute", queue=e.queues[0] if on_device else e.cpu_queue, d=g, end=1000)
    tape = collected(e)
    assert tape.manifest.engine["device_compute"] is on_device
    note = "no compute was recorded on any device but the host"
    assert (note in tape.manifest.notes) is not on_device


# --- order ------------------------------------------------------------------------------------------------


def test_syncs_name_their_queue_and_a_queue_that_is_the_caller_needs_none(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("sync", queue=e.queues[0], end=20)
    e.w.record("sync", queue=e.cpu_queue, end=40)
    tape = collected(e)
    assert [(o["kind"], o["target_kind"], o["target"]) for o in ops(tape)] == [("sync", "queue", 1)]


def test_waits_find_the_record_of_their_generation(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    ev = e.w.event(e.devices[0])
    e.w.record("event_wait", queue=e.queues[1], d=ev, a=0)  # never recorded so far
    e.w.record("event_record", queue=e.queues[0], d=ev, a=1)
    e.w.record("event_record", queue=e.queues[0], d=ev, a=2)
    e.w.record("event_wait", queue=e.queues[1], d=ev, a=1)
    e.w.record("event_sync", d=ev, a=2, end=200)
    e.w.record("event_wait", queue=e.queues[1], d=ev, a=2, flags=FOREIGN)
    e.w.record("event_wait", queue=e.queues[1], d=ev, a=9)  # its record was lost
    e.w.record("event_free", d=ev)
    tape = collected(e)
    assert [(o["kind"], o["on"], o["sync_of"], o["wait_state"]) for o in ops(tape)] == [
        ("wait", "TAPE1", None, "none"),
        ("record", "TAPE0", None, None),
        ("record", "TAPE0", None, None),
        ("wait", "TAPE1", 1, None),
        ("wait", "host0", 2, None),
        ("wait", "TAPE1", None, "foreign"),
        ("wait", "TAPE1", None, "unresolved"),
        ("destroy", "host0", None, None),
    ]
    assert any("1 waits" in n for n in tape.manifest.notes)


def test_a_wait_for_what_was_recorded_before_the_recorder_came_is_unresolved(
    engine: Callable[..., Any],
) -> None:
    e = engine(devices=2)
    early, late = e.w.event(e.devices[0]), e.w.event(e.devices[0], late=True)
    e.w.record("event_wait", queue=e.queues[1], d=late, a=0)  # perhaps for a record that nobody saw
    e.w.record("event_sync", d=late, a=0, end=200)
    e.w.record("event_wait", queue=e.queues[1], d=early, a=0)
    e.w.record("event_record", queue=e.queues[0], d=late, a=1)
    e.w.record("event_wait", queue=e.queues[1], d=late, a=1)
    tape = collected(e)
    assert [(o["kind"], o["sync_of"], o["wait_state"]) for o in ops(tape)] == [
        ("wait", None, "unresolved"),
        ("wait", None, "unresolved"),
        ("wait", None, "none"),
        ("record", None, None),
        ("wait", 3, None),
    ]
    assert any("2 waits" in n for n in tape.manifest.notes)


def test_a_copy_on_another_queue_makes_a_record_and_a_wait(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    far = e.w.buffer(e.devices[1], 64)
    copy = e.w.record("copy", queue=e.queues[0], d=e.memory, e=far, c=64, name="x")
    e.w.record("split_copy_wait", queue=e.queues[1], a=copy)
    tape = collected(e)
    assert short(tape) == ["copy TAPE0", "record TAPE0", "wait TAPE1"]
    assert ops(tape)[2]["sync_of"] == 1


def test_a_wait_for_a_copy_whose_record_was_lost_is_unresolved(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("split_copy_wait", queue=e.queues[0], a=77)
    tape = collected(e)
    assert [(o["kind"], o["wait_state"]) for o in ops(tape)] == [("wait", "unresolved")]


def test_calls_after_a_meta_call_are_not_part_of_it(engine: Callable[..., Any]) -> None:
    e = engine()
    meta = e.w.queue(e.w.device("Meta", kind=4, test=False, profile=""), "Meta")
    e.w.record("sync", queue=meta, flags=META)
    e.w.record("sync", queue=e.queues[0])
    e.w.record("sync", queue=e.queues[0], flags=CHILD)
    assert [o["parent"] for o in ops(collected(e))] == [None, None, None]


def test_a_synchronous_device_is_done_when_its_call_returns(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.switch("TAPEDELAY_SYNC", "on")
    g = e.w.set([])
    e.w.record("compute", queue=e.queues[0], d=g)
    e.w.record("compute", queue=e.cpu_queue, d=g, end=1)
    tape = collected(e)
    assert [(o["kind"], o["on"], o["target"], o["origin"]) for o in ops(tape)] == [
        ("compute", "TAPE0", None, "observed"),
        ("sync", "host0", 1, "declared"),
        ("compute", "host0", None, "observed"),
    ]


def test_times_come_from_the_worker_and_from_blocking_calls(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([])
    slot = e.w.record("compute", queue=e.queues[0], d=g, at=100)
    e.w.record("sync", queue=e.queues[0], at=110, end=190)
    e.w.record("exec", a=slot, at=120, end=180)
    e.w.record("compute", queue=e.queues[0], d=g, at=200)  # killed before it ran
    tape = collected(e)
    assert [(o["issue_ns"], o["start_after_issue_ns"], o["duration_ns"]) for o in ops(tape)] == [
        (0, 20, 60), (10, 0, 80), (100, None, None),
    ]  # fmt: skip
    assert tape.coverage(1).times == "partial"
    assert tape.coverage(0).times == "full"


def test_children_name_the_meta_call_of_their_thread(engine: Callable[..., Any]) -> None:
    e = engine(devices=2)
    meta = e.w.device("Meta", kind=4, test=False, profile="")
    q = e.w.queue(meta, "Meta")
    g = e.w.set([(e.memory, 0, 8, "write", "x")])
    e.w.record("compute", queue=q, flags=META)
    e.w.record("compute", queue=e.queues[0], d=g, flags=CHILD)
    e.w.record("compute", queue=e.queues[1], d=g, flags=CHILD)
    e.w.record("compute", queue=e.queues[1], d=g)
    tape = collected(e)
    assert [o["parent"] for o in ops(tape)] == [None, 0, 0, None]
    assert tape.table("devices").to_pylist()[3]["kind"] == "meta"


# --- hand-over between threads ----------------------------------------------------------------------------


def test_calls_on_one_object_from_two_threads_are_ordered_by_the_api(engine: Callable[..., Any]) -> None:
    e = engine(threads=2)
    g = e.w.set([])
    e.w.record("compute", queue=e.queues[0], d=g, thread=0, at=10)
    e.w.record("compute", queue=e.queues[0], d=g, thread=1, at=20)
    tape = collected(e)
    assert short(tape) == ["compute TAPE0", "record host0", "wait host1", "compute TAPE0"]
    rows = ops(tape)
    assert rows[2]["sync_of"] == 1
    assert {r["origin"] for r in rows[1:3]} == {"declared"}
    assert tape.table("syncs").to_pylist()[0]["kind"] == "other"
    assert tape.coverage(0).waits == "partial"


def test_once_is_enough(engine: Callable[..., Any]) -> None:
    e = engine(devices=2, threads=2)
    for thread, queue in ((0, 0), (0, 1), (1, 1), (1, 0)):  # the last one is known already
        e.w.record("sync", queue=e.queues[queue], thread=thread, end=e.w.now + 12)
    assert short(collected(e)) == [
        "sync host0",
        "sync host0",
        "record host0",
        "wait host1",
        "sync host1",
        "sync host1",
    ]


def test_different_objects_are_not_ordered(engine: Callable[..., Any]) -> None:
    e = engine(devices=2, threads=2)
    g = e.w.set([])
    e.w.record("compute", queue=e.queues[0], d=g, thread=0)
    e.w.record("compute", queue=e.queues[1], d=g, thread=1)
    assert "record host0" not in short(collected(e))


# --- host writes that nobody saw --------------------------------------------------------------------------


def inputs_spool(engine: Callable[..., Any], batches: int, *, observed: bool) -> Any:
    e = engine()
    seen = (e.host, 0, 16, "read", "tokens", INPUT)
    unseen = (e.host, 64, 32, "read", "mask", INPUT)
    first = e.w.set([seen, unseen, (e.host, 256, 8, "write", "y")])
    second = e.w.set([(e.host, 256, 8, "read", "y"), (e.host, 512, 8, "write", "z")])
    for _ in range(batches):
        if observed:
            e.w.record("set", e=e.host, c=16, end=1, name="tokens")
        e.w.record("compute", queue=e.cpu_queue, d=first, end=1)
        e.w.record("sync", queue=e.queues[0], end=1)
        e.w.record("compute", queue=e.cpu_queue, d=second, end=1)
    return e


def test_unseen_inputs_are_written_before_the_first_observed_one(engine: Callable[..., Any]) -> None:
    tape = collected(inputs_spool(engine, 2, observed=True))
    assert [o["kind"] for o in ops(tape)] == ["host", "copy", "compute", "sync", "compute"] * 2
    assert [(o["origin"], accesses(tape, o)) for o in ops(tape)[::5]] == [
        ("inferred", [("CPU", 64, 32, "write", "inferred")])
    ] * 2
    assert tape.coverage(0).host_accesses == "partial"


def test_without_observed_inputs_a_batch_begins_when_a_graph_comes_again(engine: Callable[..., Any]) -> None:
    tape = collected(inputs_spool(engine, 2, observed=False))
    assert [o["kind"] for o in ops(tape)] == ["host", "compute", "sync", "compute"] * 2
    assert [a[1:3] for a in accesses(tape, ops(tape)[0])] == [(0, 16), (64, 32)]


def test_the_previous_sync_is_the_earliest_place(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.host, 0, 16, "read", "tokens", INPUT)])
    for _ in range(2):
        e.w.record("sync", queue=e.queues[0], end=1)
        e.w.record("copy", queue=e.queues[0], d=e.host, a=0, e=e.memory, c=16)
        e.w.record("compute", queue=e.cpu_queue, d=g, end=1)
    assert [o["kind"] for o in ops(collected(e))] == ["sync", "host", "copy", "compute"] * 2


def test_inputs_that_were_all_seen_need_nothing(engine: Callable[..., Any]) -> None:
    e = engine()
    g = e.w.set([(e.host, 4, 8, "read", "tokens", INPUT), (e.memory, 0, 8, "read", "on_device", INPUT)])
    e.w.record("set", e=e.host, c=16, end=1)
    e.w.record("compute", queue=e.cpu_queue, d=g, end=1)
    assert [o["kind"] for o in ops(collected(e))] == ["copy", "compute"]


# --- processes --------------------------------------------------------------------------------------------


def test_two_processes_line_up_by_their_wall_clocks(engine: Callable[..., Any]) -> None:
    a = engine(mono_ns=1_000, wall_ns=50_000)
    b = engine(mono_ns=900_000, wall_ns=50_005)
    for e in (a, b):
        for _ in range(2):
            e.w.record("sync", queue=e.queues[0])  # 10 ns after the previous one
    b.w.head["flags"] = 0
    tape = collected(a, b)
    assert [(o["on"], o["issue_ns"]) for o in ops(tape)] == [
        ("host0", 0), ("p1.host0", 5), ("host0", 10), ("p1.host0", 15),
    ]  # fmt: skip
    assert [d["name"] for d in tape.table("devices").to_pylist()] == ["CPU", "TAPE0", "p1.CPU", "p1.TAPE0"]
    assert [d["process"] for d in tape.table("devices").to_pylist()] == [0, 0, 1, 1]
    m = tape.manifest
    assert [(p.process, p.complete, p.records) for p in m.processes] == [(0, True, 2), (1, False, 2)]
    assert not m.complete
    assert m.processes[0].wall_offset_ns == 50_010


def test_lost_records_and_early_ends_are_said(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.record("sync", queue=e.queues[0])
    e.w.head |= {"lost": 3, "flags": 3}
    m = collected(e).manifest
    assert (m.complete, m.lost) == (False, 3)
    assert any("stopped early" in n for n in m.notes)
    assert any("split and step: not seen" in n for n in m.notes)
    assert m.engine == {"name": "ggml", "build": "b1", "api_version": 2, "device_compute": False}
    assert m.created_by == f"tapedelay {tapedelay.__version__}"


def test_nothing_private_reaches_the_tape(engine: Callable[..., Any]) -> None:
    e = engine()
    e.w.note("refused /home/marker/model.gguf: bad")
    e.w.switch("GGML_X", "/home/marker/x")
    e.w.switch("GGML_Y", "1")
    e.w.record("sync", queue=e.queues[0])
    tape = collected(e)
    assert "marker" not in "\n".join(dump_lines(tape))
    assert "4711" not in "\n".join(dump_lines(tape))
    assert "somebody" not in "\n".join(dump_lines(tape))
    assert tape.manifest.switches == {"GGML_X": "on", "GGML_Y": "1"}
    assert "refused <path>: bad" in tape.manifest.notes


def test_processes_without_records_are_kept_as_such(engine: Callable[..., Any]) -> None:
    tape = collected(engine())
    assert tape.table("ops").num_rows == 0
    assert tape.manifest.processes[0].records == 0


def test_collecting_is_repeatable(engine: Callable[..., Any]) -> None:
    e = inputs_spool(engine, 3, observed=True)
    e.w.write()
    first, second = (list(dump_lines(collect(read_spools(e.w.rec.parent)))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("count", [20_000])
def test_many_records(engine: Callable[..., Any], count: int) -> None:
    e = engine()
    g = e.w.set([(e.memory, 0, 8, "write", "x")])
    for _ in range(count // 2):
        e.w.record("compute", queue=e.queues[0], d=g)
        e.w.record("sync", queue=e.queues[0])
    assert collected(e).table("ops").num_rows == count


def test_a_handover_never_cuts_a_meta_call(engine: Callable[..., Any]) -> None:
    e = engine(devices=2, threads=2)
    meta = e.w.queue(e.w.device("Meta", kind=4, test=False, profile=""), "Meta")
    for thread in (0, 1):
        e.w.record("sync", queue=meta, flags=META, thread=thread, end=1)
        for q in e.queues:
            e.w.record("sync", queue=q, flags=CHILD, thread=thread, end=1)
    tape = collected(e)
    assert [(o["kind"], o["on"], o["parent"]) for o in ops(tape)] == [
        ("sync", "host0", None),
        ("sync", "host0", 0),
        ("sync", "host0", 0),
        ("record", "host0", None),
        ("wait", "host1", None),
        ("sync", "host1", None),
        ("sync", "host1", 5),
        ("sync", "host1", 5),
    ]


def test_the_accesses_of_a_meta_call_are_its_childrens(engine: Callable[..., Any]) -> None:
    e = engine()
    meta = e.w.queue(e.w.device("Meta", kind=4, test=False, profile=""), "Meta")
    e.w.record("compute", queue=meta, flags=META)
    e.w.record("compute", queue=e.queues[0], d=e.w.set([(e.memory, 0, 8, "write", "x")]), flags=CHILD)
    tape = collected(e)
    assert [o["access_set"] for o in ops(tape)] == [0, 1]
    assert {c.accesses for c in tape.manifest.coverage} == {"full"}


@pytest.mark.parametrize(
    ("same", "ended", "said"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_process_that_went_on_as_another_program(
    engine: Callable[..., Any], same: bool, ended: bool, said: bool
) -> None:
    first = engine(pid=7, boot=5, mono_ns=10, wall_ns=1_000)
    first.w.head["flags"] = int(ended)
    second = engine(pid=7 if same else 8, boot=5, mono_ns=20_000, wall_ns=21_000)
    for e in (first, second):
        e.w.record("sync", queue=e.queues[0], end=e.w.now + 20)
    tape = collected(first, second)
    found = [n for n in tape.manifest.notes if "(exec)" in n]
    assert [n.startswith("process 0 went on as another program") for n in found] == [True] * said
    assert tape.manifest.complete is ended
