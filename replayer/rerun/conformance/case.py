"""What the kit measures an engine adapter by: cases, results, and the report over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ... import kit_report
from ..protocol import Driver, Pool

__all__ = ["Case", "Report", "Result", "Skip", "Subject"]


@dataclass(frozen=True)
class Subject:
    """An engine adapter, and how requests look that suit its engine.

    Attributes
    ----------
    driver : Driver
        The adapter.
    config : mapping of str to scalar
        A configuration with room for four requests of `long_tokens` at once.
    pools : tuple of Pool
        Its pools; empty: as a scheduler just built shows them.
    prompt_tokens : int
        A prompt that one step computes, and that takes more than one unit.
    long_tokens : int
        A prompt that takes several steps where prompts are chunked.
    max_tokens : int
        Tokens to produce.
    shared_tokens : int
        A common beginning of two prompts that is long enough to be found; at most `long_tokens`.
    tight : mapping of str to scalar or None
        A configuration in which two requests of `prompt_tokens` run, but not to their end without a
        preemption; None: those cases are skipped.
    tight_tokens : int
        What the two produce.
    session, blocked : tuple of str
        Flags of a request that takes further chunks, and of one that waits for ``set_schedulable``; empty:
        the engine has no such requests.
    """

    driver: Driver
    config: Mapping[str, Any]
    pools: tuple[Pool, ...] = ()
    prompt_tokens: int = 12
    long_tokens: int = 40
    max_tokens: int = 4
    shared_tokens: int = 32
    tight: Mapping[str, Any] | None = None
    tight_tokens: int = 24
    session: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class Skip(Exception):
    """The engine, or this configuration, does not have what a case is about; says what."""


@dataclass(frozen=True)
class Case:
    """One promise of the protocol, and how to see whether it is kept.

    Attributes
    ----------
    name : str
        ``GROUP/NAME``; unique.
    promise : str
        What the adapter promises, in words; printed where it does not keep it.
    trial : callable
        Returns what is wrong, in words, or an empty string; raises `Skip`.
    """

    name: str
    promise: str
    trial: Callable[[Subject], str]


Result = kit_report.Result[Case]
"""What became of a case."""


class Report(kit_report.KitReport[Case]):
    """The results of an adapter."""

    SUBJECT = "engine"
    SCHEMA = "tapedelay-rerun-conformance-1"

    @property
    def engine(self) -> str:
        """Its name."""
        return self.subject
