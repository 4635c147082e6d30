"""What a table is made of: columns with their Arrow types, units and meanings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["Column", "Table", "enum", "id_column", "int_column", "name_column"]

ENUM = pa.dictionary(pa.int8(), pa.string())
NAME = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, unit, nullability, meaning and, for enumerations, the words allowed."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False
    words: tuple[str, ...] = ()

    def field(self) -> pa.Field:
        """Return the Arrow field with ``unit`` and ``doc`` metadata."""
        metadata = {"doc": self.doc}
        if self.unit:
            metadata["unit"] = self.unit
        if self.words:
            metadata["words"] = ",".join(self.words)
        return pa.field(self.name, self.type, nullable=self.nullable, metadata=metadata)


@dataclass(frozen=True)
class Table:
    """One table: its columns, its key, and which columns refer to which table's key."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: str | None = None
    refs: tuple[tuple[str, str], ...] = ()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return pa.schema([c.field() for c in self.columns], metadata={"doc": self.doc})


def enum(name: str, words: Iterable[str], doc: str, *, nullable: bool = False) -> Column:
    """Return an enumeration column."""
    return Column(name, ENUM, doc, nullable=nullable, words=tuple(words))


def id_column(name: str, doc: str, type_: pa.DataType | None = None, *, nullable: bool = False) -> Column:
    """Return a column of ids."""
    return Column(name, type_ or pa.int32(), doc, nullable=nullable)


def int_column(name: str, doc: str, unit: str = "", *, nullable: bool = False) -> Column:
    """Return a column of numbers, with their unit."""
    return Column(name, pa.int64(), doc, unit=unit, nullable=nullable)


def name_column(name: str, doc: str, *, nullable: bool = False) -> Column:
    """Return a column of names."""
    return Column(name, NAME, doc, nullable=nullable)
