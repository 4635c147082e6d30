"""The tap and the plugin together, on a ggml of our own making whose calls the test knows.

Libraries are opened as Python opens extension modules: none sees another one's symbols.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.profiles import BUILTIN
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.recorder import plugin
from tapedelay.recorder.engines.ggml.collect import collect
from tapedelay.recorder.engines.ggml.definitions import Spool
from tapedelay.recorder.engines.ggml.layout import Kind
from tapedelay.recorder.engines.ggml.spool import read_spools
from tapedelay.recorder.tap import ggml_tap

HERE = Path(__file__).parent
FAKE = HERE.parent / "native"
NATIVE = Path(plugin.__file__).resolve().parent / "engines" / "ggml" / "native"
GRAPH_MAX = 4096
INTERPOSED = (
    "new", "free", "graph_compute", "graph_compute_async", "alloc_graph", "reset", "set_tensor_backend",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Two copies of the fake ggml, each with a library that uses it, and a program that opens them."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    cxx: str = compiler
    units = [FAKE / "fake_host.cpp", HERE / "fake_sched.cpp", HERE / "user.cpp", HERE / "program.cpp"]
    flags = ["-std=c++17", "-O0", "-fPIC", f"-I{NATIVE}", f"-I{FAKE}", "-c"]

    def make(to: Path) -> None:
        running = [subprocess.Popen([cxx, *flags, str(u), "-o", f"{to}/{u.stem}.o"]) for u in units]
        assert [r.wait() for r in running] == [0] * len(units)

        def link(*words: str) -> None:
            subprocess.run([cxx, *words], check=True, cwd=to)

        for copy in "ab":
            link("-shared", "fake_host.o", "fake_sched.o", f"-Wl,-soname,libfake_{copy}.so",
                 "-o", f"libfake_{copy}.so", "-ldl")  # fmt: skip
            link("-shared", "user.o", "-o", f"libuser_{copy}.so", "-L.", f"-lfake_{copy}",
                 "-Wl,-rpath,$ORIGIN", "-pthread")  # fmt: skip
        link("program.o", "-o", "program", "-ldl")

    return made_once("tap", make)


def environment(tap: bool, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TAPEDELAY_", "FAKE_", "GGML_"))}
    kept.pop("LD_PRELOAD", None)
    if tap:
        kept["LD_PRELOAD"] = str(ggml_tap())
    return kept | more


def run(command: Sequence[str | Path], env: dict[str, str]) -> str:
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def record(built: Path, case: str, tmp_path: Path, *others: Path, tap: bool = True) -> Spool:
    spool = tmp_path / "spool"
    spool.mkdir()
    env = environment(
        tap,
        TAPEDELAY_DEVICES="1",
        TAPEDELAY_SPOOL=str(spool),
        TAPEDELAY_PROFILE="full-async",
        TAPEDELAY_PROFILE_DATA=BUILTIN["full-async"].device_data(),
    )
    run([built / "program", built / "libuser_a.so", case, plugin.ggml_plugin(), *others], env)
    (one,) = read_spools(spool)
    assert one.complete
    return one


def taped(spool: Spool, *, asked: bool = True) -> Tape:
    tape = collect([spool], tap_asked=asked)
    assert validate(tape) == []
    return tape


Row = tuple[str, str | None, int | None, int | None]


def rows(tape: Tape) -> list[Row]:
    """Return (kind, name, step, split) of everything but the lives of buffers and queues."""
    return [
        (o["kind"], o["name"], o["step"], o["split"])
        for o in tape.table("ops").to_pylist()
        if o["kind"] not in ("alloc", "free", "destroy") and o["name"] != "queue freed"
    ]


def one_step(step: int, n: int, graph: int = 0) -> list[Row]:
    return [
        ("copy", "in", step, None),
        ("mark", f"scheduler compute graph {graph}", step, None),
        ("compute", f"#{n} a", step, 0),
        ("copy", "t1536", step, 1),
        ("compute", f"#{n} t1536", step, 1),
        ("sync", None, step, None),
    ]


def prepared(step: int | None, graph: int = 0) -> list[Row]:
    return [
        ("mark", "scheduler reset", step, None),
        ("mark", f"scheduler allocate graph {graph}", step, None),
    ]


# --- step and split ---------------------------------------------------------------------------------------


def test_every_op_of_a_step_has_it(built: Path, tmp_path: Path) -> None:
    tape = taped(record(built, "steps", tmp_path))
    wanted = prepared(0)
    for i in range(3):
        wanted += [*one_step(i, i + 1), ("copy", "t1536", i, None)]
    wanted += [*prepared(3), *one_step(3, 4), *prepared(4, 1), *one_step(4, 5, 1)[1:]]
    assert rows(tape) == wanted
    assert not any("split" in n for n in tape.manifest.notes)


def test_without_the_tap_nothing_is_known_and_all_else_is_equal(built: Path, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    tape = taped(record(built, "steps", tmp_path / "without", tap=False), asked=False)
    other = taped(record(built, "steps", tmp_path / "with"))
    assert [r[:2] for r in rows(tape)] == [r[:2] for r in rows(other) if r[0] != "mark"]
    assert {(step, split) for _, _, step, split in rows(tape)} == {(None, None)}
    assert "graphs" not in tape.present or tape.table("graphs").num_rows == 0
    assert [n for n in tape.manifest.notes if n.startswith("split and step: not seen (")]


def test_a_tap_that_was_asked_for_and_saw_nothing_says_why(built: Path, tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    notes = taped(record(built, "steps", tmp_path / "without", tap=False)).manifest.notes
    assert any("--tap was asked for" in n and "was not in the process" in n for n in notes)
    spool = record(built, "steps", tmp_path / "with")
    assert spool.tap
    # as if the engine's libraries had bound the calls inside
    kept = spool.records["kind"] < Kind.SCHED_COMPUTE
    spool.records, spool.slots = spool.records[kept], spool.slots[kept]
    assert any("no call on a scheduler passed through it" in n for n in taped(spool).manifest.notes)


def test_a_program_that_leaves_all_to_the_compute_call(built: Path, tmp_path: Path) -> None:
    found = rows(taped(record(built, "alone", tmp_path)))
    first = [("mark", "scheduler compute graph 0", 0, None), ("mark", "scheduler allocate graph 0", 0, None)]
    assert found[:2] == first
    assert found[2:6] == one_step(0, 1)[2:]
    assert found[6:] == one_step(1, 2)[1:]


def test_two_contexts_that_take_turns_on_one_thread(built: Path, tmp_path: Path) -> None:
    tape = taped(record(built, "turns", tmp_path))
    found = rows(tape)
    assert found[:6] == [*prepared(0), *prepared(1), ("copy", "in", 0, None), ("copy", "in", 1, None)]
    tail = [r for r in found if r[0] == "sync" or r[:2] == ("copy", "t1536")]
    outside = [(kind, step) for kind, _, step, split in tail if split is None]
    assert outside == [(kind, step) for step in range(4) for kind in ("sync", "copy")]


def test_two_contexts_on_two_threads_each_with_its_own_steps(built: Path, tmp_path: Path) -> None:
    spool = record(built, "threads", tmp_path)
    tape = taped(spool)
    ops = [o for o in tape.table("ops").to_pylist() if o["step"] is not None]
    assert sorted({o["step"] for o in ops}) == list(range(240))
    assert (len(spool.scheds), len(spool.graphs)) == (6, 1)
    by_step: dict[int, list[Any]] = {}
    for o in ops:
        by_step.setdefault(o["step"], []).append(o)
    for of in by_step.values():
        assert len({o["issuer"] for o in of}) == 1
        splits = [(o["kind"], o["split"]) for o in of if o["split"] is not None]
        assert splits == [("compute", 0), ("copy", 1), ("compute", 1)]
        assert {o["name"] for o in of if o["kind"] == "copy"} == {"in", "t1536"}


def test_a_scheduler_inside_of_another_ones_callback(built: Path, tmp_path: Path) -> None:
    found = rows(taped(record(built, "nested", tmp_path)))
    calls = [r for r in found if r[0] == "mark" and "compute" in str(r[1])]
    assert calls == [("mark", f"scheduler compute graph {i}", i, None) for i in (0, 1)]
    computes = [(name, step, split) for kind, name, step, split in found if kind == "compute"]
    assert computes == [("#1 a", 0, 0), ("#2 a", 1, 0), ("#1 t1536", 1, 1), ("#2 t1536", 0, 1)]


def test_splits_that_a_callback_computes_in_pieces(built: Path, tmp_path: Path) -> None:
    tape = taped(record(built, "pieces", tmp_path))
    computes = [(name, split) for kind, name, _, split in rows(tape) if kind == "compute"]
    assert computes == [("#1 a", 0), ("#2 t1024", 0), ("#1 t1536", 1)]
    assert not any("pieces" in n for n in tape.manifest.notes)


def test_pieces_that_do_not_fit_the_splits_are_said(built: Path, tmp_path: Path) -> None:
    spool = record(built, "pieces", tmp_path)
    records = spool.records.copy()
    records["c"][records["kind"] == Kind.SCHED_COMPUTE] = 7
    spool.records = records
    tape = taped(spool)
    assert {split for *_, split in rows(tape)} == {None}
    assert {step for kind, _, step, _ in rows(tape) if kind == "compute"} == {0}
    assert any(n.startswith("1 steps were computed in other pieces") for n in tape.manifest.notes)


def test_an_exception_that_passes_through(built: Path, tmp_path: Path) -> None:
    found = rows(taped(record(built, "throwing", tmp_path)))
    assert found == [
        *prepared(0), ("mark", "scheduler compute graph 0", 0, None), ("compute", "#1 a", 0, 0),
        ("mark", "scheduler compute graph 0", 1, None), ("compute", "#2 a", 1, 0), ("copy", "t1536", 1, 1),
        ("compute", "#1 t1536", 1, 1), ("sync", None, 1, None),
    ]  # fmt: skip


def test_calls_that_fail(built: Path, tmp_path: Path) -> None:
    found = rows(taped(record(built, "fails", tmp_path)))
    assert found[0] == ("mark", "scheduler reset", None, None)  # what it prepared was never computed
    assert found[1:5] == [
        *prepared(0, 1), ("mark", "scheduler compute graph 1", 0, None), ("compute", "#1 a", 0, 0),
    ]  # fmt: skip
    assert found[5:] == [
        *prepared(1, 2),
        *one_step(1, 2, 2)[1:4],
        ("compute", "#1 t1536", 1, 1),
        ("sync", None, 1, None),
    ]


def test_a_scheduler_that_was_there_before_the_recorder(built: Path, tmp_path: Path) -> None:
    spool = record(built, "late", tmp_path)
    (sched,) = spool.scheds
    assert (sched.op_offload, sched.parallel) == (None, None)
    calls = spool.records[spool.records["kind"] == Kind.SCHED_COMPUTE]
    assert [int(d) for d in calls["d"]] == [0xFFFFFFFF, 0]  # its graph was split already, the next was not
    (graph,) = taped(spool).table("graphs").to_pylist()
    assert graph["op_offload"] is None


# --- graphs -----------------------------------------------------------------------------------------------


def test_a_graph_is_described_as_the_program_made_it(built: Path, tmp_path: Path) -> None:
    tape = taped(record(built, "steps", tmp_path))
    graph = tape.table("graphs").to_pylist()[0]
    first = tape.table("ops").to_pylist()[graph.pop("first_op")]
    assert (first["kind"], first["step"], first["split"]) == ("compute", 0, 0)
    assert graph == {
        "graph": 0, "name": None, "process": 0, "uid": 1, "n_nodes": 3, "n_leafs": 1, "n_copies": 1,
        "op_offload": True, "backend_order": [0, 1], "buffer_types": ["CPU", "TAPE0"], "input_order": [3],
    }  # fmt: skip
    nodes = [n for n in tape.table("nodes").to_pylist() if n["graph"] == 0]
    parameters = [n.pop("op_params") for n in nodes]
    assert [int.from_bytes(p[32:36], "little") for p in parameters] == [0, 0, 1, 0]
    common = {
        "graph": 0, "dtype": "f32", "shape": [4, 1, 1, 1], "strides": [4, 16, 16, 16], "view_source": None,
        "view_offset": None, "buffer_usage": "any", "user_backend": None,
    }  # fmt: skip
    # sources are the program's own, not the copies that the scheduler puts there
    for node, (name, op, sources, flags, kind) in enumerate(
        [
            ("a", "ADD", [3, 3], 0, "host"),
            ("t1024", "ADD", [0, 3], 0, "host"),
            ("t1536", "ADD", [1, 2], 2, "device"),
            ("in", "NONE", [], 1, "device"),
        ]
    ):
        assert nodes[node] == common | {
            "node": node, "name": name, "op": op, "sources": sources, "flags": flags, "buffer_kind": kind,
            "is_input": flags == 1, "is_output": flags == 2,
        }  # fmt: skip


def test_whatever_differs_makes_another_graph(built: Path, tmp_path: Path) -> None:
    spool = record(built, "identity", tmp_path)
    allocated = spool.records[spool.records["kind"] == Kind.SCHED_ALLOC]
    # the eleventh is the first again; the last is the first one on a scheduler with more copies
    assert [int(d) for d in allocated["d"]] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10]
    tape = taped(spool)
    nodes = tape.table("nodes").to_pylist()

    def node(graph: int, index: int) -> dict[str, Any]:
        found: dict[str, Any] = next(n for n in nodes if (n["graph"], n["node"]) == (graph, index))
        return found

    assert [node(g, 1)["sources"] for g in (0, 5, 6)] == [[0, 3], [0], [0, None, 3]]
    assert (node(8, 1)["view_source"], node(8, 1)["view_offset"]) == (0, 8)
    assert [node(9, i)["user_backend"] for i in range(4)] == [None, 1, None, None]
    assert [g["n_copies"] for g in tape.table("graphs").to_pylist()] == [1] * 10 + [4]


def test_parameters_that_are_addresses_are_left_out(built: Path, tmp_path: Path) -> None:
    spool = record(built, "pointers", tmp_path)
    assert len(spool.graphs) == 1  # and make no difference
    nodes = taped(spool).table("nodes").to_pylist()
    assert [(n["op"], n["op_params"] is None) for n in nodes] == [
        ("ADD", False), ("MAP_CUSTOM1", True), ("ADD", False), ("NONE", False),
    ]  # fmt: skip
    assert not spool.graphs[0].rows["op_params"][1].any()


def test_a_graph_that_differs_in_every_step_does_not_fill_the_disk(built: Path, tmp_path: Path) -> None:
    spool = record(built, "many", tmp_path)
    assert len(spool.graphs) == GRAPH_MAX
    (note,) = (n for n in spool.notes if "graphs" in n)
    assert "not described" in note
    assert ("mark", "scheduler compute", 0, None) in rows(taped(spool))


# --- the tap in processes of all kinds --------------------------------------------------------------------


def test_each_call_goes_to_the_copy_of_its_caller(built: Path, tmp_path: Path) -> None:
    env = environment(True, TAPEDELAY_DEVICES="1")
    libraries = [built / "libuser_a.so", built / "libuser_b.so"]
    out = run([built / "program", libraries[0], "steps", plugin.ggml_plugin(), libraries[1]], env)
    # arguments beyond those of today's functions come through as well
    assert out.splitlines() == ["1 1 5 3 3 0 77 eighth"] * 2


def test_only_the_copy_that_loaded_the_plugin_is_recorded(built: Path, tmp_path: Path) -> None:
    spool = record(built, "steps", tmp_path, built / "libuser_b.so")
    calls = spool.records["kind"] == Kind.SCHED_COMPUTE
    assert int(calls.sum()) == 5


@pytest.mark.parametrize("case", ["steps", "threads"])
def test_without_a_recorder_the_tap_is_not_noticed(built: Path, case: str) -> None:
    command = [str(built / "program"), str(built / "libuser_a.so"), case]
    assert run(command, environment(True)) == run(command, environment(False))


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "echo a | tr a b; (exit 3); echo $?"],
        ["git", "--version"],
        [sys.executable, "-c", "import json, threading; print(json.dumps([1]))"],
        [sys.executable, "-c", "import subprocess as s; print(s.check_output(['echo', 'x']))"],
    ],
    ids=["bash", "git", "python", "python-subprocess"],
)
def test_programs_without_ggml_are_what_they_were(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    assert run(command, environment(True)) == run(command, environment(False))


def test_a_static_program_is_what_it_was(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    to = tmp_path / "static"
    done = subprocess.run([compiler, "-static", str(source), "-o", str(to)], capture_output=True)
    if done.returncode:
        pytest.skip("no static C library")
    assert run([to], environment(True)) == ""


def test_the_tap_has_no_code_that_runs_by_itself() -> None:
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    tap = str(ggml_tap())
    dynamic = subprocess.run([readelf, "-dW", tap], capture_output=True, text=True, check=True).stdout
    assert not any(word in dynamic for word in ("(INIT", "(FINI", "(PREINIT", "TEXTREL"))
    needed = [line for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert all("libc.so" in line or "libdl.so" in line for line in needed)
    symbols = subprocess.run([readelf, "--dyn-syms", "-W", tap], capture_output=True, text=True, check=True)
    exported = {w[7] for w in map(str.split, symbols.stdout.splitlines()) if len(w) == 8 and w[6].isdigit()}
    assert exported == {
        "tapedelay_tap_attach",
        *(f"ggml_backend_sched_{n}" for n in INTERPOSED),
    }
