"""What an exporter is told of a finding; who finds it is none of its business."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mark"]


@dataclass(frozen=True)
class Mark:
    """A finding to be shown.

    Attributes
    ----------
    title : str
        One line: verdict, fault, memory.
    text : str
        The explanation, one sentence.
    rows : tuple of int
        Rows of `ops` that it is about.
    labels : tuple of str
        A name for each row (``#12`` or a litmus label).
    link : str
        What joins the first row to the second, such as ``missing edge``; empty for the ops of a deadlock.
    facts : tuple of (str, str)
        What else is known, in words: name and value.
    """

    title: str
    text: str
    rows: tuple[int, ...]
    labels: tuple[str, ...]
    link: str = ""
    facts: tuple[tuple[str, str], ...] = ()
