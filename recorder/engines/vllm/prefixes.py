"""Which whole units of a request equal those of an earlier one, by the engine's own block hashes.

The hashes stay in this table in memory; what leaves it are numbers of requests and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

__all__ = ["PrefixBook"]


class PrefixBook:
    """Remembers which request with the content of a unit has the lowest number.

    A unit's hash covers everything before it too, so equal hashes mean equal beginnings.

    Parameters
    ----------
    unit_tokens : int
        Tokens that one hash stands for.
    limit : int
        Entries above which those that can match nothing any more are dropped.
    """

    def __init__(self, unit_tokens: int, limit: int = 1 << 17) -> None:
        self.unit_tokens = unit_tokens
        self.limit = limit
        self._owners: dict[Hashable, int] = {}
        self._known: dict[str, list[int]] = {}
        """Of each request: its number, and how many of its hashes are noted."""

    def learn(
        self, key: str, hashes: Sequence[Hashable], units: int, number_of: Callable[[str], int]
    ) -> Sequence[tuple[int, int, int, int]]:
        """Note the first `units` hashes of a request; return what is new and equal to another one's.

        Parameters
        ----------
        key : str
            The request, by the engine's id.
        hashes : sequence
            Its hashes, by position.
        units : int
            How many of them to look at: behind those that are computed there may be a token that a session
            drops again.
        number_of : callable
            Gives its number; asked once for each request.

        Returns
        -------
        sequence of (int, int, int, int)
            Number of the later request, of the earlier one, first token, one past the last token. What the
            earlier one produces may equal a prompt that came later.
        """
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = [number_of(key), 0]
        number, start = known
        units = min(units, len(hashes))
        if start >= units:
            return ()
        known[1] = units
        owners = self._owners
        if units == start + 1 and owners.setdefault(hashes[start], number) == number:  # a block became full
            return ()
        found: list[tuple[int, int, int, int]] = []
        size = self.unit_tokens
        for i in range(start, units):
            of = owners.setdefault(hashes[i], number)
            if of == number:
                continue
            later, earlier = (number, of) if of < number else (of, number)
            owners[hashes[i]] = earlier
            if found and found[-1][:2] == (later, earlier) and found[-1][3] == i * size:
                found[-1] = (later, earlier, found[-1][2], (i + 1) * size)
            else:
                found.append((later, earlier, i * size, (i + 1) * size))
        return found

    def cut(self, key: str, units: int) -> None:
        """Say that a request's content after its first `units` was replaced."""
        known = self._known.get(key)
        if known is not None:
            known[1] = min(known[1], units)

    def forget(self, key: str) -> None:
        """Say that a request is gone; its content may still be in the cache."""
        self._known.pop(key, None)

    @property
    def full(self) -> bool:
        """Return whether `prune` is due."""
        return len(self._owners) > self.limit

    def prune(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop the hashes that are not `wanted` any more: neither cached nor of a request that lives."""
        self._owners = {h: of for h, of in self._owners.items() if wanted(h)}
        self.limit = max(self.limit, 2 * len(self._owners))
