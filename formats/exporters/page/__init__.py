"""A finding as one static page: the ops around it per queue, what orders them, and what does not.

The page needs no script and loads nothing; every text from the tape is escaped.
"""

from __future__ import annotations

from .page import finding_page

__all__ = ["finding_page"]
