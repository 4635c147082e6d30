"""The generated parts of ``SPEC.md``: tables, vocabularies and rules, from the code that defines them.

``python -m tapedelay.formats.spec_tables`` rewrites the file; a test compares it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from .schema import REQUIRED, TABLES, Table
from .validate import RULES

__all__ = ["SPEC", "generated", "main", "updated"]

SPEC = Path(__file__).with_name("SPEC.md")
_PART = re.compile(r"(<!-- generated:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _type(t: pa.DataType) -> str:
    if pa.types.is_dictionary(t):
        return f"dictionary<{t.index_type}, {t.value_type}>"
    return f"list<{t.value_type}>" if pa.types.is_list(t) else str(t)


def _table(t: Table) -> list[str]:
    refs = dict(t.refs)
    lines = [
        f"### {t.name}",
        "",
        t.doc
        + (" Every tape has it." if t.name in REQUIRED else "")
        + (f" Key: `{t.key}`." if t.key else ""),
        "",
        "| column | type | unit | null | meaning |",
        "|---|---|---|---|---|",
    ]
    for c in t.columns:
        doc = c.doc.replace("|", "\\|")
        if c.name in refs:
            doc += f" → {refs[c.name]}"
        if c.words:
            doc += ". One of " + ", ".join(f"`{w}`" for w in c.words)
        lines.append(
            f"| {c.name} | {_type(c.type)} | {c.unit or '-'} | {'yes' if c.nullable else 'no'} | {doc} |"
        )
    return [*lines, ""]


def generated(part: str) -> str:
    """Return the text of a generated part: ``tables`` or ``rules``."""
    if part == "tables":
        return "\n".join(line for t in TABLES.values() for line in _table(t))
    return "\n".join(f"- `{code}`: {text}" for code, text in RULES.items()) + "\n"


def updated(text: str) -> str:
    """Return the specification with its generated parts as they should be."""
    return _PART.sub(lambda m: f"{m[1]}{generated(m[2])}{m[3]}", text)


def main() -> None:
    """Rewrite ``SPEC.md``."""
    SPEC.write_text(updated(SPEC.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
