"""What would hide a finding: the debugging switches that order its two ops, and a delay of one of them.

Nothing is guessed. For each switch that concerns a device of the tape, one pass over the tape with the edges
of that switch tells which pairs it orders. Without findings there is no pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...formats.edges import Added, added_by_switches
from ...formats.errors import InvalidTape, Unsupported
from ...formats.plain import flags, flat, ids, words
from ...formats.schema import OP_KINDS
from ...formats.switches import BACKENDS, SWITCHES, TABLE, Switch, family
from ...formats.tape import Tape
from .. import _core
from ..columns import core_tape
from .delaying import DelayLines
from .findings import Group, Hider, Report
from .roles import roles

__all__ = ["Hiding", "candidates", "hidden_text"]

FIRST, SECOND = 1, 2
"""Answers of the native `ordered`: the first before the second, and the other way around."""

_USED_PAST = ("use-after-free", "use-after-destroy")
_NEVER = ("double-free", "deadlock")

_Suppose = tuple[tuple[str, str], ...]


def candidates(tape: Tape) -> list[tuple[Hider, dict[str, str]]]:
    """Return the settings of switches that add edges to a tape, with the states to suppose.

    A setting is left out where the tape was recorded under it, or it is the default and the tape says nothing
    else.
    """
    devices = flat(tape.table("devices"))
    columns = [words(devices, c) for c in ("name", "kind", "profile")]
    known = [family(str(n), str(k), str(p)) for n, k, p in zip(*columns, strict=True)]
    real = {backend for backend, played in known if backend and not played}
    played = {backend for backend, plays in known if backend and plays}
    if "test" in columns[1]:
        real.add("test")
    said = tape.manifest.switches
    base = added_by_switches(tape)
    facts = _Facts(tape)
    out: list[tuple[Hider, dict[str, str]]] = []
    for switch in SWITCHES:
        here = real & set(switch.backends)
        only_played = played & set(switch.backends) - real
        if not switch.offered or not (here or only_played):
            continue
        now = said.get(switch.name, switch.default) if here else switch.default
        seen: list[list[Added]] = [base]
        for state, effects in switch.effects.items():
            for needs in dict.fromkeys(e.needs for e in effects):
                suppose = dict(needs) | {switch.name: state}
                if not needs and state == now:
                    continue
                added = added_by_switches(tape, suppose)
                if not all(facts.matter(known, added) for known in seen):
                    continue  # no edge beyond those of another state
                seen.append(added)
                out.append((_hider(switch, state, needs, only_played if not here else set()), suppose))
    return out


def _hider(switch: Switch, state: str, needs: _Suppose, played: set[str]) -> Hider:
    return Hider(
        switch=switch.name,
        state=state,
        setting=switch.setting(state),
        others=tuple(TABLE[n].setting(s) for n, s in needs),
        backend=" or ".join(BACKENDS[b] for b in sorted(played)),
    )


class _Facts:
    """What of the contract's vocabulary can matter on a tape at all."""

    def __init__(self, tape: Tape) -> None:
        queues = flat(tape.table("queues"))
        self._device = np.array(ids(queues, "device"), np.int64)
        host = np.array([k == "host_thread" for k in words(queues, "kind")], np.bool_)
        loose = ~(np.array(flags(queues, "in_order"), np.bool_) | host)
        self._loose = set(self._device[loose].tolist())
        ops = tape.columns("ops", ["kind", "queue", "parent"])
        self._kinds: dict[int, int] = {}
        self.parts = ops.column("parent").null_count < len(ops)
        table = flat(ops)
        queue = np.array(ids(table, "queue"), np.int64)
        column = table.column("kind")
        kinds = column.chunk(0) if column.num_chunks else None
        self.collectives = False
        if kinds is None or not len(queue):
            return
        codes = kinds.indices.to_numpy(zero_copy_only=False)
        names = kinds.dictionary.to_pylist()
        for key in np.unique(self._device[queue] * len(names) + codes).tolist():
            device, code = divmod(key, len(names))
            if names[code] in OP_KINDS:
                self._kinds[device] = self._kinds.get(device, 0) | 1 << OP_KINDS.index(names[code])
                self.collectives |= names[code] == "coll"

    def matter(self, base: Sequence[Added], added: Sequence[Added]) -> bool:
        """Whether what is added beyond `base` can add an edge."""
        for device, (old, new) in enumerate(zip(base, added, strict=True)):
            kinds = self._kinds.get(device, 0)
            if (new.blocks & ~old.blocks | new.drains & ~old.drains) & kinds:
                return True
            if new.block_copies & ~old.block_copies and kinds >> OP_KINDS.index("copy") & 1:
                return True
            if new.in_order & ~old.in_order & kinds and device in self._loose:
                return True
            if new.launch_in_order & ~old.launch_in_order & kinds and self.parts:
                return True
            if new.collective_waits and not old.collective_waits and self.collectives:
                return True
        return False


class Hiding:
    """Collects the pairs of a report and says at the end what would hide each of them."""

    def __init__(self, tape: Tape, core: _core.Tape) -> None:
        self._tape = tape
        self._core = core
        self._first, self._second, self._group = array("i"), array("i"), array("i")
        self._groups: list[Group] = []
        self._numbers: dict[int, int] = {}
        self._of_finding: list[int] = []
        self._reversed: list[bool] = []
        self._past: list[bool] = []
        self._never: list[bool] = []

    def add(self, group: Group, first: int, second: int, *, listed: bool) -> None:
        """Note two rows; `listed`: the report holds a finding about them, the last one."""
        number = self._numbers.get(id(group))
        if number is None:
            number = self._numbers[id(group)] = len(self._groups)
            self._groups.append(group)
            finding = group.example
            late, _ = roles(finding, (0, 1))
            self._reversed.append(late == 1)
            self._past.append(finding.fault in _USED_PAST)
            self._never.append(finding.fault in _NEVER)
        if listed:
            self._of_finding.append(len(self._first))
        self._first.append(first)
        self._second.append(second)
        self._group.append(number)

    def none(self) -> None:
        """Note that the report's last finding is about no pair."""
        self._of_finding.append(-1)

    def finish(self, report: Report) -> None:
        """Put into the report's findings and groups what hides them."""
        if not self._first:
            return
        hiders, hidden = self._switches()
        delays = DelayLines(self._tape)
        examples = {id(g.example): g for g in self._groups}
        for place, (finding, pair) in enumerate(zip(report.findings, self._of_finding, strict=True)):
            if pair < 0:
                continue
            group = examples.get(id(finding))
            mine = tuple(h for h, column in zip(hiders, hidden, strict=True) if column[pair])
            hides, shows = delays.of_finding(finding, self.rows(pair), lasting=group is not None)
            told = replace(finding, hidden_by=_simplest(mine), delay_hides=hides, delay_shows=shows)
            report.findings[place] = told
            if group is not None:
                group.example = told
        of_group = np.asarray(self._group)
        always = np.ones((len(hiders), len(self._groups)), np.bool_)
        for row, column in zip(always, hidden, strict=True):
            np.logical_and.at(row, of_group, column)
        for number, group in enumerate(self._groups):
            mine = tuple(h for h, row in zip(hiders, always, strict=True) if row[number])
            group.hidden_by = _simplest(mine)
            if group.count == 1:
                one = group.example
                group.delays_hide, group.delays_show = (
                    tuple(filter(None, (line,))) for line in (one.delay_hides, one.delay_shows)
                )
            else:
                at = of_group == number
                group.delays_hide, group.delays_show = delays.of_kind(
                    group.example, np.asarray(self._first)[at], np.asarray(self._second)[at]
                )

    def rows(self, pair: int) -> tuple[int, int]:
        """Return the two rows of a pair."""
        return self._first[pair], self._second[pair]

    # --- switches ---

    def _switches(self) -> tuple[list[Hider], list[npt.NDArray[np.bool_]]]:
        """Return the switches that hide anything, and per pair whether they do."""
        first, second = np.asarray(self._first, np.int32), np.asarray(self._second, np.int32)
        group = np.asarray(self._group)
        turned, past = np.asarray(self._reversed)[group], np.asarray(self._past)[group]
        race = np.array([g.example.kind == "race" for g in self._groups])[group]
        possible = ~np.asarray(self._never)[group]
        stuck = set(self._core.stuck()[0])
        asked = candidates(self._tape)
        if asked and past.any():  # used after its end in any case: no order helps
            possible &= ~(past & (_core.ordered(self._core, first, second) == FIRST))
        known: dict[tuple[object, ...], npt.NDArray[np.uint8] | None] = {}
        hiders, hidden = [], []
        for hider, suppose in asked:
            key = tuple(map(repr, added_by_switches(self._tape, suppose)))
            if key not in known:
                known[key] = self._ordered(first, second, suppose, stuck)
            found = known[key]
            if found is None:
                continue
            wanted = np.where(race, FIRST | SECOND, np.where(turned, SECOND, FIRST))
            column: npt.NDArray[np.bool_] = possible & ((found & wanted) != 0)
            if column.any():
                hiders.append(hider)
                hidden.append(column)
        return hiders, hidden

    def _ordered(
        self,
        first: npt.NDArray[np.int32],
        second: npt.NDArray[np.int32],
        suppose: Mapping[str, str],
        stuck: set[int],
    ) -> npt.NDArray[np.uint8] | None:
        try:
            core = core_tape(self._tape, times=False, suppose=suppose)
            if set(core.stuck()[0]) - stuck:  # under this switch the schedule could not have run
                return None
            return _core.ordered(core, first, second)
        except (InvalidTape, Unsupported):  # more edges than a pass takes
            return None


def _simplest(hiders: tuple[Hider, ...]) -> tuple[Hider, ...]:
    """Leave out settings that need others, where the same switch does without."""
    alone = {h.switch for h in hiders if not h.others}
    return tuple(h for h in hiders if not h.others or h.switch not in alone)


def hidden_text(hiders: Sequence[Hider]) -> str:
    """Return the switches in words, those of one real backend together; empty where there are none."""
    by_backend: dict[str, list[str]] = {}
    for h in hiders:
        by_backend.setdefault(h.backend, []).append(h.text())
    return "; ".join(
        " or ".join(texts) + (f" on a real {backend} backend" if backend else "")
        for backend, texts in by_backend.items()
    )
