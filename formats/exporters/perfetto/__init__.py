"""A tape as a Perfetto trace (protobuf), for the Perfetto UI and its trace processor.

Queues are tracks, grouped by device; ops that overlap on one queue lie on tracks of their own, and so do the
rows that only order or wait, and the issues of a host thread. Flows are the edges between queues, and from
the issue of an op to its execution. Findings stand on top, the missing edge of each as a flow.

Perfetto drops slices that overlap on one track and flows that point backwards in time, without a word. The
first do not occur here; flows that the recorded times would turn backwards are counted.
"""

from __future__ import annotations

from .export import Written, write_perfetto

__all__ = ["Written", "write_perfetto"]
