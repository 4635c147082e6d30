"""Perfetto's trace processor, one process for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .trace_processor import TraceProcessor

Query = Callable[..., list[list[dict[str, Any]]]]


@pytest.fixture(scope="session")
def query() -> Iterator[Query]:
    """Ask a trace in SQL: `query(trace, *statements)`; skipped where the trace processor cannot run."""
    processor = TraceProcessor()
    yield processor.query
    processor.close()
