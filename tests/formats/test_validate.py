"""Every rule of the specification fires on a tape that breaks it, and on no sound one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.errors import InputError, InvalidTape
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Coverage, DelayLine, Manifest, Process, Tape
from tapedelay.formats.validate import PER_RULE_MAX, RULES, validate
from tapedelay.formats.write import write_tape

Break = Callable[[TapeBuilder], Any]


def put(table: str, row: int, **columns: Any) -> Break:
    def change(b: TapeBuilder) -> None:
        rows = b.rows(table)
        assert set(columns) <= set(rows[row])
        rows[row].update(columns)

    return change


def drop(table: str, row: int) -> Break:
    return lambda b: b.rows(table).pop(row)


def op(**columns: Any) -> Break:
    """Add an op at the end, with ids of the rich tape."""
    return lambda b: b.op(**{"queue": 0, "issuer": 0, "access_set": 0, **columns})


def queues(more: int) -> Break:
    return lambda b: [b.queue(device=1, name=f"q{i}") for i in range(more)]


def nested_buffers(depth: int) -> Break:
    def change(b: TapeBuilder) -> None:
        at = b.buffer(device=1, name="deep", bytes=64)
        for _ in range(depth):
            at = b.buffer(device=1, name="deep", bytes=64, parent=at, parent_offset=0)

    return change


def nested_ops(depth: int) -> Break:
    def change(b: TapeBuilder) -> None:
        at = b.op(kind="kernel", queue=1, issuer=0, access_set=0)
        for _ in range(depth):
            at = b.op(kind="kernel", queue=1, issuer=0, access_set=0, parent=at)

    return change


def part_of_itself(b: TapeBuilder) -> None:
    """Add a collective of which a member is part of a kernel that is part of another member."""
    sync = b.sync(name="ring", kind="collective")
    first = b.op(kind="coll", queue=1, issuer=0, access_set=0, sync=sync)
    between = b.op(kind="kernel", queue=1, issuer=0, access_set=0, parent=first)
    b.op(kind="coll", queue=1, issuer=0, access_set=0, sync=sync, parent=between)


def argument_and_units(*pairs: tuple[int, int]) -> Break:
    """Add ops with these args and units over 1024 bytes of which each arg and each unit takes 64."""

    def change(b: TapeBuilder) -> None:
        pool = b.buffer(device=1, name="pool", bytes=1024)
        touched = b.access_set(
            [
                {"buffer": pool, "offset": 0, "bytes": 64, "mode": "read", "offset_per_arg": 64,
                 "unit_bytes": 64},
            ]
        )  # fmt: skip
        for arg, unit in pairs:
            b.op(kind="kernel", queue=1, issuer=0, access_set=touched, arg=arg, list=b.unit_list([unit]))

    return change


def other_scheduler(b: TapeBuilder) -> None:
    """Give a request to another scheduler than its inputs are of."""
    b.add("schedulers", scheduler=1, process=0, engine="vllm", config="{}")
    b.rows("requests")[0]["scheduler"] = 1


def late_resources(b: TapeBuilder) -> None:
    b.add("resources", input=1, pool=0, free=6, used=1)


# rows of ops in the rich tape
(
    SPLIT,
    ALLOC,
    KERNEL,
    COPY,
    HOST,
    RECORD,
    WAIT,
    UNRESOLVED,
    ANY,
    SYNC,
    ALL,
    SIG,
    SEMWAIT,
    COLL,
    COLL2,
    DESTROY,
    FREE,
) = range(17)

BROKEN: list[tuple[str, str, Break]] = [
    ("id", "devices", put("devices", 1, device=5)),
    ("id", "queues", put("queues", 2, queue=1)),
    ("id", "ops", put("ops", HOST, op=30)),
    ("id", "ops", put("ops", SPLIT, op=-4)),
    ("id", "ops", put("ops", SPLIT, op=-(1 << 63))),
    ("id", "ops", put("ops", SPLIT, op=(1 << 63) - 1)),
    ("id", "requests", put("requests", 0, request=1)),
    ("ref", "queues", put("queues", 1, device=9)),
    ("ref", "queues", put("queues", 1, device=-1)),
    ("ref", "ops", put("ops", KERNEL, queue=3)),
    ("ref", "ops", put("ops", KERNEL, issuer=77)),
    ("ref", "ops", put("ops", KERNEL, parent=11)),
    ("ref", "ops", put("ops", RECORD, sync=3)),
    ("ref", "buffers", put("buffers", 1, alloc_op=11)),
    ("ref", "buffers", put("buffers", 2, device=2)),
    ("ref", "accesses", put("accesses", 0, buffer=3)),
    ("ref", "edges", put("edges", 0, src=31)),
    ("ref", "edges", put("edges", 0, dst=1 << 60)),
    ("ref", "graphs", put("graphs", 0, first_op=3)),
    ("ref", "nodes", put("nodes", 0, user_backend=4)),
    ("ref", "inputs", put("inputs", 0, request=2)),
    ("ref", "inputs", put("inputs", 2, op=3)),
    ("ref", "decisions", put("decisions", 0, input=9)),
    ("ref", "blocks", put("blocks", 0, pool=2)),
    ("ref", "prefixes", put("prefixes", 0, of=7)),
    ("ref", "pools", put("pools", 0, scheduler=1)),
    ("ref", "telemetry", put("telemetry", 0, device=3)),
    ("word", "ops", put("ops", KERNEL, kind="teleport")),
    ("word", "ops", put("ops", KERNEL, origin="guessed")),
    ("word", "accesses", put("accesses", 1, mode="stare")),
    ("word", "nodes", put("nodes", 2, buffer_kind="tape")),
    ("negative", "buffers", put("buffers", 0, bytes=-1)),
    ("negative", "ops", put("ops", HOST, duration_ns=-1)),
    ("set-order", "accesses", put("accesses", 0, set=0)),
    ("set-order", "accesses", put("accesses", 1, seq=0)),
    ("set-order", "accesses", put("accesses", 3, set=1)),
    ("set-order", "accesses", put("accesses", 0, seq=1)),
    ("set-ref", "ops", put("ops", HOST, access_set=4)),
    ("set-ref", "ops", put("ops", HOST, access_set=-1)),
    ("list-order", "lists", put("lists", 0, list=-1)),
    ("list-order", "lists", put("lists", 4, list=0)),
    ("list-ref", "ops", put("ops", COPY, list=2)),
    ("access-range", "accesses", put("accesses", 0, offset=-1)),
    ("access-range", "accesses", put("accesses", 0, offset=4096)),
    ("access-range", "accesses", put("accesses", 0, bytes=3649)),
    ("access-range", "accesses", put("accesses", 1, bytes=-1)),
    ("access-range", "accesses", put("accesses", 1, offset_per_arg=1 << 40)),
    ("access-range", "accesses", put("accesses", 1, offset_per_arg=(1 << 63) - 1)),
    ("access-range", "accesses", put("accesses", 0, bytes=(1 << 63) - 1)),
    ("access-range", "accesses", put("accesses", 2, bytes=(1 << 16) - 3 * 256 + 1)),
    ("access-range", "accesses", put("ops", KERNEL, arg=63)),
    ("access-range", "accesses", put("ops", KERNEL, arg=-2)),
    ("access-range", "accesses", put("ops", KERNEL, arg=1 << 62)),
    ("access-range", "accesses", put("lists", 0, unit=256)),
    ("access-range", "accesses", argument_and_units((0, 10), (10, 0), (10, 10))),
    ("access-arg", "ops", put("ops", KERNEL, arg=None)),
    ("access-arg", "ops", put("ops", COPY, list=None)),
    ("buffer-parent", "buffers", put("buffers", 1, parent=1)),
    ("buffer-parent", "buffers", put("buffers", 1, parent=2)),
    ("buffer-parent", "buffers", put("buffers", 1, parent_offset=None)),
    ("buffer-parent", "buffers", put("buffers", 0, parent_offset=0)),
    ("buffer-parent", "buffers", put("buffers", 1, parent_offset=(1 << 16) - 4095)),
    ("buffer-parent", "buffers", put("buffers", 1, parent_offset=(1 << 63) - 1)),
    ("buffer-parent", "buffers", put("buffers", 1, shared_key=1)),
    ("buffer-parent", "buffers", put("buffers", 1, device=0)),
    ("buffer-life", "buffers", put("buffers", 1, alloc_op=20)),
    ("buffer-life", "buffers", put("buffers", 2, alloc_op=10)),
    ("buffer-life", "buffers", put("buffers", 1, free_op=10)),
    ("buffer-life", "ops", put("buffers", 1, free_op=None)),
    ("buffer-life", "ops", put("buffers", 1, alloc_op=None)),
    ("buffer-life", "ops", op(kind="alloc", target=1)),
    ("buffer-life", "ops", op(kind="free", target=2)),
    ("queue-host", "queues", put("queues", 0, device=1)),
    ("queue-host", "ops", put("ops", KERNEL, issuer=1)),
    ("queue-host", "ops", put("ops", SYNC, queue=1)),
    ("op-parent", "ops", put("ops", KERNEL, parent=20)),
    ("op-parent", "ops", put("ops", SPLIT, parent=30)),
    ("op-parent", "ops", part_of_itself),
    ("limit", "queues", queues(4094)),
    ("limit", "buffers", nested_buffers(65)),
    ("limit", "ops", nested_ops(257)),
    ("sync-missing", "ops", put("ops", UNRESOLVED, sync=None)),
    ("sync-missing", "ops", put("ops", COLL, sync=None)),
    ("sync-of", "ops", put("ops", WAIT, sync_of=40)),
    ("sync-of", "ops", put("ops", WAIT, sync=1)),
    ("sync-of", "ops", put("ops", KERNEL, sync_of=0)),
    ("sync-of", "ops", put("ops", WAIT, sync_of=60)),
    ("wait-state", "ops", put("ops", WAIT, wait_state="contract")),
    ("wait-state", "ops", put("ops", KERNEL, wait_state="none")),
    ("wait-any", "ops", put("ops", ANY, list=None)),
    ("wait-any", "lists", put("lists", 4, unit=3)),
    ("target", "ops", put("ops", SYNC, target_kind=None)),
    ("target", "ops", put("ops", SYNC, target=None)),
    ("target", "ops", put("ops", SYNC, target=3)),
    ("target", "ops", put("ops", SYNC, target_kind="device", target=2)),
    ("target", "ops", put("ops", ALL, target=0)),
    ("target", "ops", put("ops", FREE, target=3)),
    ("target", "ops", put("ops", KERNEL, target=0)),
    ("target", "ops", put("ops", KERNEL, target_kind="all")),
    ("value", "ops", put("ops", KERNEL, value=1)),
    ("time-order", "ops", put("ops", ALLOC, issue_ns=10)),
    ("time-order", "ops", put("ops", FREE, issue_ns=11)),
    ("edge", "edges", put("edges", 0, src=120)),
    ("process", "devices", put("devices", 0, process=1)),
    ("process", "syncs", put("syncs", 0, process=1)),
    ("profile", "devices", put("devices", 0, profile="wishful")),
    ("node", "nodes", put("nodes", 1, node=2)),
    ("node", "graphs", put("graphs", 0, n_leafs=2)),
    ("node", "nodes", put("nodes", 0, sources=[3])),
    ("node", "nodes", put("nodes", 0, sources=[-2])),
    ("node", "nodes", put("nodes", 0, view_source=3)),
    ("input", "inputs", put("inputs", 1, request=0)),
    ("input", "inputs", put("inputs", 0, request=None)),
    ("input", "inputs", put("inputs", 4, requests=None)),
    ("input", "inputs", put("inputs", 4, decode_only=True)),
    ("input", "inputs", put("inputs", 3, op=20)),
    ("input", "inputs", put("inputs", 2, tokens=3)),
    ("input", "inputs", put("inputs", 3, value=3)),
    ("input", "inputs", put("inputs", 2, word="wait")),
    ("input", "inputs", put("inputs", 0, arrive_ns=3)),
    ("input", "inputs", put("inputs", 4, kind="next_chunk", request=0, requests=None, tokens=1, word="x")),
    ("input", "inputs", put("inputs", 0, requests=[1])),
    ("ref", "inputs", put("inputs", 4, requests=[0, 2])),
    ("ref", "inputs", put("inputs", 4, requests=[0, -1])),
    ("step", "inputs", put("inputs", 3, step=1)),
    ("step", "inputs", put("inputs", 4, kind="output", requests=None, step=0)),
    ("step", "inputs", put("inputs", 4, kind="step", requests=None, step=0)),
    ("scheduler", "decisions", other_scheduler),
    ("scheduler", "inputs", other_scheduler),
    ("scheduler", "blocks", put("pools", 0, scheduler=1)),
    ("scheduler", "resources", put("pools", 0, scheduler=1)),
    ("event", "answers", put("answers", 0, input=4)),
    ("event", "decisions", put("decisions", 0, input=3, seq=5)),
    ("event", "decisions", put("decisions", 0, computed_tokens=None)),
    ("event", "decisions", put("decisions", 0, kind="emit", tokens=None)),
    ("event", "decisions", put("decisions", 0, kind="emit")),
    ("event", "decisions", put("decisions", 0, kind="skip", computed_tokens=None)),
    ("event", "decisions", put("decisions", 0, kind="order", tokens=None)),
    ("event-order", "blocks", put("blocks", 0, input=4)),
    ("event-order", "blocks", put("decisions", 0, seq=0)),
    ("event-order", "blocks", put("blocks", 1, input=2, seq=0)),
    ("event-order", "resources", late_resources),
    ("prefix", "prefixes", put("prefixes", 0, of=1)),
    ("prefix", "prefixes", put("prefixes", 0, to_tokens=0)),
    ("unit", "blocks", put("blocks", 0, unit=8)),
    ("unit", "pools", put("pools", 0, reserved=9)),
    ("private", "schedulers", put("schedulers", 0, config="[1]")),
    ("private", "schedulers", put("schedulers", 0, config='{"prompt": "Tell me a story"}')),
    ("private", "schedulers", put("schedulers", 0, config='{"a": [1, 2]}')),
    ("private", "schedulers", put("schedulers", 0, engine="a b")),
    ("private", "requests", put("requests", 0, flags=["Tell me"])),
    ("private", "inputs", put("inputs", 0, word="Tell me")),
    ("private", "pools", put("pools", 0, name="k v")),
    ("delay", "delays", put("delays", 0, op=30)),
    ("delay", "delays", put("delays", 1, line=0)),
    ("ref", "delays", put("delays", 1, op=21)),
    ("word", "delays", put("delays", 1, place="between")),
    ("negative", "delays", put("delays", 0, asked_ns=-1)),
]

BROKEN_MANIFEST: list[tuple[str, dict[str, Any]]] = [
    ("coverage", {"coverage": (Coverage(3),)}),
    ("coverage", {"coverage": (Coverage(0), Coverage(0))}),
    ("coverage", {"coverage": (Coverage(0, waits="mostly"),)}),
    ("process", {"processes": (Process(1),)}),
    ("counts", {"processes": (Process(0, complete=False),)}),
    ("counts", {"processes": (Process(0, lost=3),), "lost": 2}),
    ("profile", {"profiles": {"mine": {"no_such_promise": True}}}),
    ("private", {"engine": {"name": "x", "model": "/models/secret.gguf"}}),
    ("delay", {"delays": ()}),
    ("delay", {"delays": (DelayLine(2, "x", 0), DelayLine(1, "y", 0))}),
    ("delay", {"delays": (DelayLine(0, "x", 0),)}),
    ("private", {"delays": (DelayLine(1, "every copy of /home/x +1us", 0),)}),
    ("private", {"notes": ("loaded from ~/x",)}),
    ("private", {"switches": {"LOG": "C:\\log"}}),
]


@pytest.mark.parametrize(
    ("code", "table", "change"), BROKEN, ids=[f"{i}-{b[0]}" for i, b in enumerate(BROKEN)]
)
def test_rule_fires(rich_builder: TapeBuilder, rich_tape: Tape, code: str, table: str, change: Break) -> None:
    change(rich_builder)
    found = validate(rich_builder.build(rich_tape.manifest))
    assert (code, table) in {(v.code, v.table) for v in found}, [v.text() for v in found]
    assert all(v.code in RULES and v.message and v.text() for v in found)


@pytest.mark.parametrize(("code", "change"), BROKEN_MANIFEST)
def test_manifest_rule_fires(rich_tape: Tape, code: str, change: dict[str, Any]) -> None:
    broken = Tape(
        dataclasses.replace(rich_tape.manifest, **change), {n: rich_tape.table(n) for n in rich_tape.present}
    )
    found = validate(broken)
    assert {v.code for v in found} == {code}, [v.text() for v in found]


def test_every_rule_is_tested(rich_tape: Tape) -> None:
    assert {c for c, *_ in BROKEN} | {c for c, _ in BROKEN_MANIFEST} == set(RULES)
    assert validate(rich_tape) == []


@pytest.mark.parametrize(
    "change",
    [
        put("buffers", 0, bytes=None),
        put("accesses", 0, bytes=3648),
        put("accesses", 2, bytes=(1 << 16) - 3 * 256),
        put("ops", KERNEL, arg=62),
        put("ops", ALLOC, issue_ns=9),
        put("ops", FREE, issue_ns=None),
        put("ops", WAIT, sync_of=None),
        put("ops", UNRESOLVED, wait_state="foreign"),
        put("ops", KERNEL, issuer=None),
        put("ops", KERNEL, access_set=None),
        put("ops", SYNC, target_kind="device", target=1),
        op(kind="alloc"),
        op(kind="free"),
        op(kind="free", target=1),  # a double free is for check to find
        drop("telemetry", 0),
        put("inputs", 3, step=None),
        put("inputs", 4, request=1, requests=[0]),
        put("inputs", 0, at_ns=-5),
        put("blocks", 0, request=None),
        put("requests", 0, arrive_ns=-(1 << 40)),
        queues(4093),
        nested_buffers(64),
        nested_ops(256),
        argument_and_units(
            (0, 10), (10, 0), (5, 10)
        ),  # no op has both the greatest arg and the greatest unit
    ],
)
def test_limits_are_not_violations(rich_builder: TapeBuilder, rich_tape: Tape, change: Break) -> None:
    change(rich_builder)
    assert [v.text() for v in validate(rich_builder.build(rich_tape.manifest))] == []


def test_many_violations_are_counted(rich_builder: TapeBuilder, rich_tape: Tape) -> None:
    for _ in range(3 * PER_RULE_MAX):
        rich_builder.op(kind="wait", queue=0, issuer=0, access_set=0)
    found = [v for v in validate(rich_builder.build(rich_tape.manifest)) if v.code == "sync-missing"]
    assert len(found) == PER_RULE_MAX + 1
    assert found[-1].message == f"and {2 * PER_RULE_MAX} more of this kind"


def test_several_rules_at_once(rich_builder: TapeBuilder, rich_tape: Tape) -> None:
    for _, _, change in BROKEN[::7]:
        change(rich_builder)
    codes = [v.code for v in validate(rich_builder.build(rich_tape.manifest))]
    assert codes == sorted(codes, key=list(RULES).index)
    assert len(set(codes)) > 5


def test_loading_refuses_what_is_invalid(rich_builder: TapeBuilder, rich_tape: Tape, tmp_path: Path) -> None:
    put("ops", KERNEL, queue=9)(rich_builder)
    path = write_tape(rich_builder.build(rich_tape.manifest), tmp_path / "a.tape")
    with pytest.raises(InvalidTape) as e:
        load_tape(path)
    assert isinstance(e.value, InputError)
    assert "queue 9" in e.value.found
    assert "--validate" in e.value.next_step
    assert load_tape(path, validate=False).table("ops").num_rows == 17


def test_empty_tapes_are_valid() -> None:
    assert validate(TapeBuilder().build()) == []
    assert validate(Tape(Manifest(), {})) == []


def test_the_last_op_id_may_come_first() -> None:
    b = TapeBuilder()
    host = b.device(name="CPU", kind="host")
    queue = b.queue(device=host, name="main", kind="host_thread")
    b.op(op=(1 << 63) - 1, kind="host", queue=queue, issuer=queue, access_set=0)
    assert validate(b.build()) == []


def test_counters_of_a_scheduler_are_judged_and_not_refused(
    rich_builder: TapeBuilder, rich_tape: Tape
) -> None:
    """A scheduler whose own counts are wrong can be recorded."""
    rich_builder.rows("resources")[0].update(free=-2, used=1 << 40)
    assert validate(rich_builder.build(rich_tape.manifest)) == []


def test_corpus_is_valid() -> None:
    """Every litmus model of the corpus keeps the specification, in both variants."""
    corpus = Path(__file__).parents[1] / "corpus"
    files = sorted(f for d in ("ops", "own") for f in (corpus / d).glob("*.litmus"))
    assert len(files) >= 62
    for f in files:
        for variant in ("", ":fixed"):
            tape = load_tape(f"{f}{variant}", validate=False)
            assert [v.text() for v in validate(tape)] == [], f"{f.name}{variant}"
