"""Everything that the processes of one recording left behind, as one tape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .origin import Origin
from .requests.layout import PATTERN

if TYPE_CHECKING:
    from ..formats.commands.progress import Progress
    from ..formats.tape import Tape

__all__ = ["any_recorded", "collect_all"]


def any_recorded(directory: Path) -> bool:
    """Return whether any process has written into a spool."""
    return any(directory.glob("*.rec")) or any(directory.glob(PATTERN))


def collect_all(directory: Path, *, until_ns: int | None = None, progress: Progress | None = None) -> Tape:
    """Return the device ops and the request schedulers of a recording.

    Parameters
    ----------
    directory : Path
        The raw recording.
    until_ns : int, optional
        CLOCK_MONOTONIC: the processes go on, and what they record from then on is left out.
    progress : callable, optional
        Told now and then how much is done.

    Raises
    ------
    SpoolError
        There is nothing to collect, or something is damaged.
    """
    from .engines.ggml.collect import collect_with_origin
    from .requests.collect import with_requests

    if not any(directory.glob("*.rec")):
        alone = with_requests(None, directory, Origin(), until_ns=until_ns)
        if alone is not None:
            return alone
    tape, origin = collect_with_origin(directory, until_ns=until_ns, progress=progress)
    return with_requests(tape, directory, origin, until_ns=until_ns) or tape
