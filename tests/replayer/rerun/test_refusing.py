"""What an adapter refuses that has nothing but what every engine has."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import pytest

from tapedelay.replayer.rerun.protocol import Unsupported
from tapedelay.replayer.rerun.refusing import Refusing


class Acme(Refusing):
    engine = "Acme"
    lacks = MappingProxyType({"pause": "pause that keeps what runs"})

    def priority(self, request: int, value: int) -> str:
        return "changed"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda e: e.set_schedulable(0), "Acme has no requests that become schedulable later"),
        (lambda e: e.next_chunk(0, 3, False), "Acme has no sessions whose prompt goes on"),
        (lambda e: e.pause("wait"), "Acme has no pause that keeps what runs"),
        (lambda e: e.resume(), "Acme has no pause of its scheduler"),
        (lambda e: e.cache_reset(""), "Acme has no cache that is kept for its content"),
        (lambda e: Refusing.priority(e, 0, 1), "Acme has no priorities that change"),
    ],
)
def test_what_an_engine_does_not_have_is_refused_in_words(call: Callable[[Acme], object], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        call(Acme())


def test_what_it_has_is_its_own() -> None:
    assert Acme().priority(0, 1) == "changed"
    Acme().close()
