"""Check a tape against the invariants of the specification.

`RULES` names them; ``formats/SPEC.md`` lists the same codes. What is checked while reading (checksums,
schema, nulls) is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .columns import Bools, Columns
from .errors import InvalidTape
from .limits import MAX_ABOVE, MAX_BUFFER_DEPTH, MAX_QUEUES
from .schema import SCHEMAS
from .tape import Tape

__all__ = ["RULES", "Findings", "Violation", "require_valid", "validate"]

RULES: dict[str, str] = {
    "id": "keys count from 0 without gaps; op ids start at 0 or above and strictly increase",
    "ref": "a reference names a row that exists",
    "word": "an enumeration column holds a word of the specification",
    "negative": "sizes, lengths, counts, durations and times are not negative",
    "set-order": "access sets: ids from 1, increasing, rows of a set adjacent, `seq` counted from 0",
    "set-ref": "`ops.access_set` is null, 0, or a set that has rows",
    "list-order": "lists: ids from 0, increasing, rows of a list adjacent",
    "list-ref": "`ops.list` is null or a list that has rows",
    "access-range": "an access lies inside its buffer, for every `arg` and unit that an op uses it with "
    "(0 where no op uses it)",
    "access-arg": "an op whose set grows has an `arg`; one whose set repeats per unit has a `list`",
    "buffer-parent": "a parent has a lower id and the same device; `parent_offset` is set exactly when there "
    "is a parent; the range lies inside it; only roots have a `shared_key`",
    "buffer-life": "`alloc_op` and `free_op` are ops of that kind whose target is the buffer, in that order; "
    "an alloc or free that names a buffer is named by it (of two frees, the first)",
    "queue-host": "host threads belong to a device of kind host; issuers are host threads; a sync stands on "
    "the queue of a host thread",
    "op-parent": "a parent is an earlier op, and no op is part of itself, the members of a collective taken "
    "as one (a parent in the same collective counts for nothing)",
    "sync-missing": "record, wait, semsig, semwait and coll name a sync",
    "sync-of": "`sync_of` stands on waits only and names an earlier record of the same sync",
    "wait-state": "`wait_state` stands only on waits whose `sync_of` is null",
    "wait-any": "a wait_any has a list, and its units are sync ids",
    "target": "sync has a `target_kind`, and a target unless it is `all`; the target exists; targets stand "
    "on sync, alloc and free only",
    "value": "`value` stands on semsig and semwait only",
    "time-order": "`issue_ns` does not decrease among the ops of one issuer",
    "edge": "an edge joins two different ops",
    "coverage": "manifest.coverage names each queue at most once, with words of the specification",
    "process": "manifest.processes counts from 0, and processes named elsewhere are in it",
    "profile": "a device's profile is in manifest.profiles or built in",
    "counts": "manifest.complete holds only if every process is complete; manifest.lost covers every process",
    "node": "nodes of a graph are adjacent and count from 0 to n_nodes + n_leafs - 1; sources lie inside or "
    "are -1",
    "delay": "applied delays stand in issue order; where there are any, the manifest has their plan, whose "
    "lines count up",
    "private": "the manifest holds no paths; a scheduler's config is one JSON object of numbers, booleans "
    "and words (letters, digits and `_.+,-`), and flags, pool names and words of inputs are such words",
    "input": "each kind of input has the columns that it needs and no other kind's; an abort names somebody; "
    "a request is submitted at most once",
    "step": "steps of a scheduler count up; an output answers an earlier step that no other one answers",
    "scheduler": "requests and pools are those of the scheduler that the input reached",
    "event": "answers hang on outputs; prefill, decode, skip and order hang on steps; prefill and decode "
    "have `tokens` and `computed_tokens`, emit has `tokens` alone, skip and order have neither",
    "event-order": "answers, decisions, blocks and resources stand in the order of their inputs, and no two "
    "events of an input have one `seq`",
    "prefix": "a prefix is a range of another request of the same scheduler",
    "unit": "a unit lies in its pool; no more units are reserved than a pool has",
    "limit": f"at most {MAX_QUEUES:,} queues; an op is part of at most {MAX_ABOVE} others (its parent, that "
    f"one's parent, ...; a collective of those of all members), a buffer of at most {MAX_BUFFER_DEPTH}",
}

PER_RULE_MAX = 100


@dataclass(frozen=True)
class Violation:
    """One broken invariant.

    Attributes
    ----------
    code : str
        Key of `RULES`.
    table : str
        Table, or ``manifest``.
    row : int or None
        Row number in that table.
    message : str
        What is wrong, in words.
    """

    code: str
    table: str
    row: int | None
    message: str

    def text(self) -> str:
        """Return one line."""
        where = self.table if self.row is None else f"{self.table}{{{self.row}}}"
        return f"{self.code}: {where}: {self.message}"


class Findings:
    """Collects violations, at most `PER_RULE_MAX` per rule and table."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._seen: dict[tuple[str, str], int] = {}

    def add(self, code: str, table: str, row: int | None, message: str) -> None:
        """Add one violation."""
        n = self._seen[code, table] = self._seen.get((code, table), 0) + 1
        if n <= PER_RULE_MAX:
            self.violations.append(Violation(code, table, row, message))

    def rows(self, code: str, table: str, bad: Bools, message: str | Callable[[int], str]) -> None:
        """Add one violation for each row of a mask."""
        rows = np.flatnonzero(bad)
        for row in rows[:PER_RULE_MAX].tolist():
            self.add(code, table, row, message if isinstance(message, str) else message(row))
        more = len(rows) - PER_RULE_MAX
        if more > 0:
            self._seen[code, table] = self._seen.get((code, table), 0) + more

    def finish(self) -> list[Violation]:
        """Return all, with a line for those that were only counted."""
        for (code, table), n in self._seen.items():
            if n > PER_RULE_MAX:
                self.violations.append(
                    Violation(code, table, None, f"and {n - PER_RULE_MAX} more of this kind")
                )
        order = list(RULES)
        return sorted(self.violations, key=lambda v: order.index(v.code))


def validate(tape: Tape) -> list[Violation]:
    """Check every invariant.

    Returns
    -------
    list of Violation
        Empty for a valid tape; ordered by rule.

    Raises
    ------
    CorruptTape
        A table cannot be read.
    """
    from .rules import ALL_RULES, SURVEYED

    found = Findings()
    tables = {}
    for name, schema in SCHEMAS.items():
        tape.columns(name, [n for n in schema.names if name != "ops" or n not in SURVEYED])
        tables[name] = Columns.of(tape, name)
    for rule in ALL_RULES:
        rule(found, tape, tables)
    return found.finish()


def require_valid(tape: Tape) -> None:
    """Raise when an invariant does not hold.

    Raises
    ------
    InvalidTape
        Names the first violation and how many there are.
    """
    violations = validate(tape)
    if violations:
        first = violations[0]
        raise InvalidTape(
            f"{first.text()}" + (f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""),
            expected=RULES[first.code],
            where=tape.where,
            next_step="see all with: tapedelay info --validate",
        )
