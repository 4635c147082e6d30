"""Delay plans: parse, print, and find the ops of a tape that they name.

``formats/DELAYS.md`` specifies them.
"""

from __future__ import annotations

from .counting import ENGINE_KINDS, Counting, counting_plan
from .exact import exact_plan
from .files import plan_of, read_plan
from .globs import Glob
from .match import Anchors, LineMatch, Matched, match_plan
from .parse import parse_expression, parse_plan, parse_time
from .plan import EVERY, LAST, Line, Pattern, Plan
from .print import print_anchor, print_line, print_plan, print_time
from .randoms import random_delays, random_ns, random_plan
from .resolved import AFTER_END, BEFORE_ISSUE, BEFORE_START, PLACES, Delays

__all__ = [
    "AFTER_END",
    "BEFORE_ISSUE",
    "BEFORE_START",
    "ENGINE_KINDS",
    "EVERY",
    "LAST",
    "PLACES",
    "Anchors",
    "Counting",
    "Delays",
    "Glob",
    "Line",
    "LineMatch",
    "Matched",
    "Pattern",
    "Plan",
    "counting_plan",
    "exact_plan",
    "match_plan",
    "parse_expression",
    "parse_plan",
    "parse_time",
    "plan_of",
    "print_anchor",
    "print_line",
    "print_plan",
    "print_time",
    "random_delays",
    "random_ns",
    "random_plan",
    "read_plan",
]
