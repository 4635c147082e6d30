"""Synthetic tokens: what stands at a position of a request, where no token value was ever recorded.

Standard library only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

__all__ = ["FIRST", "LAST", "Tokens"]

FIRST = 1 << 20
"""Smallest synthetic token: above every vocabulary, so that none of them ends a request by chance."""

LAST = (1 << 30) - 1
"""Largest; fits a signed 32-bit number."""

_MASK = (1 << 64) - 1


class Tokens:
    """The token of a request at a position, the same in every run and process.

    Two requests have the same tokens exactly where a prefix says so: there the token is that of the request
    that had it first. Elsewhere two tokens are equal with a probability of 1e-9.

    Parameters
    ----------
    prefixes : iterable of (int, int, int, int)
        Request, the earlier request, first position, one past the last (table `prefixes`).

    Examples
    --------
    >>> tokens = Tokens([(1, 0, 0, 16)])
    >>> tokens(1, 15) == tokens(0, 15), tokens(1, 16) == tokens(0, 16)
    (True, False)
    """

    def __init__(self, prefixes: Iterable[tuple[int, int, int, int]] = ()) -> None:
        self._shared: dict[int, list[tuple[int, int, int]]] = {}
        for request, of, begin, end in prefixes:
            if of < request:
                self._shared.setdefault(request, []).append((begin, end, of))

    def owner(self, request: int, position: int) -> int:
        """Return the request that had this token first."""
        # `of` is always the smaller number: it ends
        while True:
            for begin, end, of in self._shared.get(request, ()):
                if begin <= position < end:
                    request = of
                    break
            else:
                return request

    def __call__(self, request: int, position: int) -> int:
        """Return the token, `FIRST` to `LAST`."""
        return _token(self.owner(request, position) if request in self._shared else request, position)


@functools.lru_cache(maxsize=1 << 16)  # of one recording a campaign asks for the same ones in every run
def _token(owner: int, position: int) -> int:
    # splitmix64's finaliser over (owner, position)
    x = ((owner + 1) * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return FIRST + (x ^ (x >> 31)) % (LAST - FIRST + 1)
