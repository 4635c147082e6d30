"""Patterns: tiny tapes with known verdicts, by which backends and checkers are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .chains import chain_patterns
from .copies import copy_patterns
from .dags import dag_patterns
from .events import event_patterns
from .graphs import graph_patterns
from .pattern import Pattern
from .pipelines import pipeline_patterns
from .slots import slot_patterns
from .waits import wait_patterns

__all__ = ["FAMILIES", "Pattern", "patterns"]

FAMILIES: dict[str, Callable[..., Iterator[Pattern]]] = {
    "copies": copy_patterns,
    "graphs": graph_patterns,
    "chains": chain_patterns,
    "dags": dag_patterns,
    "pipelines": pipeline_patterns,
    "slots": slot_patterns,
    "events": event_patterns,
    "waits": wait_patterns,
}
"""Generators by family; each takes ``full=True`` for all variants in place of a selection."""


def patterns(*families: str, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of these families, or of all.

    Parameters
    ----------
    *families : str
        Keys of `FAMILIES`.
    full : bool
        Every variant; without it a selection in which each shape and each way to break it occurs.

    Raises
    ------
    KeyError
        If there is no such family.
    """
    for family in families or FAMILIES:
        yield from FAMILIES[family](full=full)
