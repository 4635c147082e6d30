"""How a sequence was made: the lines from which ``rerun`` drives the engine again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..notation import Spot, integer, json_value, options, quote, shown
from .commands import NAME

__all__ = ["DRIVE_WORDS", "INPUT_VERBS", "Drive", "DriveInput", "DriveLines", "PoolLine"]

DRIVE_WORDS = ("engine", "config", "pool", "prefix")
"""First words of the lines that say what was built; ``>`` begins an input."""

INPUT_VERBS = (
    "submit", "abort", "step", "output", "chunk", "pause", "resume", "reset", "priority", "schedulable",
    "drain",
)  # fmt: skip
"""What may stand after ``>``."""

_ENGINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,59}")
"""A name of a list, never `module:class`: no file says what is imported."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,59}")
_PREFIX = re.compile(r"([0-9]+)\s+of\s+([0-9]+)\s+from\s+([0-9]+)\s+to\s+([0-9]+)")


@dataclass(frozen=True, slots=True)
class PoolLine:
    """``pool NAME units=N [reserved=N] [tokens=N]``: a pool of units, as in the table `pools`."""

    name: str
    units: int
    reserved: int = 0
    tokens_per_unit: int | None = None

    def text(self) -> str:
        """Return the line."""
        out = f"pool {self.name} units={self.units}"
        if self.reserved:
            out += f" reserved={self.reserved}"
        return out if self.tokens_per_unit is None else f"{out} tokens={self.tokens_per_unit}"


@dataclass(frozen=True, slots=True)
class DriveInput:
    """``> VERB ARGS key=value``: one input, before the commands that it caused.

    Attributes
    ----------
    verb : str
        One of `INPUT_VERBS`.
    args : tuple of str
        Words after it, such as ``R0`` or ``last``.
    values : mapping of str to str or None
        Its ``key=value`` parts; None is written as ``-``.
    before : int
        Index of the row of the file that it stands before (as many as there are rows: after the last).
    spot : Spot or None
        Its line, for messages; None for one that was not read.
    """

    verb: str
    args: tuple[str, ...] = ()
    values: Mapping[str, str | None] = field(default_factory=dict)
    before: int = 0
    spot: Spot | None = field(default=None, compare=False)

    def text(self) -> str:
        """Return the line."""
        parts = [self.verb, *(quote(a) for a in self.args)]
        parts += [f"{k}={'-' if v is None else quote(v)}" for k, v in self.values.items()]
        return "> " + " ".join(parts)


@dataclass(frozen=True, slots=True)
class Drive:
    """What was built and what reached it.

    Attributes
    ----------
    engine : str
        Name of the engine adapter.
    engine_version : str or None
        Version that the sequence was made with.
    config : mapping
        What the scheduler was built with.
    pools : tuple of PoolLine
    prefixes : tuple of (int, int, int, int)
        ``prefix REQUEST of OTHER from TOKEN to TOKEN``, as in the table `prefixes`.
    inputs : tuple of DriveInput
        In order.
    """

    engine: str
    engine_version: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[PoolLine, ...] = ()
    prefixes: tuple[tuple[int, int, int, int], ...] = ()
    inputs: tuple[DriveInput, ...] = ()

    def head(self) -> list[str]:
        """Return the lines that stand before the first input."""
        out = [f"engine {self.engine}" + ("" if self.engine_version is None else f" {self.engine_version}")]
        if self.config:
            out.append("config " + json.dumps(dict(self.config), ensure_ascii=True, allow_nan=False))
        out += [p.text() for p in self.pools]
        return out + [f"prefix {r} of {of} from {a} to {b}" for r, of, a, b in self.prefixes]


class DriveLines:
    """Reads the lines of a drive one by one."""

    def __init__(self) -> None:
        self._first: Spot | None = None
        self._engine: tuple[str, str | None] | None = None
        self._config: dict[str, Any] | None = None
        self._pools: list[PoolLine] = []
        self._prefixes: list[tuple[int, int, int, int]] = []
        self._inputs: list[DriveInput] = []

    def head(self, spot: Spot, word: str, rest: str) -> None:
        """Take a line that says what was built."""
        self._first = self._first or spot
        getattr(self, f"_{word}_line")(spot, rest)

    def input(self, spot: Spot, text: str, before: int) -> None:
        """Take what stands after ``>``, before row number `before`."""
        self._first = self._first or spot
        read = options(spot, text)
        verb = read.args[0] if read.args else ""
        if verb not in INPUT_VERBS:
            raise spot.error(f"input {shown(verb)}", f"> and one of {', '.join(INPUT_VERBS)}")
        self._inputs.append(DriveInput(verb, read.args[1:], read.values, before, spot))

    def drive(self) -> Drive | None:
        """Return the whole; None if there was no such line."""
        if self._first is None:
            return None
        if self._engine is None:
            raise self._first.error(
                "inputs without an engine", "a line `engine NAME VERSION`", "say which engine they drive"
            )
        return Drive(
            *self._engine, self._config or {}, tuple(self._pools), tuple(self._prefixes), tuple(self._inputs)
        )

    def _engine_line(self, spot: Spot, rest: str) -> None:
        words = rest.split()
        if self._engine is not None:
            raise spot.error("a second engine", "one engine in a file")
        forms = (_ENGINE, _VERSION)[: len(words)]
        if len(words) not in (1, 2) or not all(f.fullmatch(w) for f, w in zip(forms, words, strict=True)):
            raise spot.error(f"engine {shown(rest)}", "engine NAME [VERSION]")
        self._engine = (words[0], words[1] if len(words) == 2 else None)

    def _config_line(self, spot: Spot, rest: str) -> None:
        if self._config is not None:
            raise spot.error("a second config", "one config in a file")
        value = json_value(spot, rest, "config")
        if not isinstance(value, dict):
            raise spot.error(f"config {shown(rest)}", "a JSON object")
        self._config = value

    def _pool_line(self, spot: Spot, rest: str) -> None:
        read = options(spot, rest)
        unknown = set(read.values) - {"units", "reserved", "tokens"}
        if len(read.args) != 1 or NAME.fullmatch(read.args[0]) is None or unknown:
            raise spot.error(f"pool {shown(rest)}", "pool NAME units=N [reserved=N] [tokens=N]")
        if any(p.name == read.args[0] for p in self._pools):
            raise spot.error(f"a second pool {shown(read.args[0])}", "each name once")
        units = integer(spot, read.values.get("units"), "units", low=0)
        reserved = integer(spot, read.values.get("reserved", "0"), "reserved", low=0)
        tokens = read.values.get("tokens")
        self._pools.append(
            PoolLine(
                read.args[0],
                units,
                reserved,
                None if tokens is None else integer(spot, tokens, "tokens", low=1),
            )
        )

    def _prefix_line(self, spot: Spot, rest: str) -> None:
        m = _PREFIX.fullmatch(rest.strip())
        if m is None:
            raise spot.error(f"prefix {shown(rest)}", "prefix 1 of 0 from 0 to 32")
        request, of, begin, end = (integer(spot, g, "number", low=0) for g in m.groups())
        if not begin < end or request == of:
            raise spot.error(f"prefix {shown(rest)}", "tokens of another request, begin < end")
        self._prefixes.append((request, of, begin, end))
