"""What goes along with a recorded command: files for its plugin, samplers, answers to requests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from .outcome import Recording

__all__ = ["Companion"]


class Companion(Protocol):
    """Something that begins before the command and ends after it."""

    def along(self, result: Recording, spool: Path) -> AbstractContextManager[Mapping[str, str]]:
        """Return a context to be in while the command runs.

        Entering it may write files into `spool`, and gives variables for the command's environment. What it
        leaves in `spool` is collected with the rest; what is wrong it adds to ``result.faults``.

        Parameters
        ----------
        result : Recording
            What is being recorded.
        spool : Path
            Folder of this recording, private.
        """
        ...
