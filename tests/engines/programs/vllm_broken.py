"""Break the hooks of vLLM's scheduler at one place after the other: ``vllm_broken.py FOLDER``.

Each place is tried in a process of its own, a copy of this one with vLLM imported. Prints a JSON object: of
each place what the run says of itself, what was written on stderr, and which files say that something is
missing. ``""`` is the run without hooks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import vllm_core  # type: ignore[import-not-found]
from broken_hooks import apart  # type: ignore[import-not-found]
from vllm.v1.core.sched import scheduler as engine_module

from tapedelay.recorder.engines.vllm import prefixes, reading, recording, watch
from tapedelay.recorder.requests import SchedulerRecorder

KIND = "sessions-async"
PLACES: dict[str, tuple[Any, str]] = {
    "arrives": (watch.Watch, "_arrives"),
    "flags": (watch, "flags_of"),
    "ends": (watch.Watch, "_ends"),
    "step of an output": (watch.Watch, "_step_of"),
    "answered": (watch.Watch, "_answered"),
    "blocks": (watch.Watch, "_blocks"),
    "who asks for blocks": (watch, "request_of"),
    "blocks that became full": (watch, "filled_in"),
    "what a step holds": (reading.StepReader, "read"),
    "what an output holds": (watch, "answered_in"),
    "told": (watch.Watch, "_tell"),
    "prefixes": (prefixes.PrefixBook, "learn"),
    "prefixes of who is gone": (prefixes.PrefixBook, "forget"),
    "prefixes of a session": (prefixes.PrefixBook, "cut"),
    "pauses": (watch.Watch, "_pauses"),
    "resets": (watch.Watch, "_resets"),
    "end": (watch.Watch, "_left"),
    "description": (recording, "config_of"),
    "begin": (SchedulerRecorder, "_begin"),
}


RARE = ("_resets", "_pauses")


class Run(vllm_core.Run):  # type: ignore[misc]
    """Keeps all that the engine gives."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.given: list[Any] = []

    def step(self) -> None:
        outputs, _ = self.core.step_fn()
        self.steps += 1
        for of_client in (outputs or {}).values():
            self.given += [[self.steps, o.request_id, list(o.new_token_ids)] for o in of_client.outputs]


def broken(owner: Any, name: str) -> None:
    original = getattr(owner, name)
    nth = 1 if name in RARE else 3
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth or owner is recording:
            raise MemoryError("a hook that fails")
        return original(*args, **kwargs)

    setattr(owner, name, fails)


def told(folder: Path) -> dict[str, Any]:
    core = vllm_core.engine(KIND, folder)
    run = Run(KIND, core, 12, 1)
    run.go(120)
    return {"steps": run.steps, "requests": run.count, "given": run.given}


def from_another_thread(folder: Path) -> dict[str, Any]:
    """Let another thread submit in the middle of a step; what the scheduler has is no matter then."""
    core = vllm_core.engine("sync", folder)
    run = vllm_core.Run("sync", core, 2, 1)
    schedule = core.scheduler.kv_cache_manager.new_step_starts

    def in_the_middle() -> None:
        thread = threading.Thread(target=run._send, args=("other-1", [11] * 20, False))
        thread.start()
        thread.join()
        core.scheduler.kv_cache_manager.new_step_starts = schedule
        schedule()

    run.submit()
    core.scheduler.kv_cache_manager.new_step_starts = in_the_middle
    for _ in range(3):
        run.step()
    return {"requests": len(core.scheduler.requests)}


def main(folder: str) -> None:
    root = Path(folder)

    def without_hooks() -> Any:
        del os.environ["TAPEDELAY_SPOOL"]
        return told(root)

    def with_hooks(place: str) -> Any:
        broken(*PLACES[place])
        recording.start(engine_module)
        return told(root)

    def two_threads() -> Any:
        recording.start(engine_module)
        return from_another_thread(root)

    found = {"": apart(root / "plain", without_hooks)}
    for n, place in enumerate(PLACES):
        found[place] = apart(root / str(n), lambda place=place: with_hooks(place))
    found["threads"] = apart(root / "threads", two_threads)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
