"""The invariants, one function per theme. `validate.RULES` says each in words."""

from __future__ import annotations

from collections.abc import Callable

from ..tape import Tape
from ..validate import Findings
from .buffers import buffers_live, buffers_nest
from .keys import keys_and_refs, words_and_signs
from .limits import nothing_grows_over
from .lookup import Tables
from .manifest import delays_hold, edges_join, graphs_hold, manifest_agrees, profiles_known
from .ops import SURVEYED, ops_aim, ops_in_time, ops_synchronise, queues_issue
from .requests import configs_are_private, events_hang_on_inputs, inputs_say_what_they_are, units_fit
from .sets import access_ranges, sets_and_lists

__all__ = ["ALL_RULES", "SURVEYED", "Rule"]

Rule = Callable[[Findings, Tape, Tables], None]

ALL_RULES: tuple[Rule, ...] = (
    ops_in_time,  # first: what it surveys, the others need not decode
    keys_and_refs,
    words_and_signs,
    sets_and_lists,
    access_ranges,
    buffers_nest,
    buffers_live,
    queues_issue,
    ops_synchronise,
    ops_aim,
    nothing_grows_over,
    edges_join,
    manifest_agrees,
    graphs_hold,
    delays_hold,
    profiles_known,
    inputs_say_what_they_are,
    events_hang_on_inputs,
    units_fit,
    configs_are_private,
)
