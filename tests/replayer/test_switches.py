"""Debugging switches: what each adds to the contract, natively as in Python, and what `check` says."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tapedelay.formats.delays import match_plan, parse_expression
from tapedelay.formats.edges import RULES, resolve
from tapedelay.formats.errors import InvalidTape, TapedelayError
from tapedelay.formats.litmus import parse, print_litmus
from tapedelay.formats.load import load_tape
from tapedelay.formats.switches import SWITCHES, TABLE, Effect
from tapedelay.formats.tape import Tape
from tapedelay.replayer import _core
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.command import render
from tapedelay.replayer.check.hiding import candidates
from tapedelay.replayer.columns import core_tape

from .brute_force import BruteForce
from .random_tapes import BYTES, random_tape
from .switch_cases import CASES, Case
from .test_brute_force import checked
from .test_columns import same

ROOT = Path(__file__).parents[2]
BAD = ROOT / "traces" / "ggml-26040-bad.tape.zip"
pytestmark = pytest.mark.counted
MANY = 2_000 if os.environ.get("TAPEDELAY_SOAK") else 40


def put_first(case: Case, name: str, state: str) -> Tape:
    """Return the tape of a case under a state; what follows a comma are more header lines."""
    lines = [f"switch {name} {state.replace(', ', chr(10))}\n"] if state else []
    return parse("".join(lines) + case.text).tape()


def test_every_switch_has_a_case() -> None:
    assert list(CASES) == [s.name for s in SWITCHES]
    for name, case in CASES.items():
        assert len(case.states) > 1
        # A switch that orders something changes the verdict, any other does not.
        changed = {v for k, v in case.states.items() if "," not in k} != {case.without}
        assert changed == bool(TABLE[name].effects or TABLE[name].weakens), name


@pytest.mark.parametrize(("name", "state"), [(n, s) for n, c in CASES.items() for s in ("", *c.states)])
def test_a_litmus_with_and_without(name: str, state: str) -> None:
    case = CASES[name]
    tape = put_first(case, name, state)
    same(tape)
    assert tuple(check_tape(tape).verdict_lines()) == (case.states[state] if state else case.without)
    assert parse(print_litmus(tape)).tape().manifest.switches == tape.manifest.switches


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.hidden_by is not None])
def test_check_names_what_hides_a_finding(name: str) -> None:
    case = CASES[name]
    report = check_tape(put_first(case, name, ""))
    first = report.findings[0]
    assert tuple(h.text() for h in first.hidden_by) == case.hidden_by
    text = "\n".join(render(report))
    if case.hidden_by:
        assert f"hidden by: {' or '.join(case.hidden_by)}" in text


def test_what_is_named_is_true() -> None:
    """Under what `check` names, the pair is not found; under what it does not name, something still is."""
    asked = 0
    for name, case in CASES.items():
        tape = put_first(case, name, "")
        report = check_tape(tape)
        for hider, suppose in candidates(tape):
            switched = Tape(
                dataclasses.replace(tape.manifest, switches={**tape.manifest.switches, **suppose}),
                {n: tape.table(n) for n in tape.present},
            )
            left = {f.line() for f in check_tape(switched).findings}
            for f in report.findings:
                named = hider in f.hidden_by
                # A setting that needs others is left out where its switch does without.
                alone = any(h.switch == hider.switch and not h.others for h in f.hidden_by)
                assert (f.line() not in left) == (named or (bool(hider.others) and alone)), (
                    name,
                    hider,
                    f.line(),
                )
                asked += 1
    assert asked > 30


def test_a_setting_under_which_the_tape_was_recorded_is_not_named() -> None:
    case = CASES["CUDA_LAUNCH_BLOCKING"]
    report = check_tape(put_first(case, "CUDA_LAUNCH_BLOCKING", "on"))
    assert [f.hidden_by for f in report.findings] == [()]


def test_a_setting_that_is_the_default_is_named_where_the_tape_says_otherwise() -> None:
    case = CASES["GGML_CUDA_GRAPH_OPT"]
    report = check_tape(put_first(case, "GGML_CUDA_GRAPH_OPT", "on"))
    assert [h.text() for h in report.findings[0].hidden_by] == ["GGML_CUDA_GRAPH_OPT=0"]


def test_no_pass_without_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr("tapedelay.replayer.check.hiding.candidates", no)
    monkeypatch.setattr("tapedelay.replayer.check.hiding.core_tape", no)
    case = CASES["CUDA_LAUNCH_BLOCKING"]
    assert (
        check_tape(parse(case.text.split("1 |")[0] + "1 | kernel | s0 | M | D\n").tape()).verdict == "clean"
    )
    with pytest.raises(AssertionError, match="asked"):
        check_tape(put_first(case, "", ""))


def test_one_pass_per_sort_of_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(tape: Tape, **options: Any) -> _core.Tape:
        passes.append(options.get("suppose"))
        return core_tape(tape, **options)

    monkeypatch.setattr("tapedelay.replayer.check.hiding.core_tape", counted)
    case = CASES["HIP_LAUNCH_BLOCKING"]
    report = check_tape(put_first(case, "", ""))
    assert [h.text() for h in report.findings[0].hidden_by] == [
        "HIP_LAUNCH_BLOCKING=1",
        "AMD_SERIALIZE_KERNEL=2",
    ]
    # HIP_LAUNCH_BLOCKING and AMD_SERIALIZE_KERNEL=2 are the same edges; so are `after` and `both`.
    assert passes == [
        {"HIP_LAUNCH_BLOCKING": "on"},
        {"AMD_SERIALIZE_KERNEL": "before"},
        {"AMD_SERIALIZE_COPY": "before"},
        {"AMD_SERIALIZE_COPY": "after"},
    ]


# --- the recording of a real engine ---


def test_the_recording_says_what_hides_it() -> None:
    tape = load_tape(BAD)
    report = check_tape(tape)
    (group,) = report.groups
    assert [(h.setting, h.backend) for h in group.hidden_by] == [
        ("GGML_VK_DISABLE_ASYNC=1", "Vulkan"),
        ("GGML_VK_SERIALIZE_SUBMISSIONS=1", "Vulkan"),
        ("TAPEDELAY_SYNC=1", ""),
    ]
    assert all(f.hidden_by == group.hidden_by for f in report.findings)
    f = group.example
    hides, shows = f.delay_hides, f.delay_shows
    assert hides == 'first compute of "cache_r_l0 (reshaped) (view) (view)" on host0 +10ms before_issue'
    assert shows == "first copy of model.input_embed on TAPE0 +3ms before_start"
    for line, op in ((hides, f.second), (shows, f.first)):
        delays = match_plan(parse_expression(line), tape).delays
        assert tape.table("ops").column("op")[int(delays.row[0])].as_py() == op
    text = "\n".join(render(report))
    assert "GGML_VK_DISABLE_ASYNC=1 or GGML_VK_SERIALIZE_SUBMISSIONS=1 on a real Vulkan backend" in text
    told = group.as_dict()["example"]
    assert told["hidden_by"][0] == {
        "kind": "switch",
        "switch": "GGML_VK_DISABLE_ASYNC",
        "state": "on",
        "set": "GGML_VK_DISABLE_ASYNC=1",
        "with": [],
        "real_backend": "Vulkan",
    }
    assert told["hidden_by"][-1] == {"kind": "delay", "line": hides}
    assert told["shown_by"] == [{"kind": "delay", "line": shows}]


def test_a_group_is_hidden_by_what_hides_all_of_it() -> None:
    # The second copy has no compute behind it: the switch orders the first pair alone.
    text = (
        CASES["GGML_VK_DISABLE_ASYNC"].text.split("6 |")[0].replace("| N ", "| M ").replace("| N\n", "| M\n")
    )
    report = check_tape(parse(text).tape())
    (group,) = report.groups
    assert group.count == 2
    assert group.hidden_by == ()
    assert [bool(f.hidden_by) for f in report.findings] == [True, False]
    assert "only the first of them hidden by: GGML_VK_DISABLE_ASYNC=1" in "\n".join(render(report))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # An op in flight when its memory goes: order helps.
        (["1 | kernel | s0 | D | E", "2 | free | H | | | D"], ["CUDA_LAUNCH_BLOCKING=1"]),
        # An op that begins after it has gone: none does.
        (["1 | free | H | | | D", "2 | kernel | s0 | D | E"], []),
        (["1 | semwait | s0 | | | x"], []),
    ],
)
def test_lifetimes_and_deadlocks(rows: list[str], expected: list[str]) -> None:
    head = "device CPU host\ndevice CUDA0 gpu\nhost H CPU\nqueue s0 CUDA0\n"
    report = check_tape(parse(head + "\n".join(rows) + "\n").tape())
    assert len(report.findings) == 1
    assert [h.text() for h in report.findings[0].hidden_by] == expected


# --- against readable and brute-force implementations ---

_NAMES = {"CUDA0": "cuda", "ROCm1": "rocm", "Vulkan0": "vulkan", "MTL0": "metal", "g7": ""}


def switched_tape(seed: int) -> Tape:
    """Return a random tape with random devices and switches."""
    draw = random.Random(seed)
    tape = random_tape(draw.randbytes(BYTES))
    devices = tape.table("devices").to_pylist()
    for d in devices:
        if d["kind"] != "host":
            d["name"] = draw.choice(list(_NAMES))
            d["profile"] = draw.choice(("strict", "strict", "blocking-copies"))
    chosen = draw.sample(SWITCHES, draw.randrange(4))
    switches = {s.name: draw.choice(s.states) for s in chosen}
    if draw.random() < 0.3:
        switches |= {"CUDA_LAUNCH_BLOCKING": "on", "GGML_CUDA_DISABLE_GRAPHS": "on"}
    schema = tape.table("devices").schema
    tables = {n: tape.table(n) for n in tape.present}
    tables["devices"] = pa.Table.from_pylist(devices, schema)
    return Tape(dataclasses.replace(tape.manifest, switches=switches), tables)


class Switched(BruteForce):
    """The brute force with what switches add, written down again over pairs of rows."""

    def __init__(self, tape: Tape) -> None:
        self.said = tape.manifest.switches
        super().__init__(tape)

    def effects(self, i: int) -> list[Effect]:
        """What holds for row i: the effects on its device that are about its kind."""
        d, o = self.devices[self.device(i)], self.ops[i]
        backend = _NAMES.get(d["name"], "") if d["kind"] != "host" else ""
        return [
            e
            for s in SWITCHES
            if backend in s.backends and s.name in self.said
            for e in s.effects.get(self.said[s.name], ())
            if all(self.said.get(n) == w for n, w in e.needs) and (not e.kinds or o["kind"] in e.kinds)
        ]

    def rules(self, i: int) -> set[str]:
        return {e.rule for e in self.effects(i) if not e.directions}

    def issued(self, i: int) -> bool:
        o = self.ops[i]
        return self.host(o["issuer"]) and o["issuer"] != o["queue"]

    def blocks_issuer(self, i: int) -> bool:
        if not self.issued(i):
            return False
        if ("blocks" in self.rules(i) and not self.parents[self.group[i]]) or super().blocks_issuer(i):
            return True
        wanted = {d for e in self.effects(i) for d in e.directions}
        return bool(wanted & self.copied(i))

    def copied(self, i: int) -> set[str]:
        def side(a: dict[str, Any]) -> str:
            if a["buffer"] is None:
                return "h"
            b = self.buffers[a["buffer"]]
            if b["kind"] == "pinned":
                return "p"
            return "h" if self.devices[b["device"]]["kind"] == "host" else "d"

        touched = [a for a in self.accesses if a["set"] == self.ops[i]["access_set"]]
        reads = [a for a in touched if a["mode"] == "read"]
        return {f"{side(a)}2{side(b)}" for a in reads for b in touched if b["mode"] != "read"}

    def orders(self, a: int, b: int) -> bool:
        if super().orders(a, b):
            return True
        x, y = self.ops[a], self.ops[b]
        both = self.rules(a) & self.rules(b)
        if x["queue"] == y["queue"] and "in_order" in both:
            return True
        if "launch_in_order" in both and self.parents[self.group[a]] & self.parents[self.group[b]]:
            return True
        threads = (y["queue"], y["issuer"])
        for c in range(b):
            o = self.ops[c]
            if not self.issued(c) or o["issuer"] not in threads:
                continue
            ordered = self.queues[o["queue"]]["in_order"]
            drains = "drains" in self.rules(c) and not self.parents[self.group[c]]
            if a < c and drains and x["queue"] == o["queue"] and ordered:
                return True
            if o["kind"] == "wait" and "collective_waits_block" in self.rules(c) and self.sources(c) == [a]:
                earlier = [j for j in range(a) if self.ops[j]["queue"] == x["queue"]]
                if earlier and self.ops[earlier[-1]]["kind"] == "coll":
                    return True
        return False


def test_random_tapes_have_the_same_edges_natively() -> None:
    rules: set[int] = set()
    for seed in range(2 * MANY):
        tape = switched_tape(seed)
        same(tape)
        try:
            rules |= set(resolve(tape).rule.tolist())
        except InvalidTape:
            continue
    assert RULES.index("switch") in rules


def test_random_tapes_are_judged_as_by_brute_force() -> None:
    found = 0
    for seed in range(10_000, 10_000 + 2 * MANY):
        tape = switched_tape(seed)
        other = Switched(tape)
        if other.refused():
            continue
        expected, got = other.run(), checked(tape)
        assert got.races == expected.races, seed
        assert got.lifetimes == expected.lifetimes, seed
        assert got.deadlocks == expected.deadlocks, seed
        found += len(got.races)
    assert found > MANY // 8


def test_what_is_ordered_is_what_reaches() -> None:
    answers = set()
    for seed in range(20_000, 20_000 + MANY):
        tape = switched_tape(seed)
        other = Switched(tape)
        if other.refused():
            continue
        other.run()
        reach = other.matrix(set())
        started = [i for i in range(other.n) if other.group[i] in other.started]
        pairs = [
            (a, b)
            for a in started
            for b in started
            if other.group[a] != other.group[b]
            and other.group[a] not in other.ancestors(other.group[b])
            and other.group[b] not in other.ancestors(other.group[a])
        ]
        if not pairs:
            continue
        first, second = np.array(pairs, np.int32).T.copy()
        got = _core.ordered(core_tape(tape, times=False), first, second).tolist()
        expected = [
            reach[2 * other.group[a] + 1][2 * other.group[b]]
            + 2 * reach[2 * other.group[b] + 1][2 * other.group[a]]
            for a, b in pairs
        ]
        assert got == expected, seed
        answers |= set(got)
    assert answers == {0, 1, 2}


def test_what_is_named_is_true_on_random_tapes() -> None:
    named = 0
    for seed in range(30_000, 30_000 + MANY):
        tape = switched_tape(seed)
        try:
            report = check_tape(tape)
            asked = candidates(tape) if report.findings else []
        except TapedelayError:
            continue
        for hider, suppose in asked:
            manifest = dataclasses.replace(tape.manifest, switches={**tape.manifest.switches, **suppose})
            switched = Tape(manifest, {n: tape.table(n) for n in tape.present})
            left = {(f.first, f.second, f.fault) for f in check_tape(switched).findings}
            for f in report.findings:
                if hider in f.hidden_by:
                    named += 1
                    assert (f.first, f.second, f.fault) not in left, (seed, hider)
    assert named > 2


def test_pairs_that_no_tape_has_are_refused() -> None:
    core = core_tape(put_first(CASES["CUDA_LAUNCH_BLOCKING"], "", ""))
    none = np.array([], np.int32)
    assert _core.ordered(core, none, none).tolist() == []
    for bad in (-1, 4):
        with pytest.raises(ValueError, match="a row that the tape has not"):
            _core.ordered(core, np.array([0], np.int32), np.array([bad], np.int32))
    with pytest.raises(ValueError, match="two rows each"):
        _core.ordered(core, np.array([0], np.int32), none)
