"""The edges of a contract as arrays: whoever computes them, an exporter takes them so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Edges"]

Edges = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]
"""Sources and targets (units, by row) and rules (see `formats.edges.RULES`)."""
