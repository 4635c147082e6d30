"""``record --tap``: the tap stands between the program and its scheduler."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..formats.errors import InfrastructureError
from .outcome import Recording
from .plugin import ggml_plugin

__all__ = ["TAP_ASKED", "Tap", "ggml_tap"]

TAP_ASKED = "tap"
"""An empty file in the spool: the tap was asked for."""
_NAME = "libtapedelay_ggml_tap.so"
_SEPARATORS = frozenset(" :$\t\n")
"""What the dynamic linker splits or replaces in ``LD_PRELOAD``; there is no way to quote it."""


def ggml_tap() -> Path:
    """Return the tap for ggml: it lies beside the plugin.

    Raises
    ------
    InfrastructureError
        It is not there.
    """
    path = ggml_plugin().with_name(_NAME)
    if not path.is_file():
        raise InfrastructureError(
            "the tap is not there",
            expected=f"{_NAME} beside the plugin",
            next_step="install tapedelay from a wheel, or build it: pip install -e .",
        )
    return path


class Tap:
    """Preloads the tap into the command (a `Companion`)."""

    @contextmanager
    def along(self, result: Recording, spool: Path) -> Iterator[Mapping[str, str]]:
        """Yield ``LD_PRELOAD``: what the user has there, then the tap.

        Raises
        ------
        InfrastructureError
            The tap is not there, or has no path that can be preloaded.
        """
        (spool / TAP_ASKED).touch()
        with _preloadable(ggml_tap()) as tap:
            # The user's own come first: some (sanitizers) insist on it.
            yield {"LD_PRELOAD": " ".join([*filter(None, [os.environ.get("LD_PRELOAD")]), str(tap)])}


@contextmanager
def _preloadable(tap: Path) -> Iterator[Path]:
    """Give a path that the dynamic linker takes as one: where it has other names in it, a link elsewhere."""
    if not _SEPARATORS & set(str(tap)):
        yield tap
        return
    folder = Path(tempfile.mkdtemp(prefix="tapedelay-"))
    try:
        if _SEPARATORS & set(str(folder)):
            raise InfrastructureError(
                "the tap cannot be preloaded: its path has a space, a colon or a dollar sign",
                expected="a path without them for it, or for temporary files",
                next_step="set TMPDIR to such a folder",
            )
        link = folder / _NAME
        link.symlink_to(tap)
        yield link
    finally:
        shutil.rmtree(folder, ignore_errors=True)
