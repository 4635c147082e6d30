"""The tables of a tape, one module per theme; `formats.schema` puts them together."""
