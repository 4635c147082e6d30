"""Baselines: accepted findings, by signature, in a small JSON file that lives well in git."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...formats.disk import cannot_read, open_regular, write_text
from ...formats.errors import InvalidTape
from .findings import Report

__all__ = ["SCHEMA", "Baseline", "lasting", "read_baseline", "write_baseline"]

SCHEMA = "tapedelay-baseline-1"
_ORDINAL = re.compile(r"\.(?:\d+|#)(?!\w)")


def lasting(signature: str) -> str:
    """Return a signature, or a part of one, without the ordinals of queues and buffers.

    The recorder counts what has one name (``TAPE0.2``): another run may make one more before.
    """
    return _ORDINAL.sub("", signature)


@dataclass(frozen=True)
class Baseline:
    """Accepted signatures.

    Attributes
    ----------
    signatures : frozenset of str
        See `Finding.signature`; kept as `lasting` returns them.
    everything : bool
        Accept whatever there is: to find all that a new baseline has to hold.
    """

    signatures: frozenset[str] = field(default_factory=frozenset)
    everything: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "signatures", frozenset(map(lasting, self.signatures)))

    def accepts(self, signature: str) -> bool:
        """Whether findings of that signature are accepted."""
        return self.everything or lasting(signature) in self.signatures

    def names(self, part: str) -> bool:
        """Whether a signature that is accepted may have this part."""
        part = lasting(part)
        return self.everything or any(part in s for s in self.signatures)

    def stale(self, found: Iterable[str]) -> list[str]:
        """Return the signatures that nothing matched."""
        return sorted(self.signatures - set(map(lasting, found)))


def read_baseline(path: Path) -> Baseline:
    """Return the baseline of a file.

    Raises
    ------
    MissingInput
        If it cannot be read.
    InvalidTape
        If it is not a baseline.
    """
    try:
        with open_regular(path) as f:
            text = f.read().decode()
    except OSError as e:
        raise cannot_read(path, e, "a baseline, as --write-baseline writes one") from None
    except UnicodeDecodeError:
        raise _bad(path, "not text") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise _bad(path, "not JSON") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _bad(path, "not a baseline of this version")
    accepted = data.get("accepted")
    if not isinstance(accepted, list):
        raise _bad(path, "`accepted` is not a list")
    signatures = [a.get("signature") if isinstance(a, dict) else None for a in accepted]
    if not all(isinstance(s, str) for s in signatures):
        raise _bad(path, "an entry without a signature")
    return Baseline(frozenset(str(s) for s in signatures))


def _bad(path: Path, found: str) -> InvalidTape:
    return InvalidTape(
        found,
        expected=f'a JSON object with "schema": "{SCHEMA}" and "accepted": [{{"signature": ...}}]',
        where=str(path),
        next_step="write it anew with --write-baseline FILE",
    )


def write_baseline(path: Path, report: Report) -> int:
    """Write all findings of a report as accepted and return how many kinds there are.

    Raises
    ------
    InfrastructureError
        If the file cannot be written.
    """
    seen: dict[str, dict[str, str]] = {}
    for group in report.groups:
        example = group.example
        signature = lasting(example.signature)
        seen.setdefault(signature, {"signature": signature, "verdict": example.verdict, "why": example.text})
    for kind in (k for s in report.schedulers for k in s.kinds):
        signature = lasting(kind.signature)
        why = kind.first.violation.words
        seen.setdefault(signature, {"signature": signature, "verdict": "violation", "why": why})
    data = {"schema": SCHEMA, "accepted": [seen[s] for s in sorted(seen)]}
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return len(seen)
