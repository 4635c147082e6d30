"""What is known about a run beside its records: from hook and plugin, and from what watched it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .hook import engine_hook

__all__ = ["SEEN", "Evidence", "Seen", "Watched", "evidence_of", "write_watched"]

SEEN = "seen.json"
"""What a watcher saw, in the spool."""
_REFUSALS_MAX = 100
_TEXT_MAX = 500


@dataclass(frozen=True)
class Seen:
    """A process of the command, seen from outside.

    Attributes
    ----------
    command : tuple of str
        Its command line.
    executable : str
        Its file.
    environment : bool or None
        Whether it began with the variables of the recording; None: that may not be read.
    secure : bool
        The system changed its user or capabilities when it began (setuid, file capabilities).
    plugin : bool
        Whether the plugin was loaded.
    exporting, hidden : tuple of str
        Mapped files that contain ggml: those that export its functions, and those that export none.
    seen_s : float
        Between the first look at it and the last one.
    scheduler : bool
        Whether it recorded a request scheduler.
    """

    command: tuple[str, ...] = ()
    executable: str = ""
    environment: bool | None = None
    secure: bool = False
    plugin: bool = False
    exporting: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    seen_s: float = 0.0
    scheduler: bool = False

    @property
    def name(self) -> str:
        """The name of the program."""
        return Path(self.executable or (self.command or ("?",))[0]).name


@dataclass(frozen=True)
class Watched:
    """What a watcher saw of a command.

    Attributes
    ----------
    processes : tuple of Seen
        Its processes, the first one first.
    stopped_s : float or None
        After how long the watcher ended it; None: it ended by itself.
    """

    processes: tuple[Seen, ...] = ()
    stopped_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What is known about a run beside its records.

    Attributes
    ----------
    command : sequence of str
        The command; empty where there is none.
    hooks : list of dict
        Reports of the import hook: packages that were imported, and faults.
    python : bool
        Whether a Python loaded the import hook.
    refusals : sequence of str
        Why the plugin did not start where it was loaded, in its own words.
    watched : Watched
        What a watcher saw; nothing where none was there.
    """

    command: Sequence[str] = ()
    hooks: Sequence[dict[str, str]] = ()
    python: bool = False
    refusals: Sequence[str] = ()
    watched: Watched = Watched()


def evidence_of(spool: Path, command: Sequence[str] = ()) -> Evidence:
    """Return what a spool holds beside its records.

    Raises
    ------
    SpoolError
        Something else lies there under the name of a report.
    """
    from .engines.ggml.collect import hook_reports

    return Evidence(
        command,
        hook_reports(spool),
        (spool / engine_hook.STARTED).exists(),
        _refusals(spool),
        _watched(spool),
    )


def write_watched(spool: Path, watched: Watched) -> None:
    """Leave what was seen in the spool."""
    (spool / SEEN).write_text(json.dumps(asdict(watched)), encoding="utf-8")


def _seen(data: Any) -> Seen:
    if not isinstance(data, dict):
        raise TypeError
    known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    seen = Seen(**known)
    several = (seen.command, seen.exporting, seen.hidden)
    texts = all(isinstance(t, tuple) and all(isinstance(w, str) for w in t) for t in several)
    said = (seen.environment or False, seen.secure, seen.plugin, seen.scheduler)
    flags = all(isinstance(f, bool) for f in said)
    if not (texts and flags and isinstance(seen.executable, str) and isinstance(seen.seen_s, float)):
        raise TypeError
    return seen


def _refusals(spool: Path) -> list[str]:
    from .files import REPORT_BYTES_MAX, read_regular

    found: dict[str, None] = {}
    for path in sorted(spool.glob("refused-*.txt"))[:_REFUSALS_MAX]:
        for line in read_regular(path, REPORT_BYTES_MAX).decode("utf-8", "replace").splitlines():
            found[line[:_TEXT_MAX]] = None
    return list(found)[:_REFUSALS_MAX]


def _watched(spool: Path) -> Watched:
    from .files import REPORT_BYTES_MAX, read_regular

    with suppress(FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        data: Any = json.loads(read_regular(spool / SEEN, 16 * REPORT_BYTES_MAX))
        stopped_s = data["stopped_s"]
        return Watched(tuple(map(_seen, data["processes"])), None if stopped_s is None else float(stopped_s))
    return Watched()
