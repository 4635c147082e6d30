"""Break the hooks of DeepInfer's scheduler: ``deepinfer_broken.py FOLDER``, see `broken_hooks`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import broken_hooks  # type: ignore[import-not-found]
import deepinfer_engine as engine  # type: ignore[import-not-found]
from deepinfer import _C

from tapedelay.recorder.engines.deepinfer import hooks

REQUESTS = tuple(
    engine.Request(3 + 5 * i % 12, 6 + 3 * i % 7, 2 * i, 2 * i + 3 if i in (1, 6) else None)
    for i in range(16)
)
CONFIGURATION = engine.Configuration(
    REQUESTS, blocks=17, states=8, budget=32, aborts=((5, 1), (8, 3), (21, 9), (30, 14)), decode_only=(7, 16)
)


class Engine(engine.Engine):  # type: ignore[misc]
    """Keeps all that the scheduler gives."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.given: list[Any] = []

    def step(self) -> None:
        super().step()
        self.given.append([[s.seq_id, s.get_len(), s.status.name] for s in self.sequences])

    def refused(self) -> list[str]:
        """Give what raises; return what it raises."""
        calls = {"schedule": ("no pool",), "process_outputs": ("no outputs", None, None, None)}
        return [self.raised(name, *given) for name, given in calls.items()]

    def raised(self, name: str, *given: Any) -> str:
        try:
            getattr(self.scheduler, name)(*given)
        except TypeError as e:
            return str(e).split("(")[0]
        return ""


def serve(*, fork: bool = False) -> list[Any]:
    """Serve twice, each with a scheduler of its own."""
    told: list[Any] = []
    for _ in range(2):
        made = Engine(CONFIGURATION)
        if fork:
            assert made.raised("fork_seq", None)
        told += [engine.serve(CONFIGURATION, made), made.given, made.refused(), made.refused()]
    return told


def main() -> None:
    def forked() -> list[Any]:
        hooks.start(_C)
        return serve(fork=True)

    if len(sys.argv) > 1:
        root = Path(sys.argv[1])
        found = broken_hooks.tried(root, [hooks.HOOKS], lambda: hooks.start(_C), serve)
        print(json.dumps(found | {"fork": broken_hooks.apart(root / "fork", forked)}))


if __name__ == "__main__":
    main()
