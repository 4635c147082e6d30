"""Abort a request between two chunks of its prompt, in vLLM's real EngineCore on a pretended model.

``vllm_abort.py FAULT FOLDER``; FAULT is one of `FAULTS`, planted into the scheduler, or ``none``. Prints a
JSON object: how many units are free at the end and at the start.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

core_run: Any = importlib.import_module("vllm_core")  # beside this file
FAULTS = importlib.import_module("tapedelay.replayer.rerun.vllm.planted").FAULTS


def main(fault: str, folder: str) -> None:
    """Serve three requests, of which the first is aborted."""
    with FAULTS[fault]() if fault != "none" else nullcontext():
        core = core_run.engine("plain", Path(folder))
        free = core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        start = free()
        run = core_run.Run("plain", core, 0, 1)
        long = [core_run.token(0, i) for i in range(200)]
        for number, prompt in enumerate((long, long[:20], long[:40])):
            run._send(f"request-{number}", prompt, False)
        run.step()
        aborted = core.scheduler.requests["request-0"]
        assert 0 < aborted.num_computed_tokens < 200, "it is between two chunks"
        core.abort_requests(["request-0"])
        while core.scheduler.has_requests():
            run.step()
        print(json.dumps({"start": start, "free": free()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
