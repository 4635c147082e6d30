"""Sequences: what a request scheduler did, as text (``seq`` litmus files) and as commands."""

from __future__ import annotations

from .commands import INVARIANTS, VERBS, Command
from .driven import Drive, DriveInput, PoolLine
from .model import VARIANTS, Row, Sequence
from .parse import is_sequence, is_sequence_file, parse, read
from .print import print_sequence
from .verdicts import Claim

__all__ = [
    "INVARIANTS",
    "VARIANTS",
    "VERBS",
    "Claim",
    "Command",
    "Drive",
    "DriveInput",
    "PoolLine",
    "Row",
    "Sequence",
    "is_sequence",
    "is_sequence_file",
    "parse",
    "print_sequence",
    "read",
]
