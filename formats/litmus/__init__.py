"""Litmus files: tiny tapes as text. ``formats/LITMUS.md`` specifies the notation."""

from __future__ import annotations

from .model import Litmus
from .parse import load, parse, read, split_variant
from .print import MAX_PRINTED_OPS, print_litmus
from .verdicts import Verdict

__all__ = ["MAX_PRINTED_OPS", "Litmus", "Verdict", "load", "parse", "print_litmus", "read", "split_variant"]
