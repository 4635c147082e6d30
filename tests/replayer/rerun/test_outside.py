"""What can be seen of a scheduler from outside: whether its free units would do for a request that waits."""

from __future__ import annotations

import pytest

from tapedelay.replayer.rerun.outside import fits
from tapedelay.replayer.rerun.protocol import Pool, PoolState, RequestState, State

KV, SLOTS = Pool("kv", 33, 1, 16), Pool("state", 4)


def state(free: dict[str, int], **request: object) -> State:
    """Return a state with one request; 40 tokens are known of it."""
    made = RequestState("waiting", 0, 40, **request)  # type: ignore[arg-type]
    return State({7: made}, {name: PoolState(n) for name, n in free.items()}, 1)


@pytest.mark.parametrize(
    ("free", "held", "does"),
    [
        ({"kv": 3}, {}, True),
        ({"kv": 2}, {}, False),
        ({"kv": 2}, {"kv": (4,)}, True),
        ({"kv": 3, "state": 1}, {}, True),
        ({"kv": 3, "state": 0}, {}, False),
        ({"kv": 3, "state": 0}, {"state": (2,)}, True),
        ({"kv": 2, "state": 9}, {}, False),
    ],
)
def test_every_pool_must_have_enough(
    free: dict[str, int], held: dict[str, tuple[int, ...]], does: bool
) -> None:
    assert fits(state(free, units=held), (KV, SLOTS)) is does


@pytest.mark.parametrize("phase", ["blocked", "chunk", "finished"])
def test_who_does_not_wait_for_units_is_not_asked(phase: str) -> None:
    waits = state({"kv": 30})
    other = State({7: RequestState(phase, 0, 40)}, waits.pools, 1)
    assert fits(waits, (KV,))
    assert not fits(other, (KV,))
    assert not fits(other, (KV,), lambda request: True)


def test_an_engine_that_knows_better_is_asked() -> None:
    asked: list[int] = []

    def two_groups(request: int) -> bool:
        asked.append(request)
        return False

    assert fits(state({"kv": 3}), (KV,)), "the pool alone does not tell"
    assert not fits(state({"kv": 3}), (KV,), two_groups)
    assert fits(state({"kv": 0}), (KV,), lambda request: request == 7)
    assert asked == [7]
