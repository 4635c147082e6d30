"""Flight recorder: how much of a recording is kept while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..formats.errors import UsageError
from .outcome import Recording

__all__ = ["Last", "parse_last"]

_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_RECORDS_MAX = 1_000_000_000
_MS_MAX = 7 * 24 * 3_600_000
_FORM = "a number of records, or a time such as 30s, 5m or 500ms"


@dataclass(frozen=True)
class Last:
    """The newest records, or those of the last milliseconds; the other one is 0. A companion."""

    records: int = 0
    ms: int = 0

    def variables(self) -> dict[str, str]:
        """Return what tells the plugin."""
        if self.records:
            return {"TAPEDELAY_RING_RECORDS": str(self.records)}
        return {"TAPEDELAY_RING_MS": str(self.ms)} if self.ms else {}

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Tell the plugin."""
        yield self.variables()


def parse_last(text: str, where: str = "--last") -> Last:
    """Return what ``--last`` says: ``1000000`` records, or a time with its unit.

    Raises
    ------
    UsageError
        It says neither, or too much.
    """
    found = re.fullmatch(r"([0-9]{1,12}|[0-9]{1,9}\.[0-9]{1,3})(ms|s|m|h)?", text.replace("_", ""))
    if found is None or ("." in found[1] and found[2] is None):
        raise UsageError(f"{text[:40]!r}", expected=_FORM, where=where, next_step=_say(where))
    if found[2] is None:
        records = int(found[1])
        if not 0 < records <= _RECORDS_MAX:
            raise UsageError(
                f"{records} records", expected=f"1 to {_RECORDS_MAX:,}", where=where, next_step=_say(where)
            )
        return Last(records=records)
    ms = round(float(found[1]) * _MS[found[2]])
    if not 0 < ms <= _MS_MAX:
        raise UsageError(f"a time of {text[:40]}", expected="1ms to 168h", where=where, next_step=_say(where))
    return Last(ms=ms)


def _say(where: str) -> str:
    one, other = ("1_000_000", "'30s'") if where.endswith("=") else (" 1000000", " 30s")
    return f"say {where}{one} for records, or {where}{other} for a time"
