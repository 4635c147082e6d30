"""The ten invariants of a request scheduler, checked command by command.

One checker for litmus files, tapes and reruns. Each invariant is judged by itself: one command may break
several, and breaks each at most once. What a command says is believed afterwards, so that one mistake is
not reported again at every later command. ``formats/LITMUS.md`` says what each command means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import groupby, islice

from ...formats.errors import UsageError
from ...formats.sequence import INVARIANTS, Command
from ...formats.sequence.commands import problem
from .violation import Violation

__all__ = ["Judge", "judge"]

_SHOWN = 8
_NAMES = 32
"""Names in the words of a violation, and beside them."""

_PASSES = 3


class Judge:
    """Checks a stream of commands.

    Memory grows with the units that are held or in flight and with the requests seen, not with the number
    of commands.

    Attributes
    ----------
    count : int
        Commands seen so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._owners: dict[str, dict[str, None]] = {}
        self._filled: set[str] = set()
        self._steps: dict[str, list[str]] = {}
        self._uses: dict[str, dict[str, int]] = {}
        self._counters: dict[str, int] = {}
        self._mail: dict[str, str] = {}
        self._capacity: dict[str, int] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._takes: dict[str, int] = {}
        self._live: dict[str, None] = {}
        self._ended: set[str] = set()
        self._aborted: set[str] = set()
        self._passes = 0
        self._found: list[Violation] = []
        self._do: dict[str, Callable[[tuple[str, ...]], None]] = {
            "arrive": self._arrive, "schedule": self._known, "preempt": self._known, "resume": self._known,
            "abort": self._abort, "finish": self._finish, "alloc": self._alloc, "share": self._share,
            "free": self._free, "launch": self._launch, "retire": self._retire, "inc": self._inc,
            "dec": self._dec, "put": self._put, "get": self._get, "emit": self._emit, "cap": self._cap,
            "take": self._take, "give": self._give, "fill": self._fill, "read": self._read,
            "note": self._note, "pass": self._pass, "progress": self._progress, "idle": self._idle,
        }  # fmt: skip

    def feed(self, command: Command) -> list[Violation]:
        """Take the next command.

        Returns
        -------
        list of Violation
            What it breaks, by number of the invariant; usually nothing.

        Raises
        ------
        UsageError
            It is no well-formed command.
        """
        do = self._do.get(command.verb)
        if do is None:
            raise _malformed(command)
        self.count += 1
        try:
            do(command.args)
        except (ValueError, IndexError):
            raise _malformed(command) from None
        if not self._found:
            return []
        found, self._found = self._found, []
        return sorted(found, key=lambda v: int(v.invariant[1:]))

    def held(self) -> dict[str, tuple[str, ...]]:
        """Return the units that have owners, and who they are, sorted."""
        return {unit: tuple(sorted(owners)) for unit, owners in self._owners.items()}

    def in_flight(self) -> dict[str, tuple[str, ...]]:
        """Return the steps and transfers in flight, and the units that each uses."""
        return {step: tuple(dict.fromkeys(units)) for step, units in self._steps.items()}

    # --- requests ---

    def _arrive(self, args: tuple[str, ...]) -> None:
        (request,) = args
        self._ended.discard(request)
        self._aborted.discard(request)
        self._live[request] = None

    def _known(self, args: tuple[str, ...]) -> None:
        (request,) = args
        if request not in self._ended:
            self._live[request] = None

    def _end(self, request: str) -> None:
        self._live.pop(request, None)
        self._ended.add(request)

    def _abort(self, args: tuple[str, ...]) -> None:
        (request,) = args
        self._end(request)
        self._aborted.add(request)

    def _finish(self, args: tuple[str, ...]) -> None:
        (request,) = args
        self._end(request)
        self._passes = 0

    def _emit(self, args: tuple[str, ...]) -> None:
        (request,) = args
        self._passes = 0
        if request in self._aborted:
            self._say(
                "I8", "shown after the abort", f"output of {request} is shown after its abort", [request]
            )

    # --- units ---

    def _alloc(self, args: tuple[str, ...]) -> None:
        request, *units = args
        owned, used = _Few(), _Few()
        for unit in units:
            owners = self._owners.get(unit)
            if owners is None:
                self._owners[unit] = {request: None}
            else:
                owned.add(unit, "owned by", owners)
                owners[request] = None
            if unit in self._uses:
                used.add(unit, "in flight in", self._uses[unit])
            self._filled.discard(unit)
        if owned.count:
            self._say("I1", "handed out while owned", f"{owned.text()} handed out to {request}", owned.names)
        if used.count:
            self._say(
                "I2", "handed out while in flight", f"{used.text()} handed out to {request}", used.names
            )

    def _share(self, args: tuple[str, ...]) -> None:
        request, *units = args
        again = _Few()
        for unit in units:
            owners = self._owners.setdefault(unit, {})
            if request in owners:
                again.add(unit)
            owners[request] = None
        if again.count:
            words = f"{request} shares {again.text()}, which it owns already"
            self._say("I1", "shared by its owner", words, again.names)

    def _free(self, args: tuple[str, ...]) -> None:
        request, *units = args
        twice, foreign, used = _Few(), _Few(), _Few()
        for unit in units:
            owners = self._owners.get(unit)
            if owners is None:
                twice.add(unit)
            elif request not in owners:
                foreign.add(unit, "owned by", owners)
            else:
                del owners[request]
                if not owners:  # it goes back: from here on it can be handed out
                    del self._owners[unit]
                    if unit in self._uses:
                        used.add(unit, "in flight in", self._uses[unit])
        if twice.count or foreign.count:
            parts = [f"{twice.text()}, which nobody owns"] if twice.count else []
            parts += [foreign.text()] if foreign.count else []
            what = "freed while free" if twice.count else "freed by one that does not own it"
            self._say("I1", what, f"{request} frees {' and '.join(parts)}", twice.names + foreign.names)
        if used.count:
            self._say("I2", "freed while in flight", f"{request} frees {used.text()}", used.names)

    def _fill(self, args: tuple[str, ...]) -> None:
        self._filled.update(_some(args))

    def _read(self, args: tuple[str, ...]) -> None:
        empty = _Few()
        for unit in _some(args):
            if unit not in self._filled:
                empty.add(unit)
        if empty.count:
            words = f"{empty.text()} read, never filled since it was handed out"
            self._say("I10", "read before it was filled", words, empty.names)

    # --- steps and transfers ---

    def _launch(self, args: tuple[str, ...]) -> None:
        step, request, *units = args
        self._passes = 0
        foreign = _Few()
        mine = self._steps.setdefault(step, [])
        for unit in units:
            owners = self._owners.get(unit, {})
            if request not in owners:
                foreign.add(unit, "owned by", owners or ("nobody",))
            uses = self._uses.setdefault(unit, {})
            uses[step] = uses.get(step, 0) + 1
            mine.append(unit)
        if foreign.count:
            words = f"{step} uses {foreign.text()} for {request}"
            self._say("I4", "a step uses what its request does not own", words, foreign.names)

    def _retire(self, args: tuple[str, ...]) -> None:
        (step,) = args
        self._passes = 0
        for unit in self._steps.pop(step, ()):
            uses = self._uses[unit]
            uses[step] -= 1
            if not uses[step]:
                del uses[step]
                if not uses:
                    del self._uses[unit]

    # --- counters, mailboxes, capacities ---

    def _inc(self, args: tuple[str, ...]) -> None:
        name, n = args
        self._counters[name] = self._counters.get(name, 0) + int(n)

    def _dec(self, args: tuple[str, ...]) -> None:
        name, n = args
        value = self._counters[name] = self._counters.get(name, 0) - int(n)
        if value < 0:
            self._say("I7", "negative", f"counter {name} becomes {value}", [name])

    def _put(self, args: tuple[str, ...]) -> None:
        box, message = args
        unread = self._mail.get(box)
        self._mail[box] = message
        if unread is not None:
            words = f"message {message} in mailbox {box} overwrites {unread}, which nobody has read"
            self._say("I6", "overwritten unread", words, [box])

    def _get(self, args: tuple[str, ...]) -> None:
        box, owner = args
        message = self._mail.pop(box, None)
        if message is None:
            words = f"{owner} reads mailbox {box}, which holds no message"
            self._say("I6", "read though empty", words, [box])
        elif message != owner:
            words = f"{owner} reads the message of {message} from mailbox {box}"
            self._say("I6", "read by another", words, [box])

    def _cap(self, args: tuple[str, ...]) -> None:
        name, n = args
        self._capacity[name] = int(n)

    def _take(self, args: tuple[str, ...]) -> None:
        name, request = args
        taken = self._taken.setdefault(name, {})
        taken[request] = taken.get(request, 0) + 1
        now = self._takes[name] = self._takes.get(name, 0) + 1
        most = self._capacity.get(name)
        if most is not None and now > most:
            words = f"{request} takes {name}: {now} taken of {most} (by {_list(taken)})"
            self._say("I9", "capacity exceeded", words, [name])

    def _give(self, args: tuple[str, ...]) -> None:
        name, request = args
        taken = self._taken.get(name, {})
        if request not in taken:
            words = f"{request} gives back {name}, which it has not taken"
            self._say("I1", "given back without being taken", words, [name])
            return
        taken[request] -= 1
        self._takes[name] -= 1
        if not taken[request]:
            del taken[request]
            if not taken:
                del self._taken[name]

    # --- passes ---

    def _pass(self, args: tuple[str, ...]) -> None:
        () = args
        if not self._live:
            self._passes = 0
            return
        self._passes += 1
        if self._passes == _PASSES:
            words = f"{_PASSES} passes in a row without progress while {_list(self._live)} wait"
            words += "s" if len(self._live) == 1 else ""
            self._say("I5", "no progress", words, list(islice(self._live, _NAMES)))

    def _progress(self, args: tuple[str, ...]) -> None:
        () = args
        self._passes = 0

    def _idle(self, args: tuple[str, ...]) -> None:
        () = args
        held = _Few(len(self._owners) + len(self._taken))
        for unit, owners in islice(self._owners.items(), _NAMES):
            held.add(unit, "owned by", owners)
        for name, taken in islice(self._taken.items(), _NAMES):
            held.add(name, "taken by", taken)
        if held.count:
            words = f"idle, but {held.text()} {'is' if held.count == 1 else 'are'} held"
            self._say("I3", "held when idle", words, held.names)

    def _note(self, args: tuple[str, ...]) -> None:
        """A note has no effect."""

    def _say(self, invariant: str, what: str, words: str, names: list[str]) -> None:
        assert invariant in INVARIANTS
        self._found.append(Violation(invariant, self.count, what, words, tuple(names)))


def judge(commands: Iterable[Command]) -> list[Violation]:
    """Return everything that a sequence of commands breaks, in order."""
    checker = Judge()
    return [v for c in commands for v in checker.feed(c)]


def _some(args: tuple[str, ...]) -> tuple[str, ...]:
    if not args:
        raise ValueError
    return args


def _malformed(command: Command) -> UsageError:
    found, expected = problem(command.verb, command.args) or (f"command {command.text()!r}", "a command")
    return UsageError(found, expected=expected, next_step="formats/LITMUS.md lists the commands")


def _list(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = list(islice(names, _SHOWN))
    return ", ".join(shown) + _more(len(names) - len(shown))


def _more(left: int) -> str:
    return f" and {left:,} more" if left > 0 else ""


class _Few:
    """The first few of many things: a hostile file may name thousands in each of thousands of lines."""

    def __init__(self, count: int = 0) -> None:
        self.names: list[str] = []
        self.count = count
        self._known = count > 0
        self._shown: list[tuple[str, str]] = []

    def add(self, name: str, relation: str = "", to: Collection[str] = ()) -> None:
        """Take one more, and what it is in relation to."""
        self.count += not self._known
        if len(self.names) < _NAMES:
            self.names.append(name)
        if len(self._shown) < _SHOWN:
            self._shown.append((name, f" ({relation} {_list(to)})" if relation else ""))

    def text(self) -> str:
        """Return the first ones in words, the relation of several only once, and how many more there are."""
        groups = groupby(self._shown, key=lambda pair: pair[1])
        texts = (", ".join(name for name, _ in same) + relation for relation, same in groups)
        return ", ".join(texts) + _more(self.count - len(self._shown))
