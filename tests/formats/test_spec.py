"""``SPEC.md`` says what the code says, and the code does what ``SPEC.md`` says."""

from __future__ import annotations

import re

import pyarrow as pa

from tapedelay.formats.manifest import MANIFEST_BYTES_MAX, TableEntry, manifest_to_json
from tapedelay.formats.read import LIMITS
from tapedelay.formats.schema import FORMAT_READ, FORMAT_WRITE, REQUIRED, TABLES
from tapedelay.formats.spec_tables import SPEC, updated
from tapedelay.formats.tape import Coverage, DelayLine, Manifest
from tapedelay.formats.validate import RULES
from tapedelay.formats.write import BATCH_ROWS

TEXT = SPEC.read_text(encoding="utf-8")


def test_generated_parts_are_current() -> None:
    assert updated(TEXT) == TEXT, "run: python -m tapedelay.formats.spec_tables"
    assert TEXT.count("<!-- generated:") == 3


def parsed() -> dict[str, list[list[str]]]:
    """Return the tables of section 4 as they stand in the text."""
    section = TEXT[TEXT.index("\n## 4.") : TEXT.index("### Buffers and memory")]
    tables: dict[str, list[list[str]]] = {}
    for part in section.split("\n### ")[1:]:
        name = part.split("\n", 1)[0]
        rows = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| ")]
        tables[name] = [[cell.strip() for cell in r] for r in rows[1:]]
    return tables


def test_tables_column_for_column() -> None:
    """Compared cell by cell with another reading of the schema: the generator cannot hide a column."""
    tables = parsed()
    assert list(tables) == list(TABLES)
    for name, spec in TABLES.items():
        assert [r[0] for r in tables[name]] == [c.name for c in spec.columns]
        for (_, kind, unit, null, meaning), c in zip(tables[name], spec.columns, strict=True):
            wanted = str(c.type)
            if pa.types.is_dictionary(c.type):
                wanted = f"dictionary<{c.type.index_type}, string>"
            elif pa.types.is_list(c.type):
                wanted = f"list<{c.type.value_type}>"
            assert kind == wanted
            assert unit == (c.unit or "-")
            assert null == ("yes" if c.nullable else "no")
            assert meaning.startswith(c.doc)
            assert all(f"`{w}`" in meaning for w in c.words)


def test_units_stand_in_names() -> None:
    for spec in TABLES.values():
        for c in spec.columns:
            assert c.doc
            if c.unit == "ns":
                assert c.name.endswith("_ns"), c.name
            if c.name.endswith("_ns"):
                assert c.unit == "ns", c.name


def test_rules_and_limits() -> None:
    rules = TEXT[TEXT.index("## 6.") : TEXT.index("## 7.")]
    assert re.findall(r"^- `([a-z-]+)`:", rules, re.MULTILINE) == list(RULES)
    assert f"at most {BATCH_ROWS:,} rows" in TEXT
    assert f"at most {MANIFEST_BYTES_MAX >> 20} MiB" in TEXT
    words = " ".join(TEXT.split())
    assert (LIMITS.rows, LIMITS.decoded_bytes) == (1 << 31, 8 << 30)
    assert "more than 2^31 rows in a table" in words
    assert "more than 8 GiB decoded in all" in words
    assert f"more than {LIMITS.rows_per_byte} per byte of its file plus {LIMITS.slack_rows:,}" in words
    assert f"{LIMITS.ratio} times its file plus {LIMITS.slack_bytes >> 20} MiB" in words
    assert f"more than {LIMITS.slack_total_bytes >> 20} MiB of such slack" in words
    assert f"This text is write version {FORMAT_WRITE}, read version {FORMAT_READ}." in TEXT
    for name in REQUIRED:
        assert "Every tape has it." in TEXT.split(f"\n### {name}\n")[1].split("\n### ")[0]


def test_manifest_keys() -> None:
    import json

    section = TEXT[TEXT.index("## 2.") : TEXT.index("## 3.")]
    entry = TableEntry("ops", 0, 0, 0, "0" * 64)
    delays = (DelayLine(1, "every op +1us", 1),)
    manifest = Manifest(coverage=(Coverage(0),), dropped=1, delays=delays)
    obj = json.loads(manifest_to_json(manifest, [entry]))
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(obj)
    for part in ("processes", "coverage", "tables"):
        line = next(x for x in section.splitlines() if x.startswith(f"| `{part}`"))
        assert set(obj[part][0]) <= set(re.findall(r"`(\w+)`", line))
