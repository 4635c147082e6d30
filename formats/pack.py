"""Pack a directory tape into one stored zip file; the same content gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

from .container import open_container, write_zip
from .errors import CorruptTape, InfrastructureError, UsageError
from .manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, manifest_from_json
from .read import open_tape

__all__ = ["pack_tape"]


def pack_tape(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the tape as one file.

    The bytes are copied, not decoded, so a tape of a newer version can be packed too.

    Parameters
    ----------
    path : str or Path
        A tape, usually a directory.
    out : str or Path, optional
        The file; by default the tape's name with ``.zip`` added. It is replaced when it is there.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        `path` is no sound tape.
    UsageError
        `out` would replace the tape itself, or is a directory.
    InfrastructureError
        The disk does not take it.
    """
    path = Path(path)
    open_tape(path)  # sizes and counts
    box = open_container(path)
    head = box.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)
    _, entries = manifest_from_json(head, where=box.name)
    if out is None:
        if path.suffix == ".zip":
            raise UsageError("the tape is one file already", where=box.name, next_step="name another with -o")
        full = path.resolve()
        out = full.with_name(full.name + ".zip")
    out = Path(out)
    if out.is_dir() or (out.exists() and out.samefile(path)):
        raise UsageError(
            "a directory or the tape itself" if out.exists() else "",
            expected="the name of a file to write",
            where=out.name,
            next_step="choose another with -o",
        )
    members: list[tuple[str, bytes]] = [(MANIFEST_NAME, head)]
    for e in entries:
        data = box.read(e.file, e.bytes)
        if hashlib.sha256(data).hexdigest() != e.sha256:
            raise CorruptTape(
                "the bytes changed after they were written",
                expected="the checksum in the manifest",
                where=f"{box.name}/{e.file}",
                next_step="record again",
            )
        members.append((e.file, data))
    temp = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        write_zip(temp, members)
        os.replace(temp, out)
    except OSError as e:
        raise InfrastructureError(
            f"cannot write: {e.strerror or e}", where=out.name, next_step="check space and permissions"
        ) from e
    finally:
        temp.unlink(missing_ok=True)
    return out
