"""The one error tree.

::

    TapedelayError                    (exit 5 unless a subclass says otherwise)
    ├── UsageError                    exit 2   the command or call was wrong
    ├── InputError                    exit 3   a file is not what it should be
    │   ├── MissingInput              the file or directory is not there
    │   ├── NotATape                  foreign, empty or truncated: nothing we wrote
    │   ├── VersionError              written by a version that this one cannot read
    │   ├── CorruptTape               ours, but damaged (checksum, schema, counts)
    │   ├── InvalidTape               readable, but an invariant of the spec does not hold
    │   ├── LitmusError               a litmus file that does not parse
    │   ├── PlanError                 a delay plan that does not parse
    │   └── SpoolError                a spool that cannot be collected
    ├── CannotJudge                   exit 4   not enough was recorded to give a verdict
    │   └── Unsupported               a backend cannot do what the tape or the call needs
    └── InfrastructureError           exit 5   disk, process, engine or plugin trouble
        └── ReplayFailed              the runtime below a backend failed

Every error says what was found, what was expected, where, and what to do next.
"""

from __future__ import annotations

from .shown import printable

__all__ = [
    "CannotJudge",
    "CorruptTape",
    "InfrastructureError",
    "InputError",
    "InvalidTape",
    "LitmusError",
    "MissingInput",
    "NotATape",
    "PlanError",
    "ReplayFailed",
    "SpoolError",
    "TapedelayError",
    "Unsupported",
    "UsageError",
    "VersionError",
]


class TapedelayError(Exception):
    """Root of the tree.

    Parameters
    ----------
    found : str
        What was found.
    expected : str
        What was expected in its place.
    where : str
        File, table, row, line or function.
    next_step : str
        What the user can do about it.

    Attributes
    ----------
    exit_code : int
        Process exit code of a command that ends with this error.
    """

    exit_code = 5

    def __init__(self, found: str, *, expected: str = "", where: str = "", next_step: str = "") -> None:
        self.found = found
        self.expected = expected
        self.where = where
        self.next_step = next_step
        super().__init__(self.text())

    def text(self) -> str:
        """Return the message as one short paragraph, with what files and people say in it made printable."""
        head = printable(f"{self.where}: {self.found}" if self.where else self.found)
        if self.expected:
            head += printable(f" (expected {self.expected})")
        if self.next_step:
            head += f"\n  next: {printable(self.next_step)}"
        return head

    def as_dict(self) -> dict[str, str | int]:
        """Return the error for ``--json``."""
        return {
            "error": type(self).__name__,
            "found": self.found,
            "expected": self.expected,
            "where": self.where,
            "next": self.next_step,
            "exit_code": self.exit_code,
        }


class UsageError(TapedelayError):
    """The command line or the call was wrong."""

    exit_code = 2


class InputError(TapedelayError):
    """A file is not what it should be."""

    exit_code = 3


class MissingInput(InputError):
    """The file or directory is not there or cannot be opened."""


class NotATape(InputError):
    """Foreign, empty or cut short: not something this toolkit wrote."""


class VersionError(InputError):
    """Written by a version that this one cannot read."""


class CorruptTape(InputError):
    """A tape whose bytes are damaged."""


class InvalidTape(InputError):
    """A readable tape that breaks an invariant of the specification."""


class LitmusError(InputError):
    """A litmus file that does not parse."""


class PlanError(InputError):
    """A delay plan that does not parse."""


class SpoolError(InputError):
    """A spool that cannot be collected."""


class CannotJudge(TapedelayError):
    """Not enough was recorded to give a verdict."""

    exit_code = 4


class Unsupported(CannotJudge):
    """A backend cannot do what the tape or the call needs."""


class InfrastructureError(TapedelayError):
    """Disk, process, engine or plugin trouble."""


class ReplayFailed(InfrastructureError):
    """The runtime below a backend failed."""
