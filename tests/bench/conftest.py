"""The benchmarks are scripts: their folder is on the path while their tests run."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parents[2] / "bench")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
