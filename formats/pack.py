"""Pack a directory tape into one stored zip file; the same content gives the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from .container import open_container, write_zip
from .disk import cannot_write, check_output, hidden_sibling
from .errors import CorruptTape, UsageError
from .manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, manifest_from_json
from .read import open_tape

__all__ = ["pack_tape"]


def pack_tape(path: str | Path, out: str | Path | None = None, *, force: bool = False) -> Path:
    """Write the tape as one file.

    The bytes are copied, not decoded, so a tape of a newer version can be packed too.

    Parameters
    ----------
    path : str or Path
        A tape, usually a directory.
    out : str or Path, optional
        The file; by default the tape's name with ``.zip`` added.
    force : bool
        Replace the file if it is there.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        `path` is no sound tape.
    UsageError
        `out` is there and `force` is not given, is a directory, or would change the tape itself.
    InfrastructureError
        The disk does not take it.
    """
    path = Path(path)
    open_tape(path)  # sizes and counts
    box = open_container(path)
    head = box.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)
    _, entries = manifest_from_json(head, where=box.where)
    if out is None:
        if path.suffix == ".zip":
            raise UsageError(
                "the tape is one file already", where=box.where, next_step="name another with -o"
            )
        base = path if path.name not in ("", "..") else path.resolve()
        out = base.with_name(base.name + ".zip")
    out = Path(out)
    check_output(out, tape=path, force=force)
    members: list[tuple[str, bytes]] = [(MANIFEST_NAME, head)]
    for e in entries:
        data = box.read(e.file, e.bytes)
        if hashlib.sha256(data).hexdigest() != e.sha256:
            raise CorruptTape(
                "the bytes changed after they were written",
                expected="the checksum in the manifest",
                where=f"{box.where}/{e.file}",
                next_step="record again",
            )
        members.append((e.file, data))
    temp = hidden_sibling(out)
    try:
        write_zip(temp, members)
        os.replace(temp, out)
    except OSError as e:
        raise cannot_write(out, e) from None
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
    return out
