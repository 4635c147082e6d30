"""How a tape is made: launch an engine, let it write a spool, collect the spool into a tape.

Importing this package is light; what needs Arrow is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .saving import save
    from .session import Recording, record

__all__ = ["Recording", "record", "save"]


def __getattr__(name: str) -> Any:
    if name == "save":
        from .saving import save

        return save
    if name in __all__:
        from . import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
