"""Judges a run while it goes on: after every call the invariants, what was shown, and the progress.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...formats.sequence.commands import Command
from ..sequence.judge import Judge
from . import outside
from .protocol import Decision, Pool, Reaction, State
from .scenario import Input
from .telling import Telling
from .tokens import FIRST, Tokens
from .violation import Violation

__all__ = ["Watch"]

_NAME = re.compile(r"[A-Za-z]+")
_WORKING = ("waiting", "prefill", "decode", "preempted")


class Watch:
    """Sees every call of a run.

    Parameters
    ----------
    pools : sequence of Pool
        The scheduler's pools.
    tokens : Tokens
        What the emitted tokens are compared with.
    exempt : frozenset of str
        Invariants that are not judged.
    patience : int
        Steps in a row that schedule nothing, while work waits, that are a stall.
    slack_steps : int
        Steps without any progress that are allowed beside those that compute everything known once more.

    Attributes
    ----------
    commands : list of Command
        What happened so far.
    violations : list of Violation
        What is wrong with it.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        tokens: Tokens,
        *,
        exempt: frozenset[str] = frozenset(),
        patience: int = 3,
        slack_steps: int = 64,
    ) -> None:
        self.commands: list[Command] = []
        self.violations: list[Violation] = []
        self._pools: Mapping[str, Pool] = {p.name: p for p in pools}
        self._tokens = tokens
        self._exempt = exempt
        self._patience = patience
        self._slack = slack_steps
        self._telling = Telling(launches="I2" not in exempt)
        self._judge = Judge()
        self._call = -1
        self._next: dict[int, int | None] = {}
        self._fates: dict[int, str] = {}
        self._alive: dict[int, None] = {}
        """Requests whose fate is ``alive``."""
        self._chunks: dict[int, list[int]] = {}
        self._waits = False
        self._ended: set[int] = set()
        self._suspects: dict[str, str] = {}
        self._passes = 0
        self._still = 0
        self._marks: dict[int, tuple[int, int]] = {}

    @property
    def stuck(self) -> bool:
        """Whether the last steps scheduled nothing though work waits."""
        return self._passes >= self._patience

    @property
    def leaks(self) -> bool:
        """Whether units are missing right now that nobody can give back."""
        return bool(self._suspects)

    def before(self, given: Input, state: State | None, in_flight: Sequence[int]) -> None:
        """Take an input that is about to be made.

        Parameters
        ----------
        given : Input
        state : State or None
            What is visible before it.
        in_flight : sequence of int
            Requests with output outstanding.
        """
        self._call += 1
        if given.kind == "submit" and given.submission is not None:
            self._next[given.submission.request] = given.submission.prompt_tokens
            self._fates[given.submission.request] = "alive"
            self._alive[given.submission.request] = None
        elif given.kind == "abort":
            for r in given.about():
                if r not in self._ended and not self._fates.get(r, "").startswith("aborted"):
                    known = state.requests.get(r) if state is not None else None
                    where = f" in {known.phase}" if known is not None else ""
                    self._end(r, f"aborted{where}{', output in flight' * (r in in_flight)}")
        elif given.kind == "next_chunk" and given.request is not None:
            known = state.requests.get(given.request) if state is not None else None
            self._waits = known is not None and known.phase == "chunk"
        self._feed(self._telling.given(given))

    def after(self, given: Input, reaction: Reaction, state: State, step: int, in_flight: int) -> None:
        """Take what the scheduler did.

        Parameters
        ----------
        given : Input
        reaction : Reaction
        state : State
            What is visible now.
        step : int
            Number of the step that was made or answered.
        in_flight : int
            Steps whose output is outstanding now.
        """
        scheduled = reaction.scheduled()
        if given.kind == "next_chunk" and given.request is not None and given.tokens:
            at = self._next.get(given.request)
            if self._waits and at is not None:
                self._next[given.request] = at - 1 + given.tokens
            else:
                self._chunks.setdefault(given.request, []).append(given.tokens)
        if given.kind == "output":
            self._feed(self._telling.retired(step))
        self._feed(self._telling.events(reaction.events))
        if given.kind == "step":
            self._feed(self._telling.launched(step, scheduled, state))
        self._feed(self._telling.emitted(reaction.emitted))
        for request, shown in reaction.emitted:
            self._shown(request, shown)
        self._state(state, in_flight)
        self._gone(reaction, state)
        self._progress(given, scheduled, state, in_flight)

    def raised(self, what: str, words: str) -> None:
        """Take that the scheduler raised."""
        self._say("raised", what, words)

    def stalled(self, state: State, why: str = "") -> None:
        """Take that nothing moves any more though work waits, and why, in words without numbers."""
        waiting = self._working(state)
        self._feed([Command("progress"), *[Command("pass")] * 3], stalled=", ".join(waiting), why=why)

    def ignored(self, given: Input) -> None:
        """Take that an input without which nothing can end has no effect."""
        passes = [Command("progress"), *[Command("pass")] * 3]
        self._feed(passes, stalled=f"{given.text()} has no effect")

    def endless(self, steps: int) -> None:
        """Take that the scheduler goes on and on without coming to an end."""
        self._say("I5", "steps without end", f"not drained after {steps} steps")

    def idle(self, state: State) -> None:
        """Take that everything has ended."""
        before = len(self.violations)
        self._feed([Command("idle")])
        found = self.violations[before:]
        for finding in outside.at_idle(state, self._pools):
            if finding[0] != "I3" or not found:
                self._say(*finding)
        self._suspects = {}

    # --- what a call shows ---

    def _feed(self, commands: Iterable[Command], *, stalled: str = "", why: str = "") -> None:
        for command in commands:
            self.commands.append(command)
            held = self._judge.held() if command.verb == "idle" else {}
            for found in self._judge.feed(command):
                if found.invariant == "I3":
                    self._held(found.words, held)
                else:
                    pools = sorted({m[0] for n in found.names if (m := _NAME.match(n)) and m[0] != "R"})
                    what = f"{found.what} ({', '.join(pools)})" if pools else found.what
                    what += f": {why}" if why else ""
                    words = found.words if not stalled else f"no progress: {stalled}"
                    words += f"; {why}" if why else ""
                    self._say(found.invariant, what, words)

    def _prove(self, *commands: Command) -> None:
        """Add commands that say in a sequence what was seen from outside."""
        for command in commands:
            self.commands.append(command)
            self._judge.feed(command)

    def _held(self, words: str, held: Mapping[str, tuple[str, ...]]) -> None:
        """Say what is held at the end: one kind for each pool and each way in which the owner ended."""
        kinds: dict[str, list[str]] = {}
        for unit, owners in held.items():
            match = _NAME.match(unit)
            pool = match[0] if match else unit
            fate = next((self._fates.get(int(o[1:]), "gone") for o in owners if o[1:].isdigit()), "gone")
            kinds.setdefault(f"{pool} held when idle, owner {fate}", []).append(unit)
        for what in kinds:
            suspect = next((w for w in self._suspects.values()), "")
            self._say("I3", what, words + (f"; first seen: {suspect}" if suspect else ""))

    def _shown(self, request: int, shown: Sequence[int]) -> None:
        """Compare the tokens that a user sees with those that belong there."""
        if request in self._ended and not self._fates.get(request, "").startswith("aborted"):
            self._say("I8", "shown after the end", f"R{request} shows tokens after it has finished")
        for token in shown:
            at = self._next.get(request)
            if at is None:
                at = self._place(request, token)
            if at is None:
                continue
            right = self._tokens(request, at)
            chunks = self._chunks.get(request)
            if token != right and chunks and token == self._tokens(request, at - 1 + chunks[0]):
                # a session's turn has ended with the token before: its next chunk stands in that one's place
                self._next[request] = at + chunks.pop(0)
                continue
            if token != right and token >= FIRST:  # a smaller one ends a request: no synthetic token is so
                other = self._place(request, token)
                where = "of another place" if other is None else "lost" if other > at else "repeated"
                words = f"R{request} shows at position {at} what belongs " + (
                    "elsewhere" if other is None else f"at {other}"
                )
                box, came = f"tokens-R{request}", "elsewhere" if other is None else str(other)
                self._prove(
                    Command("put", (box, f"R{request}:{at}")), Command("get", (box, f"R{request}:{came}"))
                )
                self._say("I6", f"a token is {where}", words)
                at = at if other is None else other
            self._next[request] = at + 1

    def _place(self, request: int, token: int) -> int | None:
        """Return the position of the request where a token belongs, among the first ones."""
        known = self._marks.get(request, (0, 0))
        return next((p for p in range(max(known) + 64) if self._tokens(request, p) == token), None)

    def _state(self, state: State, in_flight: int) -> None:
        suspects = {}
        for invariant, what, words in outside.between_calls(state, self._pools, in_flight):
            if invariant == "I3" and what.endswith("held by nobody"):
                suspects[what] = self._suspects.get(what, f"{words} (call {self._call})")
            else:
                self._say(invariant, what, words)
        if not in_flight:
            self._suspects = suspects

    def _gone(self, reaction: Reaction, state: State) -> None:
        """See who has ended, and who is gone without having ended."""
        for event in reaction.events:
            if isinstance(event, Decision) and event.kind in ("finish", "reject"):
                self._ended.add(event.request)
                if self._fates.get(event.request) == "alive":
                    self._end(event.request, "finished" if event.kind == "finish" else "rejected")
        for r in [r for r in self._alive if r not in state.requests]:
            self._end(r, "gone")
            self._say("I5", "a request is gone without having ended", f"R{r} is gone, it never finished")

    def _end(self, request: int, fate: str) -> None:
        self._fates[request] = fate
        self._alive.pop(request, None)

    def _progress(self, given: Input, scheduled: Sequence[Decision], state: State, in_flight: int) -> None:
        moved = False
        for r, request in state.requests.items():
            computed, known = self._marks.get(r, (0, 0))
            if request.computed_tokens > computed or request.known_tokens > known:
                self._marks[r] = max(computed, request.computed_tokens), max(known, request.known_tokens)
                moved = True
        gone = self._marks.keys() - state.requests.keys()
        for r in gone:
            del self._marks[r]
        if moved or gone or given.kind not in ("step", "output"):
            self._still = 0
        if scheduled or given.kind not in ("step", "output"):
            self._passes = 0
        if given.kind != "step" or given.decode_only or state.paused:
            return
        if not any(r.phase in _WORKING for r in state.requests.values()):
            self._passes = self._still = 0
            return
        self._still += 1
        if not scheduled:
            self._passes = 0 if in_flight else self._passes + 1
        if self._still <= self._slack:
            return
        again = sum(r.known_tokens for r in state.requests.values())
        if self._still > self._slack + again:
            waiting = ", ".join(self._working(state))
            self._feed([Command("progress"), *[Command("pass")] * 3], stalled=waiting)
            self._still = 0

    def _working(self, state: State) -> list[str]:
        return [f"R{n} ({r.phase})" for n, r in state.requests.items() if r.phase in _WORKING]

    def _say(self, invariant: str, what: str, words: str) -> None:
        known = any(v.kind == (invariant, what) for v in self.violations)
        if invariant not in self._exempt and not known:
            self.violations.append(Violation(invariant, what, words, len(self.commands), self._call))
