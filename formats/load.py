"""Load any tape: a directory, a zip file, or a litmus file."""

from __future__ import annotations

from pathlib import Path

from .read import open_tape
from .tape import Tape

__all__ = ["load_tape"]


def load_tape(path: str | Path, *, validate: bool = True) -> Tape:
    """Open a tape or litmus file.

    Parameters
    ----------
    path : str or Path
        ``NAME.tape``, ``NAME.tape.zip`` or ``NAME.litmus``.
    validate : bool
        Check the invariants of the specification as well, so that what follows may rely on them.

    Returns
    -------
    Tape
        The tape.

    Raises
    ------
    InputError
        It is missing, no tape, damaged, or (`InvalidTape`) breaks an invariant.
    """
    path = Path(path)
    if path.suffix.startswith(".litmus"):  # also NAME.litmus:fixed and NAME.litmus+
        from .litmus import load

        tape: Tape = load(path)
    else:
        tape = open_tape(path)
    if validate:
        from .validate import require_valid

        require_valid(tape)
    return tape
