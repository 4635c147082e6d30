"""Where the engine plugins lie."""

from __future__ import annotations

import os
from pathlib import Path

from ..formats.errors import InfrastructureError

__all__ = ["ggml_plugin"]

_NAME = "libtapedelay_ggml.so"


def ggml_plugin() -> Path:
    """Return the ggml plugin: ``TAPEDELAY_PLUGIN`` if set, else the one installed beside this package.

    Raises
    ------
    InfrastructureError
        It is not there.
    """
    chosen = os.environ.get("TAPEDELAY_PLUGIN")
    path = Path(chosen) if chosen else Path(__file__).parent / "engines" / "ggml" / _NAME
    if not path.is_file():
        raise InfrastructureError(
            "the ggml plugin is not there",
            expected=str(path) if chosen else f"{_NAME} beside the package",
            where="TAPEDELAY_PLUGIN" if chosen else "",
            next_step="install tapedelay from a wheel, or build it: pip install -e .",
        )
    return path.absolute()
