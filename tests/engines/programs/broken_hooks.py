"""Breaks the hooks of an engine at one place after the other, each in a process of its own.

Every process is a copy of this one with the engine imported. What comes of each is what the run says of
itself, what was written on stderr, and how many files say that something is missing.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from tapedelay.recorder.engines.hooked import Hook
from tapedelay.recorder.requests import stop

__all__ = ["PARTS", "apart", "failing", "tried"]

PARTS = ("before", "after", "failed")
Table = MutableMapping[Any, Any]


def apart(folder: Path, run: Callable[[], Any]) -> dict[str, Any]:
    """Return what a copy of this process does."""
    folder.mkdir()
    spool = folder / "spool"
    spool.mkdir()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(os.open(folder / "stderr", os.O_CREAT | os.O_WRONLY, 0o600), 2)
            os.environ["TAPEDELAY_SPOOL"] = str(spool)
            result = run()
            stop()
            (folder / "told").write_text(json.dumps(result))
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.waitpid(child, 0)
    result = folder / "told"
    return {
        "told": json.loads(result.read_text()) if result.exists() else None,
        "stderr": (folder / "stderr").read_text(),
        "refused": len(list(spool.glob("refused-requests-*.txt"))),
    }


def failing(original: Callable[..., Any], nth: int) -> Callable[..., Any]:
    """Return `original`, but for its nth call, which raises."""
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise MemoryError("a hook that fails")
        return original(*args, **kwargs)

    return fails


def counting(original: Callable[..., Any], counts: Counter[str], place: str) -> Callable[..., Any]:
    def counts_it(*args: Any, **kwargs: Any) -> Any:
        counts[place] += 1
        return original(*args, **kwargs)

    return counts_it


def places(tables: list[Table]) -> dict[str, tuple[Table, Any, str]]:
    """Return every function of every hook, by the engine's method and when it is called."""
    found = {}
    for table in tables:
        for key, (hook, _) in table.items():
            for part in PARTS:
                if getattr(hook, part) is not None:
                    found[f"{'.'.join(key[-2:])} {part}"] = table, key, part
    return found


def replaced(place: tuple[Table, Any, str], by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    table, key, part = place
    hook, find = table[key]
    made: Hook = hook._replace(**{part: by(getattr(hook, part))})
    table[key] = made, find


def tried(
    root: Path, tables: list[Table], start: Callable[[], None], run: Callable[[], Any]
) -> dict[str, dict[str, Any]]:
    """Return what comes of a run without hooks (``""``), with them, and with each that fails once.

    Parameters
    ----------
    root : Path
        An empty folder.
    tables : list
        The engine's hooks.
    start : callable
        Puts them on.
    run : callable
        Does the same each time.

    Returns
    -------
    dict
        By ``Class.method part call``; ``whole`` is the run whose hooks do not fail, and has the ``counts`` of
        the calls of each.
    """
    every = places(tables)
    gc.freeze()  # an engine that collects garbage would copy the whole process, each time

    def without() -> Any:
        del os.environ["TAPEDELAY_SPOOL"]
        return run()

    def whole() -> Any:
        counts: Counter[str] = Counter()
        for name, place in every.items():
            replaced(place, lambda original, name=name: counting(original, counts, name))  # type: ignore[misc]
        start()
        return {"run": run(), "counts": {name: counts[name] for name in every}}

    def broken(place: tuple[Table, Any, str], nth: int) -> Any:
        replaced(place, lambda original: failing(original, nth))
        start()
        return run()

    found = {"": apart(root / "plain", without), "whole": apart(root / "whole", whole)}
    told = found["whole"]["told"] or {"run": None, "counts": {}}
    found["whole"] |= {"told": told["run"], "counts": told["counts"]}
    for name, count in told["counts"].items():
        for nth in sorted({1, 1 + count // 2}) if count else ():
            made = apart(root / f"{len(found)}", lambda: broken(every[name], nth))  # noqa: B023
            found[f"{name} {nth}"] = made
    return found
