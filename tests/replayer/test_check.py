"""Findings, groups, lifetimes, conditions and what they mean for the verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Coverage, Manifest, Tape
from tapedelay.formats.window import window
from tapedelay.replayer.check import Report, check_tape, judge

BUG = """
1 | host   | H   |    | M0[0:4096] |
2 | copy   | vk0 | M0[0:4096] | D0 |
5 | host   | H   |    | M0[1024:2048] |
"""


def litmus(text: str) -> Report:
    return check_tape(parse(text).tape())


def ggml_like(times: int = 1, *, synchronised: bool = False) -> Tape:
    """Return a tape as the ggml recorder makes it, with the shape of upstream bug 26040."""
    b = TapeBuilder()
    cpu = b.device(name="CPU", kind="host", profile="ggml-host")
    gpu = b.device(name="TAPE0", kind="test", profile="vulkan-like")
    h = b.queue(device=cpu, name="thread 0", kind="host_thread")
    q = b.queue(device=gpu, name="TAPE0")
    pinned = b.buffer(device=cpu, name="TAPE0_Host 0", bytes=8192, kind="pinned")
    memory = b.buffer(device=gpu, name="TAPE0 0", bytes=8192)
    for layer in range(times):
        copied = b.access_set(
            [
                {"buffer": pinned, "offset": 0, "bytes": 4096, "mode": "read", "name": "model.input_embed"},
                {"buffer": memory, "offset": 0, "bytes": 4096, "mode": "write", "name": "TAPE0#embed"},
            ]
        )
        written = b.access_set(
            [
                {"buffer": pinned, "offset": 1024 + layer, "bytes": 1024, "mode": "write",
                 "name": f"conv_states-{layer}"},
            ]
        )  # fmt: skip
        b.op(kind="copy", queue=q, issuer=h, name="cpy_tensor_async", access_set=copied, step=layer, split=1)
        if synchronised:
            b.op(kind="sync", queue=h, issuer=h, target_kind="queue", target=q, access_set=0)
        b.op(kind="compute", queue=h, issuer=h, name=f"CPU compute {layer}", access_set=written, split=2)
        b.op(kind="sync", queue=h, issuer=h, target_kind="queue", target=q, access_set=0)
    return b.build(name="run.tape")


def under(manifest: Manifest, tape: Tape) -> Tape:
    return Tape(manifest, {n: tape.table(n) for n in tape.present})


def test_a_finding_says_everything() -> None:
    report = check_tape(ggml_like())
    (f,) = report.findings
    assert (f.kind, f.verdict, f.fault, f.hazard) == ("race", "race", "WAR", "WAR")
    assert (f.first, f.second, f.labels) == (0, 1, ("#0", "#1"))
    assert (f.buffer, f.begin, f.end) == ("TAPE0_Host 0", 1024, 2048)
    assert f.queues == ("TAPE0", "thread 0")
    assert f.text == (
        "nothing orders the copy of `model.input_embed` on TAPE0 before the CPU compute that writes "
        "`conv_states-0`"
    )
    assert (f.ops[0].device, f.ops[0].step, f.ops[0].split) == ("TAPE0", 0, 1)
    assert report.exit_code == 1
    assert check_tape(ggml_like(synchronised=True)).verdict_lines() == ["clean"]


def test_one_kind_of_finding_is_one_group_whatever_its_layer() -> None:
    report = check_tape(ggml_like(40))
    assert len(report.findings) == 40
    (group,) = report.groups
    assert group.count == 40
    assert group.example == report.findings[0]
    assert (group.begin, group.end) == (1024, 1024 + 39 + 1024)


def test_more_findings_than_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_FINDINGS", 10)
    report = check_tape(ggml_like(40))
    assert len(report.findings) == 10
    assert report.groups[0].count == 40
    assert report.count("race") == 40
    assert any("30 more findings" in c.detail for c in report.conditions)


def test_json_is_documented_and_complete() -> None:
    data = check_tape(ggml_like(3)).as_dict()
    assert json.loads(json.dumps(data)) == data
    documented = str(Report.as_dict.__doc__)
    for key in (*data, *data["findings"][0], *data["findings"][0]["ops"][0], *data["groups"][0]):
        assert f"``{key}``" in documented, key
    rest = dict.fromkeys(("lifetime", "deadlock", "violation", "possible", "unknown"), 0)
    assert data["counts"] == {"race": 3} | rest
    assert data["verdict"] == "race"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        # A root buffer that goes while a kernel may still use it, and its repair.
        ("1 | kernel | s0 | | M |\n2 | free | H | | | M", "lifetime: 1x2 free-in-flight M"),
        ("1 | kernel | s0 | | M |\n1a | sync | H | | | s0\n2 | free | H | | | M", "clean"),
        ("1 | free | H | | | M\n2 | kernel | s0 | | M |", "lifetime: 1x2 use-after-free M"),
        ("1 | kernel | s0 | M | |\n2 | alloc | H | | | M", "lifetime: 1x2 use-before-alloc M"),
        ("1 | alloc | H | | | M\n2 | kernel | s0 | M | |", "clean"),
        ("1 | free | H | | | M#0\n2 | free | T | | | M#0\n", "lifetime: 1x2 double-free M"),
        ("1 | record | s0 | | | e\n2 | destroy | H | | | e", "lifetime: 1x2 destroy-pending e"),
        ("1 | record | s0 | | | e\n1a | sync | H | | | s0\n2 | destroy | H | | | e", "clean"),
        ("1 | destroy | H | | | e\n2 | record | s0 | | | e", "lifetime: 1x2 use-after-destroy e"),
    ],
)
def test_lifetimes_both_ways(text: str, line: str) -> None:
    report = litmus(text)
    assert report.verdict_lines() == [line]
    assert report.exit_code == (0 if line == "clean" else 1)


def test_a_range_of_a_live_buffer_is_bookkeeping_until_it_is_reused() -> None:
    text = """
1 | alloc | H | | | A=M[0:16]
2 | kernel | s0 | | A |
3 | free | H | | | A
4 | alloc | H | | | B=M[8:24]
5 | kernel | {} | | B |
6 | kernel | s0 | M[0:64] | |
"""
    assert litmus(text.format("s0")).verdict_lines() == ["clean"]
    assert litmus(text.format("s1")).findings[0].line() == "2x5 WAW M[8:16]"


@pytest.mark.parametrize(
    ("columns", "access", "verdict"),
    [
        ({}, {}, "race"),
        ({"origin": "inferred"}, {}, "possible"),
        ({}, {"origin": "inferred"}, "possible"),
        ({}, {"origin": "declared"}, "possible"),
        ({}, {"mode": "may_write"}, "possible"),
    ],
)
def test_what_is_not_certain_is_possible(
    columns: dict[str, Any], access: dict[str, Any], verdict: str
) -> None:
    b = TapeBuilder()
    g = b.device(name="g", kind="gpu")
    queues = [b.queue(device=g, name=f"q{i}") for i in range(2)]
    m = b.buffer(device=g, name="M", bytes=8)
    plain = b.access_set([{"buffer": m, "offset": 0, "bytes": 8, "mode": "write"}])
    other = b.access_set([{"buffer": m, "offset": 0, "bytes": 8, "mode": "write", **access}])
    b.op(kind="kernel", queue=queues[0], access_set=other, **columns)
    b.op(kind="kernel", queue=queues[1], access_set=plain)
    report = check_tape(b.build())
    assert report.verdict == verdict
    assert report.exit_code == 1


def test_nothing_known_is_never_clean() -> None:
    unknown = litmus("1 | kernel | s0 | ? | ? |")
    assert (unknown.verdict, unknown.exit_code) == ("cannot judge", 4)
    assert unknown.verdict_lines() == ["unknown:"]
    empty = check_tape(TapeBuilder().build())
    assert (empty.verdict, empty.exit_code) == ("cannot judge", 4)
    found = litmus(BUG + "9 | kernel | s5 | ? | ? |")
    assert (found.verdict, found.exit_code) == ("race", 1)
    assert [c.name for c in found.conditions] == ["accesses"]


@pytest.mark.parametrize(
    ("coverage", "code", "names"),
    [
        ({}, 0, []),
        ({"accesses": "none"}, 4, ["accesses"]),
        ({"accesses": "partial"}, 4, ["accesses"]),
        ({"host_accesses": "partial"}, 0, ["host_accesses"]),
        ({"times": "none"}, 0, []),
    ],
)
def test_coverage_limits_the_verdict(coverage: dict[str, str], code: int, names: list[str]) -> None:
    tape = ggml_like(synchronised=True)
    manifest = replace(Manifest(), coverage=(Coverage(0, **coverage),))
    report = check_tape(Tape(manifest, {n: tape.table(n) for n in tape.present}))
    assert report.exit_code == code
    assert [c.name for c in report.conditions] == names


@pytest.mark.parametrize(
    ("manifest", "code"),
    [(Manifest(complete=False), 0), (Manifest(lost=3), 4)],
)
def test_a_recording_that_is_cut_or_has_gaps_says_so(manifest: Manifest, code: int) -> None:
    report = check_tape(under(manifest, ggml_like(synchronised=True)))
    assert report.exit_code == code
    assert [c.name for c in report.conditions] == ["complete"]


def test_a_recording_where_no_device_computed_cannot_be_judged() -> None:
    for seen, clean, names in ((False, 4, ["device_compute"]), (True, 0, []), (None, 0, [])):
        manifest = Manifest(engine={} if seen is None else {"device_compute": seen})
        report = check_tape(under(manifest, ggml_like(synchronised=True)))
        assert (report.exit_code, [c.name for c in report.conditions]) == (clean, names)
        assert check_tape(under(manifest, ggml_like())).exit_code == 1


def test_a_window_says_so_and_is_judged() -> None:
    report = check_tape(window(ggml_like(synchronised=True), 0, 2))
    assert report.exit_code == 0
    assert [(c.name, c.detail, c.blocks) for c in report.conditions] == [
        ("window", "a window 0:2 of 4 ops: pairs with ops outside are not judged", False)
    ]
    whole = check_tape(window(ggml_like(), 0, 99))
    assert (whole.exit_code, whole.conditions) == (1, [])


def test_access_sets_that_do_not_resolve_are_refused() -> None:
    for access, op in (
        ({"buffer": 7}, {}),
        ({"bytes_per_arg": 4}, {}),
        ({"unit_bytes": 4}, {}),
        ({}, {"access_set": 9}),
    ):
        b = TapeBuilder()
        g = b.device(name="g", kind="gpu")
        q = b.queue(device=g, name="q")
        m = b.buffer(device=g, name="M", bytes=8)
        found = b.access_set([{"buffer": m, "offset": 0, "bytes": 8, "mode": "write", **access}])
        b.op(**{"kind": "kernel", "queue": q, "access_set": found, **op})
        with pytest.raises(InvalidTape):
            check_tape(b.build())


def test_one_memory_under_two_buffers() -> None:
    for keys, expected in (((1, 1), 1), ((1, 2), 0), ((None, None), 0)):
        b = TapeBuilder()
        g = b.device(name="g", kind="gpu")
        for i, key in enumerate(keys):
            q = b.queue(device=g, name=f"q{i}")
            m = b.buffer(device=g, name=f"M{i}", bytes=8, shared_key=key)
            s = b.access_set([{"buffer": m, "offset": 4 * i, "bytes": 4 + i, "mode": "write"}])
            s2 = b.access_set([{"buffer": m, "offset": 0, "bytes": 5, "mode": "write"}])
            b.op(kind="kernel", queue=q, access_set=(s2, s)[i])
        assert len(check_tape(b.build()).findings) == expected


def test_many_ops_without_any_order_are_checked_in_time() -> None:
    """Two queues that never meet: recent accesses leave the table, the map answers, and it stays exact."""
    b = TapeBuilder()
    g = b.device(name="g", kind="gpu")
    q, r = b.queue(device=g, name="q"), b.queue(device=g, name="r")
    m = b.buffer(device=g, name="M", bytes=1 << 20)
    one = b.access_set([{"buffer": m, "offset": 0, "bytes": 4, "offset_per_arg": 4, "mode": "write"}])
    for i in range(4000):
        b.op(kind="kernel", queue=q, access_set=one, arg=i)
    prefix = b.access_set([{"buffer": m, "offset": 0, "bytes": 4, "bytes_per_arg": 4, "mode": "read"}])
    for i in range(4000):
        b.op(kind="kernel", queue=r, access_set=prefix, arg=i)
    found = check_tape(b.build()).findings
    assert [(f.first, f.second) for f in found] == [(i, 4000 + i) for i in range(4000)]
