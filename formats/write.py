"""Write a tape: `TapeWriter` as it comes, `write_tape` from memory.

A tape appears under its name when it is finished, never before: everything is written to a hidden sibling,
which is renamed at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from .container import write_zip
from .disk import cannot_write, hidden_sibling
from .errors import UsageError
from .framing import scan_frames
from .manifest import MANIFEST_NAME, TableEntry, manifest_to_json
from .schema import REQUIRED, SCHEMAS, TABLES
from .tape import Manifest, Tape

__all__ = ["BATCH_ROWS", "TapeWriter", "is_zip_name", "write_tape"]

BATCH_ROWS = 1 << 17
"""Rows per record batch of a table file."""
_PENDING_BYTES_MAX = 64 << 20


def is_zip_name(path: str | Path) -> bool:
    """Return whether a tape of this name is a single zip file."""
    return Path(path).suffix == ".zip"


def write_tape(tape: Tape, path: str | Path) -> Path:
    """Write a tape from memory.

    Parameters
    ----------
    tape : Tape
        The tape.
    path : str or Path
        A directory ``NAME.tape``, or one file if it ends in ``.zip``. A tape that is there is replaced.

    Returns
    -------
    Path
        Where it lies.

    Raises
    ------
    UsageError
        Something else is there, or a newer version wrote the tape.
    InfrastructureError
        The disk does not take it.
    """
    if tape.read_only:
        raise UsageError(
            "the tape is read-only: a newer version wrote it",
            where=tape.where,
            next_step="use a newer tapedelay",
        )
    with TapeWriter(path) as w:
        for name in tape.present:
            w.write(name, tape.table(name))
        return w.close(tape.manifest)


class TapeWriter:
    """Writes tables as they come, in bounded memory.

    Dictionaries of a file may not change between its batches, so batches wait (in memory, then in a side
    file) until `close` knows all words.

    Parameters
    ----------
    path : str or Path
        A directory ``NAME.tape``, or one file if it ends in ``.zip``. A tape that is there is replaced.

    Raises
    ------
    UsageError
        Something that is no tape is there.
    InfrastructureError
        The disk does not take it. Also from `write` and `close`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tapedelay.formats.builder import TapeBuilder
    >>> target = pathlib.Path(tempfile.mkdtemp()) / "empty.tape"
    >>> with TapeWriter(target) as w:
    ...     w.write("ops", TapeBuilder().build().table("ops"))
    ...     _ = w.close(Manifest())
    >>> (target / "manifest.json").exists()
    True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._zip = is_zip_name(self.path)
        _check_target(self.path, self._zip)
        self._dir = hidden_sibling(self.path)
        self._pending: dict[str, _Pending] = {}
        self._open = True
        with _disk(self.path):
            self._dir.mkdir()

    def __enter__(self) -> TapeWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def write(self, table: str, data: pa.Table | pa.RecordBatch) -> None:
        """Append rows to a table.

        Parameters
        ----------
        table : str
            A table of the specification.
        data : pyarrow.Table or RecordBatch
            Its columns in any order; a nullable column may be left out.

        Raises
        ------
        UsageError
            The table or a column is not in the specification, or a value does not fit.
        """
        if not self._open:
            raise UsageError("the tape is closed", expected="write before close", where=str(self.path))
        if table not in SCHEMAS:
            raise UsageError(f"no table {table!r}", expected=", ".join(SCHEMAS), where=str(self.path))
        with _disk(self.path):
            pending = self._pending.get(table)
            if pending is None:
                pending = self._pending[table] = _Pending(table, self._dir)
            pending.add(data)

    def close(self, manifest: Manifest) -> Path:
        """Finish the tables, write the manifest, and give the tape its name.

        Raises
        ------
        UsageError
            The writer is closed.
        """
        if not self._open:
            raise UsageError("the tape is closed", expected="write before close", where=str(self.path))
        try:
            with _disk(self.path):
                for name in REQUIRED:
                    self._pending.setdefault(name, _Pending(name, self._dir))
                # in the order of the specification, so that equal content gives equal bytes
                entries = [
                    self._pending[n].finish()
                    for n in SCHEMAS
                    if n in self._pending and (self._pending[n].rows or n in REQUIRED)
                ]
                if not manifest.created_by:
                    manifest = dataclasses.replace(manifest, created_by=_created_by())
                (self._dir / MANIFEST_NAME).write_bytes(manifest_to_json(manifest, entries))
                self._publish(entries)
        finally:
            self.abort()
        return self.path

    def abort(self) -> None:
        """Drop what was written, unless the tape has been closed."""
        self._open = False
        for p in self._pending.values():
            p.drop()
        shutil.rmtree(self._dir, ignore_errors=True)

    def _publish(self, entries: list[TableEntry]) -> None:
        if self._zip:
            packed = self._dir / "packed.zip"
            members = [MANIFEST_NAME, *(e.file for e in entries)]
            write_zip(packed, ((m, self._dir / m) for m in members))
            os.replace(packed, self.path)
            return
        old = self._dir.with_suffix(".old")
        if self.path.exists():
            self.path.rename(old)
        try:
            self._dir.rename(self.path)
        except OSError:
            if old.exists():
                old.rename(self.path)
            raise
        shutil.rmtree(old, ignore_errors=True)


class _Pending:
    """The rows of one table on their way to its file, with dictionaries taken apart."""

    def __init__(self, name: str, directory: Path) -> None:
        self.rows = 0
        self._name = name
        self._directory = directory
        self._schema = SCHEMAS[name]
        self._words = {
            c.name: {w: i for i, w in enumerate(c.words)}
            for c in TABLES[name].columns
            if pa.types.is_dictionary(c.type)
        }
        self._plain = pa.schema(
            [
                pa.field(f.name, f.type.index_type if pa.types.is_dictionary(f.type) else f.type, f.nullable)
                for f in self._schema
            ]
        )
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._side: pa.RecordBatchWriter | None = None

    @property
    def _side_path(self) -> Path:
        return self._directory / f"{self._name}.pending"

    def add(self, data: pa.Table | pa.RecordBatch) -> None:
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        strange = [n for n in table.schema.names if n not in self._schema.names]
        if strange:
            raise UsageError(
                f"no column {strange[0]!r}", expected=", ".join(self._schema.names), where=self._name
            )
        for batch in self._fit(table).to_batches(max_chunksize=BATCH_ROWS):
            plain = [
                self._take_apart(f.name, c) if f.name in self._words else c
                for f, c in zip(self._schema, batch.columns, strict=True)
            ]
            piece = pa.RecordBatch.from_arrays(plain, schema=self._plain)
            self.rows += piece.num_rows
            self._batches.append(piece)
            self._bytes += piece.nbytes
        if self._bytes > _PENDING_BYTES_MAX:
            self._spill()

    def _fit(self, table: pa.Table) -> pa.Table:
        columns = []
        for f in self._schema:
            try:
                if f.name in table.schema.names:
                    column = table.column(f.name)
                    if column.type != f.type:
                        column = column.cast(f.type)
                else:
                    column = pa.nulls(table.num_rows, f.type)
                bad = column.null_count and not f.nullable
            except (pa.ArrowException, ValueError) as e:
                raise UsageError(f"column {f.name}: {e}", expected=str(f.type), where=self._name) from None
            if bad:
                raise UsageError(
                    f"column {f.name} holds a null", expected="a value in every row", where=self._name
                )
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _take_apart(self, name: str, column: pa.DictionaryArray) -> pa.Array:
        """Return the column's indices into the table's own list of words."""
        words = self._words[name]
        used = column.indices.unique().drop_null().to_numpy(zero_copy_only=False)
        local = column.dictionary.to_pylist()
        mapping = np.zeros(max(len(local), 1), np.int64)
        for i in used:
            word = local[i]
            if word is None:
                raise UsageError(
                    f"column {name} has a null in its dictionary", expected="words", where=self._name
                )
            mapping[i] = words.setdefault(word, len(words))
        target = self._plain.field(name).type
        if len(words) > np.iinfo(target.to_pandas_dtype()).max:
            raise UsageError(f"column {name} has {len(words)} words", expected="fewer", where=self._name)
        return pa.array(mapping).cast(target).take(column.indices)

    def _spill(self) -> None:
        if self._side is None:
            self._side = pa.ipc.new_stream(str(self._side_path), self._plain)
        for b in self._batches:
            self._side.write_batch(b)
        self._batches, self._bytes = [], 0

    def _plain_batches(self) -> Iterator[pa.RecordBatch]:
        if self._side is not None:
            self._spill()
            self._side.close()
            with pa.memory_map(str(self._side_path)) as source, pa.ipc.open_stream(source) as reader:
                yield from reader
            self._side_path.unlink()
            self._side = None
        yield from self._batches
        self._batches = []

    def _chunks(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of `BATCH_ROWS` rows, however small they came."""
        waiting: list[pa.RecordBatch] = []
        for b in self._plain_batches():
            waiting.append(b)
            while sum(w.num_rows for w in waiting) >= BATCH_ROWS:
                whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
                yield whole.slice(0, BATCH_ROWS)
                rest = whole.slice(BATCH_ROWS)
                waiting = [rest] if rest.num_rows else []
        if waiting:
            yield from pa.Table.from_batches(waiting, schema=self._plain).combine_chunks().to_batches()

    def finish(self) -> TableEntry:
        """Write the table's file and return its entry."""
        words = {n: pa.array(list(w), pa.string()) for n, w in self._words.items()}
        path = self._directory / f"{self._name}.arrow"
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=3))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, self._schema, options=options) as out:
            for b in self._chunks():
                columns = [
                    pa.DictionaryArray.from_arrays(c, words[f.name], safe=False) if f.name in words else c
                    for f, c in zip(self._schema, b.columns, strict=True)
                ]
                out.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            frames = scan_frames(view, path.name)
            digest = hashlib.sha256(view).hexdigest()
            n = len(view)
            view.release()
        return TableEntry(self._name, frames.rows, n, frames.decoded_bytes, digest)

    def drop(self) -> None:
        if self._side is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._side.close()
            self._side = None
        self._batches = []


def _check_target(path: Path, as_zip: bool) -> None:
    """Refuse to replace anything that is no tape."""
    if path.is_symlink() or not path.exists():
        return
    if as_zip:
        ours = path.is_file()
    else:
        ours = path.is_dir() and ((path / MANIFEST_NAME).is_file() or not any(path.iterdir()))
    if not ours:
        raise UsageError(
            "something that is no tape is there",
            expected="a new name, or a tape to replace",
            where=str(path),
            next_step="choose another name",
        )


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise cannot_write(path, e) from e


def _created_by() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"tapedelay {version('tapedelay')}"
    except PackageNotFoundError:
        return "tapedelay"
