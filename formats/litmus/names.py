"""Ids by name, and words of a vocabulary."""

from __future__ import annotations

import re
from typing import Any

from ..notation import NAME, Spot, integer, shown

__all__ = ["Names", "choice"]

_MOST = {"device": 1024, "queue": 4096, "sync": 1 << 20}


def choice(spot: Spot, word: str | None, words: tuple[str, ...], what: str) -> str:
    """Return a word of a vocabulary."""
    if word not in words:
        raise spot.error(f"{what} {shown(word or '-')}", f"one of {', '.join(words)}")
    return str(word)


class Names:
    """The ids of one sort of thing, by name or as ``.id``.

    Parameters
    ----------
    sort : str
        What is named, for messages.
    """

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.rows: list[dict[str, Any]] = []
        self.declared = False
        self._ids: dict[str, int] = {}

    def add(self, name: str, **columns: Any) -> int:
        """Append a row and return its id."""
        ident = len(self.rows)
        self._room(Spot("litmus", 0))
        self._ids.setdefault(name, ident)
        self.rows.append({**columns, "name": name, self.sort: ident})
        return ident

    def _room(self, spot: Spot) -> None:
        if len(self.rows) >= _MOST[self.sort]:
            raise spot.error(f"more {self.sort}s", f"at most {_MOST[self.sort]}")

    def declare(self, spot: Spot, written: str, options: dict[str, str | None], **columns: Any) -> int:
        """Append the row of a header line, which gives a name, or ``.id`` and ``name=``."""
        self.declared = True
        self._room(spot)
        name = written
        if written.startswith("."):
            if integer(spot, written[1:], f"{self.sort} id", bits=32) != len(self.rows):
                raise spot.error(f"{self.sort} {written}", f".{len(self.rows)}: ids count up from 0")
            given = options.pop("name", "")
            if given is None:
                raise spot.error("name=-", "a name")
            self.rows.append({**columns, "name": given, self.sort: len(self.rows)})
            return len(self.rows) - 1
        if not re.fullmatch(NAME, written):
            raise spot.error(f"{self.sort} {shown(written)}", 'a name, or .id with name="..."')
        if written in self._ids:
            raise spot.error(f"a second {self.sort} {shown(written)}", "each name once")
        return self.add(name, **columns)

    def find(self, spot: Spot, written: str) -> int | None:
        """Return the id of a name; None if it is not known."""
        if written.startswith("."):
            ident = integer(spot, written[1:], f"{self.sort} id", low=0)
            if ident >= len(self.rows):
                raise spot.error(f"{self.sort} {written}", f"an id below {len(self.rows)}")
            return ident
        return self._ids.get(written)

    def get(self, spot: Spot, written: str) -> int:
        """Return the id of a name that must be known."""
        found = self.find(spot, written)
        if found is None:
            raise spot.error(
                f"{self.sort} {shown(written)}",
                f"a {self.sort} that the header declares"
                if self.declared
                else f"a {self.sort} that the rows name",
                f"add a header line for it: once one {self.sort} is declared, all are"
                if self.declared
                else "",
            )
        return found
