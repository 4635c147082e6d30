"""Stands in for packages that vLLM imports on its way to what needs no part of them."""

from __future__ import annotations

import sys
import types
from typing import Any

__all__: list[str] = []


def _absent(name: str, **has: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(has)
    sys.modules.setdefault(name, module)


def _unchanged(*args: Any, **_: Any) -> Any:
    return args[0] if args and callable(args[0]) else _unchanged


def _threads(*_: Any) -> int:
    return 1


# Every grammar is checked with it in sight, whichever library it is for.
_absent("lmformatenforcer", TokenEnforcer=object, CharacterLevelParser=object)
_absent("lmformatenforcer.integrations")
_absent("lmformatenforcer.integrations.vllm")
# It makes the search of n-grams fast.
_absent(
    "numba",
    jit=_unchanged,
    njit=_unchanged,
    prange=range,
    get_num_threads=_threads,
    set_num_threads=_threads,
)
