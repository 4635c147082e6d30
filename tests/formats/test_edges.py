"""The edge contract: resolved edges, the reference order, what is stuck, references that point nowhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.edges import RULES, resolve
from tapedelay.formats.errors import InvalidTape


def scene() -> tuple[TapeBuilder, int, int, int]:
    b = TapeBuilder()
    cpu = b.device(name="cpu", kind="host")
    gpu = b.device(name="gpu", kind="gpu")
    h = b.queue(device=cpu, name="H", kind="host_thread")
    return b, h, b.queue(device=gpu, name="a"), b.queue(device=gpu, name="c")


def edges(b: TapeBuilder) -> list[tuple[int, int, str]]:
    c = resolve(b.build())
    return sorted(
        (s, t, RULES[r])
        for s, t, r in zip(c.source.tolist(), c.target.tolist(), c.rule.tolist(), strict=True)
    )


def test_edges_say_which_rule_they_come_from() -> None:
    b, h, a, c = scene()
    e, s = b.sync(name="e"), b.sync(name="s", kind="semaphore")
    b.op(kind="host", queue=h, issuer=h, access_set=0)
    b.op(kind="kernel", queue=a, issuer=h, access_set=0)
    b.op(kind="record", queue=a, issuer=h, sync=e, access_set=0)
    b.op(kind="wait", queue=c, issuer=h, sync=e, wait_state="contract", access_set=0)
    b.op(kind="semsig", queue=c, issuer=h, sync=s, access_set=0)
    b.op(kind="semwait", queue=a, issuer=h, sync=s, access_set=0)
    b.op(kind="sync", queue=h, issuer=h, target_kind="all", access_set=0)
    b.edge(1, 3)
    assert edges(b) == [
        (0, 1, "issue"),
        (0, 2, "issue"),
        (0, 3, "issue"),
        (0, 4, "issue"),
        (0, 5, "issue"),
        (0, 6, "program"),
        (1, 2, "program"),
        (1, 3, "edge"),
        (2, 3, "event"),
        (2, 5, "program"),
        (3, 4, "program"),
        (4, 5, "semaphore"),
        (4, 6, "sync"),
        (5, 6, "sync"),
    ]


def test_the_reference_order_takes_the_lowest_ready_issue_index() -> None:
    b, _h, a, c = scene()
    s = b.sync(name="s", kind="semaphore")
    b.op(kind="semwait", queue=a, issuer=None, sync=s, access_set=0)
    b.op(kind="kernel", queue=a, issuer=None, access_set=0)
    b.op(kind="kernel", queue=c, issuer=None, access_set=0)
    b.op(kind="semsig", queue=c, issuer=None, sync=s, access_set=0)
    b.op(kind="kernel", queue=c, issuer=None, access_set=0)
    assert resolve(b.build()).order().schedule == [2, 3, 0, 1, 4]


def test_a_collective_is_issued_with_its_last_member() -> None:
    b, _h, a, c = scene()
    s = b.sync(name="all", kind="collective")
    b.op(kind="coll", queue=a, issuer=None, sync=s, access_set=0)
    b.op(kind="kernel", queue=c, issuer=None, access_set=0)
    b.op(kind="coll", queue=c, issuer=None, sync=s, access_set=0)
    contract = resolve(b.build())
    assert contract.unit == [2, 1, 2]
    assert list(contract.rows_of(2)) == [0, 2]
    assert contract.order().schedule == [1, 2]


def test_a_parent_ends_after_its_children() -> None:
    b, _h, a, c = scene()
    p = b.op(kind="kernel", queue=a, issuer=None, access_set=0)
    b.op(kind="kernel", queue=a, issuer=None, access_set=0)
    b.op(kind="kernel", queue=c, issuer=None, parent=p, access_set=0)
    assert resolve(b.build()).order().schedule == [0, 2, ~0, 1]


def test_a_parent_that_is_followed_by_its_child_on_one_queue() -> None:
    b, _h, a, _c = scene()
    p = b.op(kind="kernel", queue=a, issuer=None, access_set=0)
    b.op(kind="kernel", queue=a, issuer=None, parent=p, access_set=0)
    b.op(kind="kernel", queue=a, issuer=None, parent=p, access_set=0)
    b.op(kind="kernel", queue=a, issuer=None, access_set=0)
    contract = resolve(b.build())
    assert contract.order().schedule == [0, 1, 2, ~0, 3]
    assert edges(b) == [(0, 3, "program"), (1, 2, "program"), (2, 3, "program")]


def test_a_wait_for_any_starts_although_one_record_never_comes() -> None:
    b, h, a, c = scene()
    e, f, s = b.sync(name="e"), b.sync(name="f"), b.sync(name="s", kind="semaphore")
    b.op(kind="semwait", queue=a, issuer=None, sync=s, access_set=0)
    b.op(kind="record", queue=a, issuer=None, sync=e, access_set=0)
    b.op(kind="record", queue=c, issuer=None, sync=f, access_set=0)
    listed = b.unit_list([e, f])
    b.op(kind="wait_any", queue=h, issuer=None, list=listed, wait_state="contract", access_set=0)
    order = resolve(b.build()).order()
    assert order.schedule == [2, 3]
    assert order.stuck.never == (0,)
    assert order.stuck.cycles == ()
    assert order.stuck.units == (0, 1)


def test_a_cycle_of_explicit_edges_is_stuck() -> None:
    b, _h, a, c = scene()
    for queue in (a, c, c):
        b.op(kind="kernel", queue=queue, issuer=None, access_set=0)
    b.edge(0, 1)
    b.edge(1, 0)
    order = resolve(b.build()).order()
    assert order.schedule == []
    assert order.stuck.cycles == ((0, 1),)
    assert order.stuck.units == (0, 1, 2)


def test_op_ids_need_not_be_dense() -> None:
    b, _h, a, c = scene()
    e = b.sync(name="e")
    b.op(op=10, kind="record", queue=a, issuer=None, sync=e, access_set=0)
    b.op(op=400, kind="wait", queue=c, issuer=None, sync=e, sync_of=10, access_set=0)
    assert edges(b) == [(0, 1, "event")]


@pytest.mark.parametrize(
    "columns",
    [
        {"queue": 99},
        {"queue": -5},
        {"issuer": 99},
        {"parent": 1234},
        {"sync": 99},
        {"sync_of": 77},
        {"kind": "sync", "target_kind": "queue", "target": 99},
        {"kind": "sync", "target_kind": "device", "target": -2},
        {"kind": "free", "target": 3},
        {"kind": "wait_any", "list": 7, "wait_state": "contract"},
    ],
)
def test_references_that_point_nowhere_are_refused(columns: dict[str, Any]) -> None:
    b, h, a, _ = scene()
    b.op(**{"kind": "kernel", "queue": a, "issuer": h, "access_set": 0, **columns})
    with pytest.raises(InvalidTape) as caught:
        resolve(b.build())
    assert caught.value.expected
    assert caught.value.exit_code == 3


def test_ids_that_do_not_grow_and_edges_to_nowhere_are_refused() -> None:
    b, h, a, _ = scene()
    b.op(op=5, kind="kernel", queue=a, issuer=h, access_set=0)
    b.op(op=5, kind="kernel", queue=a, issuer=h, access_set=0)
    with pytest.raises(InvalidTape, match="do not grow"):
        resolve(b.build())
    b, h, a, _ = scene()
    b.op(kind="kernel", queue=a, issuer=h, access_set=0)
    b.edge(0, 9)
    with pytest.raises(InvalidTape, match="dst 9"):
        resolve(b.build())


def test_an_unknown_profile_is_refused() -> None:
    b = TapeBuilder()
    b.device(name="x", kind="gpu", profile="no-such-profile")
    with pytest.raises(InvalidTape, match="no-such-profile"):
        resolve(b.build())


def test_edges_stay_few_on_a_long_tape() -> None:
    b, h, a, c = scene()
    for i in range(3000):
        b.op(kind="kernel", queue=(a, c)[i % 2], issuer=h, access_set=0)
        if i % 10 == 9:
            b.op(kind="sync", queue=h, issuer=h, target_kind="all", access_set=0)
    contract = resolve(b.build())
    assert len(contract.source) <= 2.5 * contract.ops.rows
    assert np.all(contract.source < contract.target)
