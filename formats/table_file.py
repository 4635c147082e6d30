"""One table file of a tape: its columns, decoded when they are asked for.

Nothing is taken from the file before its framing, counts and schema are known to fit what the manifest says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from .errors import CorruptTape
from .framing import scan_frames
from .manifest import TableEntry
from .schema import SCHEMAS

__all__ = ["TableFile"]

_LARGE_ROWS = 1 << 16
_BATCH_ROWS_MIN = 1 << 12
"""A table of fewer rows, or of smaller batches, is decoded as a whole: pieces would take longer."""


class TableFile:
    """The bytes of one table, whose checksum is known to fit.

    Parameters
    ----------
    data : bytes-like
        The file.
    entry : TableEntry
        What the manifest says of it.
    newer : bool
        Whether a newer writer wrote it: columns that are not known are left out then.
    where : str
        Name for messages.

    Raises
    ------
    CorruptTape
        Its framing, counts, schema or values do not hold. Also from `columns` and `batches`, of the columns
        that these decode.
    """

    def __init__(self, data: memoryview, entry: TableEntry, *, newer: bool = False, where: str = "") -> None:
        frames = scan_frames(data, where)
        if (frames.rows, frames.decoded_bytes) != (entry.rows, entry.decoded_bytes):
            raise CorruptTape(
                f"{frames.rows} rows and {frames.decoded_bytes} decoded bytes",
                expected=f"{entry.rows} and {entry.decoded_bytes}, as the manifest says",
                where=where,
            )
        self.rows = entry.rows
        self._schema = SCHEMAS[entry.name]
        self._where = where
        self._data = pa.py_buffer(data)
        # every row of every table holds at least one id of four bytes
        believable = 4 * self.rows <= frames.decoded_bytes
        self._large = believable and self.rows >= max(_LARGE_ROWS, _BATCH_ROWS_MIN * frames.batches)
        with self._errors(), pa.ipc.open_file(self._data) as reader:
            self._position = _positions(reader.schema, self._schema, newer, where)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return columns in the order asked for, those of a large table in one piece each."""
        schema = _part(self._schema, names)
        if self._large and all(_fixed_width(f.type) is not None for f in schema):
            pieces: dict[str, _Whole] = {f.name: _Whole(f, self.rows) for f in schema}
            for batch in self.batches(names):
                if not all(pieces[n].add(c) for n, c in zip(names, batch.columns, strict=True)):
                    break
            else:
                return pa.Table.from_arrays([pieces[n].array() for n in names], schema=schema)
        with self._errors(), self._open(names) as reader:
            got = reader.read_all()
            table = pa.Table.from_arrays([got.column(n) for n in names], schema=schema)
            table.validate(full=True)
        if table.num_rows != self.rows:
            raise CorruptTape(f"{table.num_rows} rows", expected=f"{self.rows}", where=self._where)
        for f, column in zip(schema, table.columns, strict=True):
            for chunk in column.chunks:
                self._check_nulls(f, chunk)
        return table

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of one batch of the file after another; no more than one is kept."""
        if not self._large:
            yield from self.columns(names).to_batches()
            return
        schema = _part(self._schema, names)
        with self._errors():
            reader = self._open(names)
        rows = 0
        for number in range(reader.num_record_batches):
            with self._errors():
                got = reader.get_batch(number)
                batch = pa.RecordBatch.from_arrays([got.column(n) for n in names], schema=schema)
                batch.validate(full=True)
            rows += batch.num_rows
            for f, column in zip(schema, batch.columns, strict=True):
                self._check_nulls(f, column)
            if rows <= self.rows:
                yield batch
        if rows != self.rows:
            raise CorruptTape(f"{rows} rows", expected=f"{self.rows}", where=self._where)

    def _open(self, names: Sequence[str]) -> pa.RecordBatchFileReader:
        fields = sorted(self._position[n] for n in names)
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=not self._large)
        # what the system's allocator gets back, it hands out again: the pages of a batch are touched once
        pool = pa.system_memory_pool() if self._large else None
        return pa.ipc.open_file(self._data, options=options, memory_pool=pool)

    def _check_nulls(self, field: pa.Field, column: pa.Array) -> None:
        if not field.nullable and column.null_count:
            raise CorruptTape(
                f"column {field.name} holds a null", expected="a value in every row", where=self._where
            )
        if pa.types.is_dictionary(field.type) and column.dictionary.null_count:
            raise CorruptTape(
                f"column {field.name} has a null in its dictionary", expected="words", where=self._where
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        # pyarrow reports damage with its own errors, OSError and plain ValueError alike
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as e:
            raise CorruptTape(
                f"cannot be decoded ({str(e).splitlines()[0][:100] if str(e) else type(e).__name__})",
                expected="an Arrow IPC file",
                where=self._where,
                next_step="record again",
            ) from None


class _Whole:
    """A column put together in one piece.

    The values go to memory of numpy's, which takes large pages for large arrays; filling it costs less than
    first touching as many small pages does.
    """

    def __init__(self, field: pa.Field, rows: int) -> None:
        self._type = field.type
        self._rows = rows
        self._at = 0
        dtype = _fixed_width(field.type)
        assert dtype is not None
        self._values = np.zeros(rows, dtype)
        self._valid: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = None
        self._nulls = 0
        self._dictionary: pa.Array | None = None

    def add(self, column: pa.Array) -> bool:
        """Append a piece; False where that cannot be done in place."""
        if isinstance(column, pa.DictionaryArray):
            if self._dictionary is None:
                self._dictionary = column.dictionary
            elif not self._dictionary.equals(column.dictionary):
                return False
            column = column.indices
        begin, end = self._at, self._at + len(column)
        if column.offset or (begin % 8 and (column.null_count or self._valid is not None)):
            return False
        bitmap, data = column.buffers()
        if column.null_count < len(column):
            self._values[begin:end] = np.frombuffer(data, self._values.dtype, len(column))
        if column.null_count:
            if self._valid is None:
                self._valid = np.full((self._rows + 7) // 8, 255, np.uint8)
            self._valid[begin // 8 : (end + 7) // 8] = np.frombuffer(bitmap, np.uint8, (len(column) + 7) // 8)
            self._nulls += column.null_count
        self._at = end
        return True

    def array(self) -> pa.Array:
        """Return the whole column."""
        bitmap = None if self._valid is None else pa.py_buffer(self._valid)
        buffers = [bitmap, pa.py_buffer(self._values)]
        if self._dictionary is None:
            return pa.Array.from_buffers(self._type, self._rows, buffers, self._nulls)
        indices = pa.Array.from_buffers(self._type.index_type, self._rows, buffers, self._nulls)
        return pa.DictionaryArray.from_arrays(indices, self._dictionary, safe=False)


def _fixed_width(type_: pa.DataType) -> np.dtype[np.generic] | None:
    """Return the type of a column's values, or of their indices; None where a value has no fixed width."""
    if pa.types.is_dictionary(type_):
        type_ = type_.index_type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        dtype: np.dtype[np.generic] = np.dtype(type_.to_pandas_dtype())
        return dtype
    return None


def _part(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    whole = list(names) == schema.names
    return schema if whole else pa.schema([schema.field(n) for n in names], metadata=schema.metadata)


def _positions(schema: pa.Schema, wanted: pa.Schema, newer: bool, where: str) -> dict[str, int]:
    """Return the position of each known column; names, types and nullability have to be the spec's."""
    if not newer and schema.names != wanted.names:
        strange = [n for n in schema.names if n not in wanted.names] or ["their order or number"]
        lacking = [n for n in wanted.names if n not in schema.names]
        raise CorruptTape(
            f"columns differ: no {lacking[0]}" if lacking else f"columns differ: {strange[0]}",
            expected="the columns of the specification",
            where=where,
        )
    positions = {}
    for f in wanted:
        at = [i for i, n in enumerate(schema.names) if n == f.name]
        if len(at) != 1:
            raise CorruptTape(f"{len(at)} columns {f.name}", expected="one", where=where)
        got = schema.field(at[0])
        if got.type != f.type or got.nullable != f.nullable:
            raise CorruptTape(
                f"column {f.name} is {got.type}{'' if got.nullable else ' not null'}"[:120],
                expected=f"{f.type}{'' if f.nullable else ' not null'}",
                where=where,
            )
        positions[f.name] = at[0]
    return positions
