"""Hooks on a scheduler leave nothing behind, whatever its methods are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tapedelay.recorder.engines.vllm.watch import Watch, attach

SCHEDULER = [
    "add_request",
    "finish_requests",
    "schedule",
    "update_from_output",
    "set_pause_state",
    "reset_prefix_cache",
    "_preempt_request",
    "_free_request",
    "_update_request_as_session",
]
POOL = ["get_new_blocks", "touch", "free_blocks", "cache_full_blocks"]


def of_class(name: str, methods: list[str], **attributes: Any) -> Any:
    """Return an object whose class has these methods."""
    functions = {m: (lambda self, *args, m=m: (m, args)) for m in methods}
    return type(name, (), {**functions, **attributes})()


def scheduler() -> Any:
    pool = of_class(
        "Pool", POOL, enable_caching=True, hash_block_size=16, null_block=SimpleNamespace(block_id=0)
    )
    manager = of_class("Manager", ["get_computed_blocks"], block_pool=pool)
    return of_class("Scheduler", SCHEDULER, kv_cache_manager=manager, requests={})


def own(of: Any) -> dict[str, Any]:
    manager = of.kv_cache_manager
    return {**vars(of), **vars(manager), **vars(manager.block_pool)}


def hooked(of: Any) -> Watch:
    return attach(of, Mock(), lambda fault: None)


def test_hooks_are_taken_off_again() -> None:
    of = scheduler()
    watch = hooked(of)
    assert set(own(of)) == {*SCHEDULER, *POOL, "get_computed_blocks"}
    watch.detach()
    assert own(of) == {}
    assert of.schedule(1) == ("schedule", (1,))


@pytest.mark.parametrize("of_its_class_too", [True, False])
def test_a_method_that_an_object_has_itself_stays(of_its_class_too: bool) -> None:
    of = scheduler()

    def mine(*args: Any) -> tuple[Any, ...]:
        return args

    if not of_its_class_too:
        delattr(type(of), "schedule")
    of.schedule = mine
    watch = hooked(of)
    assert of.schedule is not mine
    watch.detach()
    assert own(of) == {"schedule": mine}


def test_without_a_method_nothing_is_hooked() -> None:
    of = scheduler()
    delattr(type(of.kv_cache_manager.block_pool), "touch")
    with pytest.raises(AttributeError):
        hooked(of)
    assert own(of) == {}
