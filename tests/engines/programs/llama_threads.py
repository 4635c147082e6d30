"""Runs a prompt like llama_library.py, stages on threads of their own; nothing that ggml sees joins them.

usage: llama_threads.py STAGES OPTIONS-OF-llama_library.py...
STAGES: ``context`` makes and uses the context on a second thread; ``decode`` only uses it there, and a third
thread frees it.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from tapedelay.recorder.demo.programs import llama_library

DECODE = ("llama_decode", "llama_get_logits_ith")
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "context": (("llama_init_from_model", *DECODE),),
    "decode": (DECODE, ("llama_free", "llama_model_free")),
}


class Worker:
    """A thread that runs calls one after the other."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._answers.put(self._asked.get()())

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._asked.put(lambda: function(*arguments))
        return self._answers.get()


def main() -> int:
    """Run the prompt."""
    workers = {name: worker for names in STAGES[sys.argv[1]] for worker in [Worker()] for name in names}
    find = llama_library._function

    def found(library: Any, name: str, result: Any, *arguments: Any) -> Any:
        function = find(library, name, result, *arguments)
        if name not in workers:
            return function
        return lambda *given: workers[name].call(function, *given)

    llama_library._function = found
    return llama_library.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
