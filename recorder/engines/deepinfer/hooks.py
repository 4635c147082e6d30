"""Puts a `Watch` around every scheduler that is built: wrappers on the classes of ``deepinfer._C.engine``.

A wrapper always makes the engine's own call, once, and returns what it returned. What goes wrong beside it is
said once, and that scheduler is not recorded any more.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ...requests import PoolRow, SchedulerRecorder
from ...requests.spool import said
from .config import arguments, config
from .watch import Watch

__all__ = ["METHODS", "Unknown", "start"]

METHODS = (
    "__init__", "try_allocate_seq", "add_sequence", "abort_sequence", "set_schedulable", "schedule",
    "process_outputs", "free_seq", "fork_seq", "get_num_unfinished_seqs", "get_num_preempted_seqs",
)  # fmt: skip
"""Of the scheduler; all of them are used."""


class Unknown(Exception):
    """This build of DeepInfer does not have what is recorded."""


_installed = False
_units: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_watches: WeakKeyDictionary[Any, Watch] = WeakKeyDictionary()


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
    view = getattr(module, "view", None)
    _wrap(manager, "__init__", _manager)
    _wrap(scheduler, "__init__", functools.partial(_scheduler, view))
    for name, wrapper in _WRAPPERS.items():
        _wrap(scheduler, name, wrapper)


def _wrap(of: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(of, name)

    @functools.wraps(original)
    def method(self: Any, *given: Any, **named: Any) -> Any:
        return wrapper(original, self, *given, **named)

    setattr(of, name, method)


def _tell(scheduler: Any, what: Callable[..., Any], *told: Any) -> Any:
    """Tell the watch something; whatever goes wrong ends the recording of this scheduler."""
    try:
        return what(*told)
    except Exception as error:
        _watches.pop(scheduler, None)
        directory = os.environ.get("TAPEDELAY_SPOOL", "")
        said(directory, f"DeepInfer's scheduler is not recorded any more ({type(error).__name__}: {error})")
        return None


def _manager(original: Any, self: Any, *given: Any, **named: Any) -> None:
    original(self, *given, **named)
    num_blocks = given[0] if given else named.get("num_blocks")
    if isinstance(num_blocks, int):
        _units[self] = num_blocks


def _scheduler(view: Any, original: Any, self: Any, *given: Any, **named: Any) -> None:
    original(self, *given, **named)
    _tell(self, _begin, view, self, given, named)


def _begin(view: Any, scheduler: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    bound = arguments(given, named)
    managers = [m for m in (bound["block_manager"], bound["state_manager"]) if m is not None]
    units = [_units[m] for m in managers]
    settings = config(bound, units[0], units[1] if len(units) > 1 else 0)
    block_size = int(settings["block_size"])
    pools = [PoolRow("kv", units[0], 1, block_size), *(PoolRow("state", n, 1) for n in units[1:])]
    recorder = SchedulerRecorder("deepinfer", _version(), settings, pools)
    if recorder.recording:
        _watches[scheduler] = Watch(
            recorder, managers, units, view, int(bound["eos_token_id"]), int(settings["max_model_len"])
        )


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


def _try_allocate(original: Any, self: Any, seq: Any) -> Any:
    done = original(self, seq)
    watch = _watches.get(self)
    if watch is not None and done:
        _tell(self, watch.reserved, seq)
    return done


def _add(original: Any, self: Any, seq: Any) -> Any:
    result = original(self, seq)
    watch = _watches.get(self)
    if watch is not None:
        _tell(self, lambda: watch.submit(seq, self.get_num_unfinished_seqs()))
    return result


def _abort(original: Any, self: Any, request_ids: Any) -> Any:
    watch = _watches.get(self)
    if watch is None:
        return original(self, request_ids)
    begun = _tell(self, watch.abort, request_ids)
    try:
        return original(self, request_ids)
    finally:
        if begun:
            _tell(self, watch.aborted)


def _set_schedulable(original: Any, self: Any, request_id: Any) -> Any:
    result = original(self, request_id)
    watch = _watches.get(self)
    if watch is not None:
        _tell(self, watch.set_schedulable, request_id)
    return result


def _schedule(original: Any, self: Any, sequence_metadata_pool: Any) -> Any:
    watch = _watches.get(self)
    if watch is None:
        return original(self, sequence_metadata_pool)
    _tell(self, lambda: watch.step(self.decode_step))
    try:
        metadata, outputs = result = original(self, sequence_metadata_pool)
    except BaseException:
        _tell(self, watch.failed)
        raise
    _tell(self, watch.scheduled, self, metadata, outputs)
    return result


def _process(
    original: Any,
    self: Any,
    scheduler_outputs: Any,
    accepted_token_ids: Any,
    output_token_ids: Any,
    so_status: Any,
) -> Any:
    watch = _watches.get(self)
    if watch is None:
        return original(self, scheduler_outputs, accepted_token_ids, output_token_ids, so_status)
    _tell(self, watch.output, scheduler_outputs)
    try:
        result = original(self, scheduler_outputs, accepted_token_ids, output_token_ids, so_status)
    except BaseException:
        _tell(self, watch.failed)
        raise
    _tell(
        self,
        lambda: watch.answered(
            scheduler_outputs, result[1].tolist(), output_token_ids.tolist(), self.get_num_unfinished_seqs()
        ),
    )
    return result


def _free(original: Any, self: Any, seq: Any) -> Any:
    result = original(self, seq)
    watch = _watches.get(self)
    if watch is not None:
        _tell(self, watch.freed, seq)
    return result


def _fork(original: Any, self: Any, *given: Any, **named: Any) -> Any:
    if _watches.pop(self, None) is not None:
        said(
            os.environ.get("TAPEDELAY_SPOOL", ""),
            "DeepInfer's scheduler is not recorded any more (a request was forked)",
        )
    return original(self, *given, **named)


_WRAPPERS: dict[str, Callable[..., Any]] = {
    "try_allocate_seq": _try_allocate,
    "add_sequence": _add,
    "abort_sequence": _abort,
    "set_schedulable": _set_schedulable,
    "schedule": _schedule,
    "process_outputs": _process,
    "free_seq": _free,
    "fork_seq": _fork,
}
