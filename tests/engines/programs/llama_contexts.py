"""Runs a prompt like llama_library.py, in two contexts of one model, each on a thread of its own, at once.

usage: llama_contexts.py OPTIONS-OF-llama_library.py...; fails unless both give the same answer.
"""

from __future__ import annotations

import argparse
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_void_p
from typing import Any

from tapedelay.recorder.demo.programs import llama_library


def main() -> int:
    """Run the prompts."""
    predict = llama_library._predict

    def twice(llama: Any, model: int, context: int, options: argparse.Namespace) -> tuple[list[int], str]:
        make = llama_library._function(llama, "llama_init_from_model", c_void_p, c_void_p, llama_library.Blob)
        together = threading.Barrier(2)

        def run(given: int | None) -> tuple[list[int], str]:
            mine = given or make(model, llama_library._context_params(llama, options))
            together.wait(60)
            return predict(llama, model, mine, options)

        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(run, (context, None))
        assert one == two, (one, two)
        return one

    llama_library._predict = twice
    return llama_library.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
