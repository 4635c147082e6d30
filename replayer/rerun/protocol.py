"""What an engine adapter is: an engine's real scheduler, driven from outside, without device or model.

One module per engine (``replayer/rerun/<engine>.py``) has a `Driver`. Everything above it speaks only of
requests by number, units by number, and the words of the tables `inputs`, `decisions` and `blocks`.
Imports nothing but the standard library: a driver runs in the engine's own Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "PHASES",
    "Answer",
    "BlockChange",
    "Decision",
    "Driver",
    "Engine",
    "Pool",
    "PoolState",
    "Reaction",
    "RequestState",
    "State",
    "Submission",
    "TokenSource",
    "Unsupported",
]

TokenSource = Callable[[int, int], int]
"""``(request, position) -> token``: the synthetic content of every request, prompt and answer alike."""

PHASES = ("waiting", "prefill", "decode", "preempted", "blocked", "chunk", "finished")
"""Where a request stands, for aiming and for the invariants.

``waiting``: nothing computed, queued; ``prefill``: between two chunks of its prompt; ``decode``: prompt
computed, running; ``preempted``: has lost its units, waits to be computed again; ``blocked``: waits, cannot
be scheduled yet (a multimodal request before ``set_schedulable``, a grammar); ``chunk``: a session that waits
for its next input chunk; ``finished``: still known to the scheduler though it has ended (its units are in use
by a step in flight).
"""


class Unsupported(Exception):
    """The engine, or this version of it, has no such input or configuration; says which in words."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of units, as in the table `pools`."""

    name: str
    units: int
    reserved: int = 0
    tokens_per_unit: int | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A request as it arrives (tables `requests`, `prefixes`).

    Attributes
    ----------
    request : int
        Its number.
    prompt_tokens, max_tokens, priority, flags, reserve_tokens, id_rank, arrive_ns
        As in the table `requests`.
    """

    request: int
    prompt_tokens: int
    max_tokens: int | None = None
    priority: int | None = None
    flags: tuple[str, ...] = ()
    reserve_tokens: int | None = None
    id_rank: int | None = None
    arrive_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model gives one scheduled request: so many tokens, and why it ends, if it does.

    Attributes
    ----------
    request, tokens, word
        As in the table `answers`. With the word ``stop`` the last token is one that ends the request; every
        other word only says what the engine itself finds out (``length``) or is told (``abort``).
    position : int or None
        Where the first of the tokens belongs in the request: their values are ``tokens(request, position)``,
        ``tokens(request, position + 1)``, ... whatever the scheduler believes by then. `drive` fills it in.
    """

    request: int
    tokens: int
    word: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, not as a delta: every scheduled request of a step has one (`prefill` or `decode`)."""

    kind: str
    request: int
    tokens: int | None = None
    computed_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BlockChange:
    """Units that change hands, in the engine's order."""

    action: str
    pool: str
    units: tuple[int, ...]
    request: int | None = None


@dataclass(frozen=True, slots=True)
class Reaction:
    """What one call to the engine did.

    Attributes
    ----------
    events : tuple of (Decision or BlockChange)
        In the engine's order as far as it can be seen from outside.
    handle : object
        Of a step: what `Engine.output` takes; None where the step scheduled nothing and needs no output.
    emitted : tuple of (int, tuple of int)
        Tokens that became visible to a user: request, token values.
    answers : tuple of Answer or None
        Of a step: what a model would give for it, where the engine's own rule is not that of the table
        `answers` (one token for each request whose known tokens are all computed after the step).
    ended : tuple of (int, str) or None
        Of an output: requests that end with it, or a turn of which does, and why, as the engine says and in
        the words that the recorder of the engine writes into `answers`; None: the adapter cannot see it.
    """

    events: tuple[Decision | BlockChange, ...] = ()
    handle: Any = None
    emitted: tuple[tuple[int, tuple[int, ...]], ...] = ()
    answers: tuple[Answer, ...] | None = None
    ended: tuple[tuple[int, str], ...] | None = None

    def scheduled(self) -> list[Decision]:
        """Return the decisions that schedule tokens, in order."""
        return [e for e in self.events if isinstance(e, Decision) and e.kind in ("prefill", "decode")]


@dataclass(frozen=True, slots=True)
class RequestState:
    """What is visible of one request that the scheduler knows.

    Attributes
    ----------
    phase : str
        One of `PHASES`.
    computed_tokens, known_tokens : int
        Tokens whose KV is (being) computed; prompt and answers so far.
    in_flight : int
        Steps that have scheduled it and whose output is outstanding.
    units : mapping of str to tuple of int
        What it owns, per pool, in its own order.
    queue : str
        Name of the queue it stands in (``running``, ``waiting``, ...), "" for none.
    """

    phase: str
    computed_tokens: int
    known_tokens: int
    in_flight: int = 0
    units: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PoolState:
    """What is visible of a pool.

    Attributes
    ----------
    free : int
        What its counter says.
    free_units : tuple of int or None
        What a walk along its free list finds; None: cannot be walked.
    references : mapping of int to int or None
        Reference count of each unit that has one above 0; None: not visible.
    used : int or None
        What its own counter of used units says; None: it has none, all that are not free are used.
    """

    free: int
    free_units: tuple[int, ...] | None = None
    references: Mapping[int, int] | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What is visible of the scheduler between two calls.

    Attributes
    ----------
    requests : mapping of int to RequestState
    pools : mapping of str to PoolState
    unfinished : int
        How many unfinished requests the scheduler says it has: as many as `requests` that are not
        ``finished``, sessions that wait for a chunk among them.
    paused : bool
        Whether it schedules nothing on purpose.
    counters : mapping of str to int
        Counters that must never be negative, by name.
    faults : tuple of (str, str)
        What only the adapter can see: invariant (``I1`` .. ``I10``) and what is wrong, in words.
    """

    requests: Mapping[int, RequestState]
    pools: Mapping[str, PoolState]
    unfinished: int
    paused: bool = False
    counters: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class Engine(Protocol):
    """One scheduler, built and ready. Each input of the table `inputs` is one call and returns a `Reaction`.

    A call that the engine does not have raises `Unsupported`. Any other exception is the engine's own and is
    a finding (the scheduler raised where it must not), unless the adapter wraps it as infrastructure.
    `next_chunk` is given `max_tokens`, the chunk's own limit, and `arrive_ns`, what the scheduler sorts its
    request by from then on, by name where they are known: an adapter whose recorder writes neither takes
    none.

    It may have besides: `fits(request) -> bool`, whether the free units would do for a request that waits,
    where the pools' `tokens_per_unit` do not tell; `stalled() -> str | None`, why nothing moves, None: by
    design; `must_answer() -> bool`, whether an output has to come before anything else.
    """

    def submit(self, submission: Submission) -> Reaction:
        """A request arrives."""
        ...

    def abort(self, requests: Sequence[int]) -> Reaction:
        """These requests are ended from outside, in one call."""
        ...

    def set_schedulable(self, request: int) -> Reaction:
        """A request that could not be scheduled now can be."""
        ...

    def next_chunk(self, request: int, tokens: int, last: bool) -> Reaction:
        """A session gets so many tokens of input more; the last chunk closes it."""
        ...

    def pause(self, word: str) -> Reaction:
        """Schedule nothing from now on, in one of the engine's modes."""
        ...

    def resume(self) -> Reaction:
        """Schedule again."""
        ...

    def cache_reset(self, word: str) -> Reaction:
        """Forget what is kept for its content."""
        ...

    def priority(self, request: int, value: int) -> Reaction:
        """A request gets another priority."""
        ...

    def step(self, decode_only: bool = False) -> Reaction:
        """Schedule one step; the handle goes to `output`."""
        ...

    def output(self, handle: Any, answers: Sequence[Answer]) -> Reaction:
        """Take what the model gave for a step."""
        ...

    def state(self) -> State:
        """Return what is visible now, without changing anything."""
        ...

    def close(self) -> None:
        """Let go of the scheduler and of all that was built for it."""
        ...


@runtime_checkable
class Driver(Protocol):
    """An engine adapter.

    Attributes
    ----------
    name : str
        As in the table `schedulers`.
    inputs : frozenset of str
        Kinds of inputs that it has, of `INPUT_KINDS`; ``decode_only`` besides, if a step can be one.
    shrinks : tuple of str
        Keys of the configuration that a perturbation may make smaller (pools, token budget, slots).
    exempt : frozenset of str, optional
        Invariants (``I1`` .. ``I10``) that the engine breaks on purpose; the adapter's module says why.
    ordered : bool, optional
        Whether decisions and units of a `Reaction` stand in the order in which the engine's recorder writes
        them; True unless said. Where not, a strict rerun compares each of the two in its own order.
    missing : method, optional
        ``missing(config)`` returns the keys that the engine's recorder always writes and a configuration
        lacks: a tape without them is refused. What a case written by hand leaves out has a default.
    patience : int, optional
        How many steps in a row that schedule nothing, while work waits, prove a stall; 3 unless said.
    """

    name: str
    inputs: frozenset[str]
    shrinks: tuple[str, ...]

    def version(self) -> str:
        """Return the engine's version; raise `Unsupported` with the reason where it cannot be imported."""
        ...

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return how many steps may be in flight at once, at most, under this configuration's engine."""
        ...

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        """Return configurations with less of `key`, in which every request can still finish when alone."""
        ...

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> Engine:
        """Return a new scheduler of this configuration; raise `Unsupported` where there can be none."""
        ...

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        """Return faults that can be planted into the real scheduler, by name: they prove that checks bite.

        A campaign tries one after the other, from a place that its seed gives, until one is found.
        """
        ...
