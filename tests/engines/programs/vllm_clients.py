"""Serve clients that come and go with vLLM's ``AsyncLLM``, the engine of its server, until its core dies.

``vllm_clients.py FOLDER MARKER SIGNAL``: the core is a process of its own and gets the SIGNAL, by its name,
in the middle of the second wave of clients. Prints a JSON object: what those got whose answers do not hang on
chance, and how the engine ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from vllm_model import bytes_model  # type: ignore[import-not-found]

CLIENTS = 9
STAYS_S = 60


async def client(engine: Any, wave: int, n: int, marker: str, tokens: int) -> Any:
    """Take an answer as it comes; each third client leaves after some of it, each third wants two answers."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.exceptions import EngineDeadError

    sampling = SamplingParams(
        temperature=float(n % 3 == 1),
        n=1 + (n % 3 == 1),
        max_tokens=tokens,
        ignore_eos=True,
        stop=[marker],
        output_kind=RequestOutputKind.DELTA,
    )
    got: dict[int, list[int]] = {}
    why: set[str | None] = set()
    answer = engine.generate(f"{marker} says {n}, ", sampling, request_id=f"{marker}{wave}-{n}")
    try:
        async for output in answer:
            for one in output.outputs:
                got.setdefault(one.index, []).extend(one.token_ids)
                why.add(one.finish_reason)
            if n % 3 == 0 and len(got[0]) > 5:
                await answer.aclose()
                return [got[0][:5], "left"]
    except EngineDeadError as e:
        return type(e).__name__
    if wave == 2:  # how far it came is chance
        return sorted(filter(None, why))
    return len(got) if n % 3 == 1 else got[0]


async def serve(model: Path, marker: str, name: str) -> dict[str, Any]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(model),
            enforce_eager=True,
            max_model_len=320,
            max_num_seqs=4,
            max_num_batched_tokens=96,
            block_size=32,
            num_gpu_blocks_override=16,
            seed=0,
        )
    )
    (core,) = engine.engine_core.resources.engine_manager.processes
    first = await asyncio.gather(*(client(engine, 1, n, marker, 30) for n in range(CLIENTS)))
    clients = [asyncio.create_task(client(engine, 2, n, marker, 250)) for n in range(CLIENTS)]
    await clients[0]
    os.kill(core.pid, getattr(signal, name))
    await asyncio.wait(clients[1:], timeout=STAYS_S)
    second = [c.result() if c.done() else "waits" for c in clients[1:]]
    for one in clients:
        one.cancel()
    gone = wait([core.sentinel], STAYS_S)  # its exit code goes to whichever thread of vLLM asks first
    engine.shutdown()
    return {"first": first, "second": second, "core": "gone" if gone else "stays"}


def main(folder: str, marker: str, name: str) -> None:
    model = bytes_model(Path(folder) / f"model-{marker}")
    told = asyncio.run(serve(model, marker, name))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
