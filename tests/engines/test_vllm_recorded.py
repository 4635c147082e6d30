"""What is recorded of vLLM's scheduler is what it did, and nothing else leaves the engine."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from tapedelay.formats.requests.read import Changed, Decided, RecordedInput, read_inputs, read_schedulers

from .held_bytes import plain_bytes, raw_bytes, written
from .scheduler_engines import PROGRAMS, TIMEOUT_S, engine_python, environment
from .vllm_recordings import KINDS, Recorded

ROOT = Path(__file__).resolve().parents[2]


def inputs_of(run: Recorded) -> dict[int, list[RecordedInput]]:
    found: dict[int, list[RecordedInput]] = {s.scheduler: [] for s in read_schedulers(run.tape)}
    for given in read_inputs(run.tape):
        found[given.scheduler].append(given)
    return found


def check_units(inputs: list[RecordedInput], units: int, reserved: int) -> int:
    """Follow every unit from owner to owner; return how many changes of owner there were."""
    holders: dict[int, Counter[int | None]] = {}
    changes = 0
    for given in inputs:
        for event in given.events:
            if not isinstance(event, Changed):
                continue
            for unit in event.units:
                changes += 1
                assert reserved <= unit < units
                assert event.request is not None
                held = holders.setdefault(unit, Counter())
                if event.action == "alloc":
                    assert not held.total(), f"unit {unit} is handed out while {dict(held)} hold it"
                if event.action == "free":
                    assert held[event.request] == 1, f"unit {unit} is freed by {event.request}"
                    del held[event.request]
                else:
                    held[event.request] += 1
        used = sum(bool(held.total()) for held in holders.values())
        for free, said in given.free.values():
            assert (free, said) == (units - reserved - used, used)
    assert not any(held.total() for held in holders.values())
    return changes


def test_everything_that_reached_the_scheduler_is_there(vllm_runs: Recorded) -> None:
    schedulers = read_schedulers(vllm_runs.tape)
    assert len(schedulers) == len(KINDS)
    every = Counter[str]()
    for scheduler, inputs, told in zip(
        schedulers, inputs_of(vllm_runs).values(), vllm_runs.told, strict=True
    ):
        kinds = Counter(i.kind for i in inputs)
        decided = Counter(e.kind for i in inputs for e in i.events if isinstance(e, Decided))
        assert scheduler.config["scheduler"] == ("async" if told["kind"].endswith("async") else "sync")
        assert scheduler.config["policy"] == ("priority" if "priority" in told["kind"] else "fcfs")
        assert scheduler.config["cannot_judge"] == ""
        assert kinds["step"] == kinds["output"] == told["steps"] >= 350
        assert kinds["submit"] == told["requests"] == len(scheduler.requests)
        assert kinds["cache_reset"] == told["resets"]
        assert {"pause", "resume"} <= kinds.keys()
        assert {"preempt", "resume"} <= decided.keys()
        assert sum(n for i in inputs for _, n in i.emitted) == told["emitted"]
        assert told["left"] == 0
        every += kinds
        every += Counter(w for r in scheduler.requests.values() for w in r.flags)
        every += Counter(a.word for i in inputs for a in i.answers if a.word)
        every += Counter(i.word for i in inputs if i.word)
    assert {"next_chunk", "resumable", "stop", "length", "wait", "keep", "running", "last"} <= every.keys()


def test_batch_aborts_stand_in_the_engines_order(vllm_runs: Recorded) -> None:
    for scheduler, inputs, told in zip(
        read_schedulers(vllm_runs.tape), inputs_of(vllm_runs).values(), vllm_runs.told, strict=True
    ):
        first = min(scheduler.requests)
        recorded = [[r - first for r in i.requests] for i in inputs if len(i.requests) > 1]
        assert recorded == told["aborts"]
        assert recorded


def test_units_go_from_owner_to_owner_and_come_back(vllm_runs: Recorded) -> None:
    for scheduler, inputs in zip(read_schedulers(vllm_runs.tape), inputs_of(vllm_runs).values(), strict=True):
        (pool,) = scheduler.pools
        assert check_units(inputs, pool.units, pool.reserved) > 500


def test_requests_that_share_content_are_known(vllm_runs: Recorded) -> None:
    for scheduler, inputs in zip(read_schedulers(vllm_runs.tape), inputs_of(vllm_runs).values(), strict=True):
        size = scheduler.config["hash_block_size"]
        prompts = {r.request: r.prompt_tokens for r in scheduler.requests.values()}
        assert all(of < r and not begin % size and not end % size for r, of, begin, end in scheduler.prefixes)
        assert any(begin < prompts[r] for r, _, begin, _ in scheduler.prefixes)
        assert any(begin >= prompts[r] for r, _, begin, _ in scheduler.prefixes), "produced ones too"
        first = {i.request: n for n, i in enumerate(inputs) if i.kind == "submit"}
        assert list(first) == sorted(scheduler.requests)


def secrets_in(data: bytes, run: Recorded) -> list[str]:
    """Return what of the run's ids, hashes and prompts stands in these bytes, in any likely notation."""
    found = [key for key in run.secrets["ids"] if key.encode() in data]
    assert len(run.secrets["hashes"]) > 1000
    for text in set(run.secrets["hashes"]):
        raw = bytes.fromhex(text)
        if any(part in data for part in (raw[:8], raw[:8][::-1], text[:16].encode())):
            found.append(text)
    for prompt in run.secrets["prompts"]:
        tokens = prompt[-5:]
        if len(tokens) < 5:
            continue
        notations = written(tokens)
        if any(n in data for n in notations):
            found.append(str(tokens))
    return found


def test_no_byte_holds_an_id_a_token_or_a_hash(vllm_runs: Recorded) -> None:
    raw, files, plain = raw_bytes(vllm_runs.spool), raw_bytes(vllm_runs.path), plain_bytes(vllm_runs.tape)
    for data in (raw, files, plain):
        assert secrets_in(data, vllm_runs) == []
    marked = raw + vllm_runs.secrets["ids"][0].encode() + bytes.fromhex(vllm_runs.secrets["hashes"][0])
    assert len(secrets_in(marked, vllm_runs)) >= 2, "the search finds what is there"


def test_hooks_that_fail_are_said_and_change_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [engine_python("vllm"), str(PROGRAMS / "vllm_broken.py"), str(tmp_path)],
        env=environment(PYTHONHASHSEED="5"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    plain, threads = found.pop(""), found.pop("threads")
    assert plain["stderr"] == ""
    assert len(plain["told"]["given"]) > 300
    assert len(found) > 10
    for place, run in found.items():
        assert run["told"] == plain["told"], f"{place}: {run['stderr']}"
        assert run["stderr"].count("is not recorded any more (MemoryError: a hook that fails)") == 1, place
        assert run["stderr"].count("\n") == run["refused"] == 1, place
    assert threads["told"] == {"requests": 2}
    assert threads["stderr"].count("its calls come from two threads at once") == 1


def test_llm_in_one_process(vllm_llm: Recorded) -> None:
    check_llm(vllm_llm)
    (inputs,) = inputs_of(vllm_llm).values()
    assert len({r for i in inputs for r in i.aborted()}) >= vllm_llm.told["aborted"] // 2


def check_llm(run: Recorded) -> None:
    (scheduler,), (inputs,) = read_schedulers(run.tape), inputs_of(run).values()
    (pool,) = scheduler.pools
    kinds = Counter(i.kind for i in inputs)
    decided = Counter(e.kind for i in inputs for e in i.events if isinstance(e, Decided))
    assert kinds["step"] == kinds["output"] >= 350
    assert kinds["submit"] == run.told["requests"]
    assert kinds["abort"]
    assert decided["preempt"]
    assert scheduler.prefixes
    assert check_units(inputs, pool.units, pool.reserved) > 300
    assert run.tape.manifest.complete


def test_a_core_in_a_process_of_its_own_is_recorded_through_the_plugin(vllm_apart: Recorded) -> None:
    check_llm(vllm_apart)
