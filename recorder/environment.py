"""The environment of what `record` starts beside the recorded command."""

from __future__ import annotations

import os

from .hook import SITE

__all__ = ["plain_environment"]


def plain_environment() -> dict[str, str]:
    """Return the environment without what makes programs record themselves."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_") and k != "GGML_BACKEND_PATH"}
    path = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(SITE)]
    return {**{k: v for k, v in env.items() if k != "PYTHONPATH"}, "PYTHONPATH": os.pathsep.join(path)}
