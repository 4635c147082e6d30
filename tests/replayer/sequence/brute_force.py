"""The ten invariants a second time, each as a sentence about the whole past: slow, and without any state.

It shares nothing with `Judge` but the commands. Every question is answered by looking through all that was
before, so that no bookkeeping can go wrong in both in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from tapedelay.formats.sequence.commands import Command

__all__ = ["broken"]

OF_UNITS = {"alloc": 1, "share": 1, "free": 1, "launch": 2, "fill": 0, "read": 0}
"""Where the units of a command begin."""
ENDS_A_ROW = ("progress", "launch", "retire", "emit", "finish")


class Atom(NamedTuple):
    """One command about one unit at most."""

    at: int
    verb: str
    args: tuple[str, ...]
    unit: str


def atoms(commands: list[Command]) -> list[Atom]:
    """Return the commands, one atom for each of their units; one of a launch besides."""
    out = []
    for at, c in enumerate(commands, 1):
        first = OF_UNITS.get(c.verb, len(c.args))
        units = c.args[first:]
        if not units or c.verb == "launch":
            out.append(Atom(at, c.verb, c.args[:first], ""))
        out += [Atom(at, c.verb, c.args[:first], u) for u in units]
    return out


def broken(commands: list[Command]) -> list[tuple[int, str]]:
    """Return each invariant that a command breaks: (number of the command, invariant), sorted."""
    past = atoms(commands)
    found = set()
    for i, atom in enumerate(past):
        for invariant in Past(past[:i], past[: i + 1]).breaks(atom):
            found.add((atom.at, invariant))
    return sorted(found, key=lambda f: (f[0], int(f[1][1:])))


class Past:
    """Answers questions about what was before an atom."""

    def __init__(self, before: list[Atom], until: list[Atom]) -> None:
        self.before = before
        self.until = until

    def breaks(self, atom: Atom) -> list[str]:
        """Return the invariants that the atom breaks."""
        ask = getattr(self, f"of_{atom.verb}", None)
        return ask(atom) if ask else []

    # --- units ---

    def owns(self, request: str, unit: str) -> bool:
        """Whether it got the unit and has not freed it since."""
        own = [
            a.verb
            for a in self.before
            if a.unit == unit and a.verb in ("alloc", "share", "free") and a.args[0] == request
        ]
        return bool(own) and own[-1] != "free"

    def owners(self, unit: str) -> set[str]:
        got = {a.args[0] for a in self.before if a.verb in ("alloc", "share")}
        return {r for r in got if self.owns(r, unit)}

    def in_flight(self, unit: str) -> bool:
        """Whether a step that uses it was launched and has not been retired since."""
        return any(
            a.verb == "launch"
            and a.unit == unit
            and not any(b.verb == "retire" and b.args[0] == a.args[0] for b in self.before[i:])
            for i, a in enumerate(self.before)
        )

    def of_alloc(self, a: Atom) -> list[str]:
        return ["I1"] * bool(self.owners(a.unit)) + ["I2"] * self.in_flight(a.unit)

    def of_share(self, a: Atom) -> list[str]:
        return ["I1"] * self.owns(a.args[0], a.unit)

    def of_free(self, a: Atom) -> list[str]:
        if not self.owns(a.args[0], a.unit):
            return ["I1"]
        return ["I2"] * (self.owners(a.unit) == {a.args[0]} and self.in_flight(a.unit))

    def of_launch(self, a: Atom) -> list[str]:
        return ["I4"] * (a.unit != "" and not self.owns(a.args[1], a.unit))

    def of_read(self, a: Atom) -> list[str]:
        told = [b.verb for b in self.before if b.unit == a.unit and b.verb in ("alloc", "fill")]
        return ["I10"] * (told[-1:] != ["fill"])

    # --- slots ---

    def taken(self, name: str, request: str, until: list[Atom]) -> int:
        n = 0
        for a in until:
            if a.args == (name, request):
                n += {"take": 1, "give": -1}.get(a.verb, 0)
                n = max(n, 0)
        return n

    def of_take(self, a: Atom) -> list[str]:
        caps = [int(b.args[1]) for b in self.before if b.verb == "cap" and b.args[0] == a.args[0]]
        requests = {b.args[1] for b in self.until if b.verb == "take"}
        now = sum(self.taken(a.args[0], r, self.until) for r in requests)
        return ["I9"] * (bool(caps) and now > caps[-1])

    def of_give(self, a: Atom) -> list[str]:
        return ["I1"] * (self.taken(a.args[0], a.args[1], self.before) == 0)

    def of_idle(self, a: Atom) -> list[str]:
        units = {b.unit for b in self.before if b.unit}
        slots = {b.args for b in self.before if b.verb == "take"}
        held = any(self.owners(u) for u in units) or any(
            self.taken(name, r, self.before) for name, r in slots
        )
        return ["I3"] * held

    # --- counters and mailboxes ---

    def of_dec(self, a: Atom) -> list[str]:
        sign = {"inc": 1, "dec": -1}
        total = sum(
            sign.get(b.verb, 0) * int(b.args[1])
            for b in self.until
            if b.args[:1] == a.args[:1] and b.verb in sign
        )
        return ["I7"] * (total < 0)

    def unread(self, box: str) -> str | None:
        told = [b for b in self.before if b.verb in ("put", "get") and b.args[0] == box]
        return told[-1].args[1] if told and told[-1].verb == "put" else None

    def of_put(self, a: Atom) -> list[str]:
        return ["I6"] * (self.unread(a.args[0]) is not None)

    def of_get(self, a: Atom) -> list[str]:
        return ["I6"] * (self.unread(a.args[0]) != a.args[1])

    # --- requests ---

    def of_emit(self, a: Atom) -> list[str]:
        told = [b.verb for b in self.before if b.verb in ("arrive", "abort") and b.args == a.args]
        return ["I8"] * (told[-1:] == ["abort"])

    def waits(self, until: int) -> bool:
        """Whether any request lived after so many atoms."""
        verbs = ("arrive", "abort", "finish", "schedule", "preempt", "resume")
        told: dict[str, list[str]] = {}
        for b in self.until[:until]:
            if b.verb in verbs:
                told.setdefault(b.args[0], []).append(b.verb)
        for own in told.values():
            fate = [v for v in own if v in ("arrive", "abort", "finish")]
            if not fate or fate[-1] == "arrive":
                return True
        return False

    def of_pass(self, a: Atom) -> list[str]:
        row = 0
        for i in range(len(self.until) - 1, -1, -1):
            verb = self.until[i].verb
            if verb in ENDS_A_ROW or (verb == "pass" and not self.waits(i)):
                break
            row += verb == "pass"
        return ["I5"] * (row == 3)
