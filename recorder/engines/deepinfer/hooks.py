"""Puts a `Watch` around every scheduler that is built: hooks on the classes of ``deepinfer._C.engine``."""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary, ref

from ...requests import PoolRow, SchedulerRecorder
from ..hooked import Guard, Hook, Hooks, Unknown, either, say, wrap
from .config import arguments, config
from .watch import Watch

__all__ = ["HOOKS", "METHODS", "Unknown", "start"]

_installed = False
_units: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_watches: WeakKeyDictionary[Any, Watch] = WeakKeyDictionary()


class _Listener:
    """Listens where no scheduler is recorded yet."""

    def __init__(self, listens_to: object = None) -> None:
        self.guard = Guard(lambda fault: say("DeepInfer's", fault))


_pools = _Listener()
"""Hears how many units each block manager has. Where that fails no scheduler is recorded any more."""


def start(module: Any) -> None:
    """Record every scheduler that is built from now on; called when the extension has been imported.

    Parameters
    ----------
    module : module
        ``deepinfer._C``.

    Raises
    ------
    Unknown
        This build does not have them.
    """
    global _installed
    if _installed:
        return
    engine = getattr(module, "engine", None)
    scheduler, manager = getattr(engine, "Scheduler", None), getattr(engine, "BlockManager", None)
    missing = [name for name in METHODS if not hasattr(scheduler, name)]
    if scheduler is None or manager is None or missing:
        raise Unknown(f"its scheduler has no {', '.join(missing) or 'pool'}")
    _installed = True
    for (owner, name), (hook, find) in HOOKS.items():
        wrap(getattr(engine, owner), name, hook, find)


def _watching(scheduler: Any) -> Watch | None:
    try:
        return _watches.get(scheduler)
    except TypeError:  # a class that cannot be referred to weakly: it was said when one was built
        return None


def _pool_built(
    listener: _Listener, manager: Any, note: None, result: None, num_blocks: int, *_: Any, **__: Any
) -> None:
    _units[manager] = int(num_blocks)


def _built(listener: _Listener, scheduler: Any, note: None, result: None, *given: Any, **named: Any) -> None:
    if not _pools.guard.alive:
        return
    view = getattr(sys.modules["deepinfer._C"], "view", None)
    bound = arguments(given, named)
    managers = [m for m in (bound["block_manager"], bound["state_manager"]) if m is not None]
    units = [_units[m] for m in managers]
    settings = config(bound, units[0], units[1] if len(units) > 1 else 0)
    block_size = int(settings["block_size"])
    pools = [PoolRow("kv", units[0], 1, block_size), *(PoolRow("state", n, 1) for n in units[1:])]
    recorder = SchedulerRecorder("deepinfer", _version(), settings, pools)
    if recorder.recording:
        known = ref(scheduler)

        def end(fault: Exception) -> None:
            _watches.pop(known(), None)
            say("DeepInfer's", fault)

        eos, longest = int(bound["eos_token_id"]), int(settings["max_model_len"])
        _watches[scheduler] = Watch(Guard(end), recorder, managers, units, view, eos, longest)


def _version() -> str:
    package = sys.modules.get("deepinfer")
    told = getattr(package, "__version__", None)
    if told is None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            told = version("deepinfer")
        except PackageNotFoundError:
            told = "unknown"
    return str(told)


def _reserved(watch: Watch, scheduler: Any, note: None, done: bool, seq: Any) -> None:
    if done:
        watch.reserved(seq)


def _added(watch: Watch, scheduler: Any, note: None, result: Any, seq: Any) -> None:
    watch.submit(seq, scheduler.get_num_unfinished_seqs())


def _aborts(watch: Watch, scheduler: Any, request_ids: Any) -> bool:
    return watch.abort(request_ids)


def _aborted(watch: Watch, scheduler: Any, begun: bool) -> None:
    if begun:
        watch.aborted()


def _made_schedulable(watch: Watch, scheduler: Any, note: None, result: Any, request_id: Any) -> None:
    watch.set_schedulable(request_id)


def _schedules(watch: Watch, scheduler: Any, sequence_metadata_pool: Any) -> None:
    watch.step(scheduler.decode_step)


def _scheduled(watch: Watch, scheduler: Any, note: None, result: Any, sequence_metadata_pool: Any) -> None:
    metadata, outputs = result
    watch.scheduled(scheduler, metadata, outputs)


def _processes(watch: Watch, scheduler: Any, scheduler_outputs: Any, *_: Any, **__: Any) -> None:
    watch.output(scheduler_outputs)


def _processed(
    watch: Watch,
    scheduler: Any,
    note: None,
    result: Any,
    scheduler_outputs: Any,
    accepted_token_ids: Any,
    output_token_ids: Any,
    so_status: Any,
) -> None:
    pushed, tokens = result[1].tolist(), output_token_ids.tolist()
    watch.answered(scheduler_outputs, pushed, tokens, scheduler.get_num_unfinished_seqs())


def _failed(watch: Watch, scheduler: Any, note: None) -> None:
    watch.failed()


def _freed(watch: Watch, scheduler: Any, note: None, result: Any, seq: Any) -> None:
    watch.freed(seq)


def _forks(watch: Watch, *_: Any, **__: Any) -> None:
    raise Unknown("a request was forked")


_SCHEDULER: dict[str, Hook] = {
    "try_allocate_seq": Hook(after=_reserved),
    "add_sequence": Hook(after=_added),
    "abort_sequence": either(_aborts, _aborted),
    "set_schedulable": Hook(after=_made_schedulable),
    "schedule": Hook(_schedules, _scheduled, _failed),
    "process_outputs": Hook(_processes, _processed, _failed),
    "free_seq": Hook(after=_freed),
    "fork_seq": Hook(before=_forks),
}
HOOKS: Hooks = {
    ("BlockManager", "__init__"): (Hook(after=_pool_built), lambda manager: _pools),
    ("Scheduler", "__init__"): (Hook(after=_built), _Listener),
    **{("Scheduler", name): (hook, _watching) for name, hook in _SCHEDULER.items()},
}
"""By class and method."""
METHODS = ("__init__", *_SCHEDULER, "get_num_unfinished_seqs", "get_num_preempted_seqs")
"""Of the scheduler; all of them are used."""
