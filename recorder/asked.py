"""What the user wants recorded, and how options are spelled in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..formats.errors import UsageError
from ..formats.profiles import BUILTIN

if TYPE_CHECKING:
    from .delays import AskedDelays

__all__ = ["Asked", "profile_names", "spelled"]


@dataclass(frozen=True)
class Asked:
    """What the user wants recorded.

    Attributes
    ----------
    devices : int or None
        Test devices; None: none where a real GPU backend is registered, else one.
    profile : str
        How they behave.
    sync : bool
        Every command is complete before its call returns: the reference run.
    delays : AskedDelays or None
        What is held up.
    in_python : bool
        Asked by a call, not on a command line: messages name parameters, not options.
    """

    devices: int | None = None
    profile: str = "vulkan-like"
    sync: bool = False
    in_python: bool = False
    delays: AskedDelays | None = None

    def check(self) -> None:
        """Refuse what no plugin could do.

        Raises
        ------
        UsageError
            The profile is unknown or the number is out of range.
        """
        if self.profile not in profile_names():
            raise UsageError(
                f"profile {self.profile!r}",
                expected=", ".join(profile_names()),
                where=spelled("profile", self),
            )
        if self.devices is not None and not 0 <= self.devices <= 15:
            raise UsageError(
                f"{self.devices} test devices", expected="0 to 15", where=spelled("devices", self)
            )


def spelled(option: str, asked: Asked, value: str = "") -> str:
    """Return an option as the user writes it: ``--devices 0`` on a command line, ``devices=0`` in a call."""
    return f"{option}={value}" if asked.in_python else f"--{option} {value}".rstrip()


def profile_names() -> tuple[str, ...]:
    """Return the profiles that a test device can have."""
    return tuple(sorted(n for n, p in BUILTIN.items() if p.doc.startswith("test device")))
