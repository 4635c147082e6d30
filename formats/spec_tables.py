"""The generated parts of ``SPEC.md``: tables, vocabularies and rules, from the code that defines them.

``python -m tapedelay.formats.spec_tables`` rewrites the file; a test compares it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from .schema import REQUIRED, TABLES, Table
from .switches import BACKENDS, SWITCHES, Effect
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
    """Return the text of a generated part: ``tables``, ``rules`` or ``switches``."""
    if part == "tables":
        return "\n".join(line for t in TABLES.values() for line in _table(t))
    if part == "switches":
        return "\n".join(_switches())
    return "\n".join(f"- `{code}`: {text}" for code, text in RULES.items()) + "\n"


def _switches() -> list[str]:
    lines = [
        "| variable | concerns | what it does | states (first: not set) and what each adds |",
        "|---|---|---|---|",
    ]
    for s in SWITCHES:
        states = [s.default, *(w for w in s.states if w != s.default)]
        adds = "; ".join(
            f"`{w}`" + (": " + ", ".join(map(_effect, s.effects[w])) if w in s.effects else "")
            for w in states
        )
        if s.reason:
            adds += f". No order: {s.reason}"
        if s.weakens:
            adds += f". Takes away: {s.weakens}"
        devices = ", ".join(BACKENDS[b] for b in s.backends) or "-"
        lines.append(f"| `{s.name}` | {devices} | {s.doc} ({s.source}) | {adds} |")
    return [*lines, ""]


def _effect(e: Effect) -> str:
    kinds = " ".join(e.directions or ()) + (" " if e.directions else "")
    kinds += "any kind" if len(e.kinds) > 8 else " ".join(e.kinds)
    text = f"{e.rule} ({kinds})" if kinds else e.rule
    return text + "".join(f" where {n} is `{w}`" for n, w in e.needs)


def updated(text: str) -> str:
    """Return the specification with its generated parts as they should be."""
    return _PART.sub(lambda m: f"{m[1]}{generated(m[2])}{m[3]}", text)


def main() -> None:
    """Rewrite ``SPEC.md``."""
    SPEC.write_text(updated(SPEC.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
