"""The scheduler's own view of real engines: step and split on every op, one row per graph, its nodes."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import (
    PROGRAMS,
    prompt_program,
    record_arguments,
    record_program,
    tapedelay,
)

HERE = Path(__file__).parent / "programs"
TOKENS = 200


def record(
    tape: Path, program: list[str], environment: dict[str, str], **options: Any
) -> tuple[Tape, dict[str, Any]]:
    arguments = record_arguments(tape, program, **options)
    arguments.insert(1, "--tap")
    recording = record_program(arguments, environment)
    return load_tape(recording.tape), recording.answer


def calls(tape: Tape) -> list[tuple[int, int, int]]:
    """Return (step, graph, op) of every compute call of the scheduler."""
    word = "scheduler compute graph "
    return [
        (o["step"], int(o["name"].removeprefix(word)), o["op"])
        for o in tape.table("ops").to_pylist()
        if o["kind"] == "mark" and str(o["name"]).startswith(word)
    ]


def judge(tape: Tape) -> dict[int, list[dict[str, Any]]]:
    """Check what holds of every engine; return the ops with a split, by step."""
    ops = tape.table("ops").to_pylist()
    assert not any("split" in n for n in tape.manifest.notes)
    steps = [step for step, _, _ in calls(tape)]
    assert sorted(steps) == list(range(len(steps)))
    # Nothing computes and no queue works outside of a step, once the model is loaded.
    first = min(op for *_, op in calls(tape))
    queues = {q["queue"]: q["kind"] for q in tape.table("queues").to_pylist()}
    for o in ops:
        if o["kind"] == "compute":
            assert o["step"] is not None
            assert o["split"] is not None
        elif o["op"] > first and queues[o["queue"]] == "queue" and o["kind"] == "copy":
            assert o["step"] is not None
    inside = defaultdict(list)
    for o in ops:
        if o["split"] is not None:
            assert o["step"] is not None
            inside[o["step"]].append(o)
    assert sorted(inside) == sorted(steps)
    for rows in inside.values():
        assert len({o["issuer"] for o in rows}) == 1  # each step is one thread's
        assert [o["split"] for o in rows] == sorted(o["split"] for o in rows)
        whole = Counter(o["split"] for o in rows if o["kind"] == "compute" and o["parent"] is None)
        assert whole == dict.fromkeys(range(len(whole)), 1)  # a compute per split
    # one row per graph: no two are alike but for their number
    nodes = defaultdict(list)
    for n in tape.table("nodes").to_pylist():
        nodes[n["graph"]].append(str({k: v for k, v in n.items() if k != "graph"}))
    assert len({tuple(v) for v in nodes.values()}) == len(nodes) == tape.table("graphs").num_rows
    return inside


@pytest.mark.parametrize("build", ["racy", "newest"])
def test_a_long_answer_has_few_graphs_and_a_step_on_every_op(
    build: str, request: pytest.FixtureRequest, tiny_model: Path, tmp_path: Path
) -> None:
    program = prompt_program(tiny_model, "--prompt-tokens", "20", "--n-predict", str(TOKENS))
    tape, answer = record(tmp_path / "a.tape", program, request.getfixturevalue(build))
    assert len(answer["tokens"]) == TOKENS
    judge(tape)
    used = Counter(graph for _, graph, _ in calls(tape))
    assert used.total() >= TOKENS
    assert max(used.values()) >= TOKENS - 2
    assert tape.table("graphs").num_rows <= 6
    for graph in tape.table("graphs").to_pylist():
        assert graph["backend_order"] == [1, 0]
        nodes = [n for n in tape.table("nodes").to_pylist() if n["graph"] == graph["graph"]]
        order = [nodes[i] for i in graph["input_order"]]
        assert (len(order), order[0]["name"]) == (2, "inp_tokens")  # positions have no name in some
        assert all(n["is_input"] for n in order)
        assert {n["name"] for n in nodes if n["is_output"]} >= {"result_output"}
        first = next(op for _, g, op in calls(tape) if g == graph["graph"])
        assert graph["first_op"] == first + 1
    for words in (["replay", "--steps", "2:4"], ["export", "--format", "litmus", "--steps", "2:4"]):
        assert tapedelay(*words, tmp_path / "a.tape").code == 0
    assert f"{used.total():,} steps" in tapedelay("info", tmp_path / "a.tape").out


def test_a_graph_that_the_test_builds_itself(
    racy: dict[str, str], newest: dict[str, str], tmp_path: Path
) -> None:
    for build in (racy, newest):
        tape, told = record(
            tmp_path / f"{len(list(tmp_path.iterdir()))}.tape",
            [sys.executable, str(HERE / "scheduler_calls.py")],
            build,
        )
        inside = judge(tape)
        assert [max(o["split"] for o in rows) + 1 for rows in inside.values()] == [told["splits"]] * 3
        (graph,) = tape.table("graphs").to_pylist()
        assert (graph["n_copies"], graph["op_offload"], graph["backend_order"]) == (
            told["copies"],
            True,
            [1, 0],
        )
        nodes = tape.table("nodes").to_pylist()
        assert (graph["n_nodes"], graph["n_leafs"]) == (len(told["nodes"]), len(told["leafs"]))
        leafs = {n["name"]: i for i, n in enumerate(nodes) if i >= graph["n_nodes"]}
        index = {-10 - i: leafs[leaf["name"]] for i, leaf in enumerate(told["leafs"])}
        wanted = dict(enumerate(told["nodes"])) | {leafs[leaf["name"]]: leaf for leaf in told["leafs"]}
        for at, node in enumerate(nodes):
            host = wanted[at].pop("host")
            assert (node["buffer_kind"] in ("host", "pinned")) == bool(host)
            assert (node["buffer_kind"] is None) == (host is None)
            expected = {
                **wanted[at],
                "op_params": bytes.fromhex(wanted[at]["op_params"]),
                "sources": [index.get(s, s) for s in wanted[at]["sources"]],
                "view_source": index.get(wanted[at]["view_source"], wanted[at]["view_source"]),
                "user_backend": 0 if node["name"] == told["pinned"] else None,
            }
            assert {k: node[k] for k in expected} == expected
        assert [nodes[i]["name"] for i in graph["input_order"]] == ["rows", "x"]
        assert [n["name"] for n in nodes if n["is_output"]] == ["out"]


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (2, ("--prompt-tokens", "60", "--ubatch", "16")),
        (2, ("--prompt-tokens", "8", "--split-mode", "tensor")),
    ],
    ids=["pipeline", "tensor"],
)
def test_several_devices(
    devices: int, options: tuple[str, ...], newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    program = prompt_program(tiny_model, *options, "--n-predict", "4")
    tape, _ = record(tmp_path / "a.tape", program, newest, devices=devices, profile="full-async")
    judge(tape)
    parts = [o for o in tape.table("ops").to_pylist() if o["kind"] == "compute" and o["parent"] is not None]
    assert bool(parts) == ("tensor" in options)
    copies = {g["n_copies"] for g in tape.table("graphs").to_pylist()}
    assert copies == ({1} if "tensor" in options else {4})


def libraries() -> str:
    try:
        return str(engines.npm_libraries(engines.VULKAN_FIXED))
    except InfrastructureError as error:
        pytest.skip(f"no build with shared libraries: {error.found}")


def test_two_contexts_on_two_threads(tiny_model: Path, tmp_path: Path) -> None:
    program = [sys.executable, str(HERE / "llama_contexts.py"), "--libraries", libraries()]
    program += ["--model", str(tiny_model), "--prompt-tokens", "20", "--kv-host"]
    tape, _ = record(tmp_path / "a.tape", program, {})
    inside = judge(tape)
    threads = Counter(rows[0]["issuer"] for rows in inside.values())
    assert len(threads) == 2
    assert len(set(threads.values())) == 1  # as many steps each
    queues = {step: {o["queue"] for o in rows} for step, rows in inside.items()}
    of_thread: dict[int, set[int]] = defaultdict(set)
    for step, rows in inside.items():
        of_thread[rows[0]["issuer"]] |= queues[step]
    assert set.intersection(*of_thread.values()) == set()  # no op of one in a step of the other
    assert {graph for _, graph, _ in calls(tape)} == set(range(tape.table("graphs").num_rows))


def test_vulkan_through_the_backend_path(vulkan: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    program = [sys.executable, str(PROGRAMS / "llama_library.py"), "--libraries", libraries()]
    program += ["--model", str(tiny_model), "--prompt-tokens", "20", "--n-predict", "2"]
    tape, _ = record(tmp_path / "a.tape", program, vulkan, devices=0, profile=None)
    judge(tape)
    assert {d["kind"] for d in tape.table("devices").to_pylist()} >= {"host", "gpu"}
