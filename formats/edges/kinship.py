"""Which ops are one, and which are part of which: collectives joined, parents and all that is above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..limits import MAX_ABOVE
from ..plain import NULL

__all__ = ["Kinship", "kinship"]


@dataclass
class Kinship:
    """The units of a tape and what they are part of.

    Attributes
    ----------
    unit : list of int
        Unit of each row: the row itself, the last member for a collective.
    members : dict
        Rows of the units that have more than one.
    parents, children : dict
        Parent units of a unit and the reverse; units without any are left out.
    above : dict
        All that a unit is part of, directly or not; units without parents are left out.
    faults : list of tuple
        (code of the broken rule, row, what is wrong); `above` is complete where there are none.
    """

    unit: list[int]
    members: dict[int, list[int]] = field(default_factory=dict)
    parents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    above: dict[int, frozenset[int]] = field(default_factory=dict)
    faults: list[tuple[str, int, str]] = field(default_factory=list)


def kinship(collectives: Sequence[int], parents: Sequence[int]) -> Kinship:
    """Return the units of a tape.

    Parameters
    ----------
    collectives : sequence of int
        Per row the sync of a collective's member, `NULL` for any other row.
    parents : sequence of int
        Per row the row of its parent, or `NULL`.
    """
    kin = Kinship(list(range(len(parents))))
    joint: dict[int, list[int]] = {}
    for row, sync in enumerate(collectives):
        if sync != NULL:
            joint.setdefault(sync, []).append(row)
    for rows in joint.values():
        if len(rows) > 1:
            kin.members[rows[-1]] = rows
            for row in rows:
                kin.unit[row] = rows[-1]
    for row, parent in enumerate(parents):
        if parent == NULL:
            continue
        child, parent_unit = kin.unit[row], kin.unit[parent]
        known = kin.parents.get(child, ())
        # A member that is the parent of another member of the same collective says nothing more.
        if parent_unit != child and parent_unit not in known:
            kin.parents[child] = (*known, parent_unit)
            kin.children.setdefault(parent_unit, []).append(child)
    _climb(kin)
    return kin


def _climb(kin: Kinship) -> None:
    """Fill in `above`, parents before children, without recursion."""
    parents, above = kin.parents, kin.above
    shared: dict[tuple[int, ...], frozenset[int]] = {}
    on_path: set[int] = set()
    for start in parents:
        path = [start]
        while path:
            unit = path[-1]
            if unit in above:
                path.pop()
                continue
            missing = [p for p in parents[unit] if p in parents and p not in above]
            if any(p in on_path for p in missing):
                kin.faults.append(("op-parent", unit, "is part of itself"))
                return
            if missing:
                on_path.add(unit)
                path += missing
                continue
            key = parents[unit]
            if key not in shared:
                shared[key] = frozenset(key).union(*(above[p] for p in key if p in above))
            above[unit] = shared[key]
            on_path.discard(unit)
            path.pop()
            if len(above[unit]) > MAX_ABOVE:
                kin.faults.append(("limit", unit, f"is part of more than {MAX_ABOVE} others"))
                return
