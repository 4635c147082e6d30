"""A reduced case as a ``seq`` litmus file: the commands, what they break, and what makes them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...formats.errors import LitmusError
from ...formats.notation import Spot, integer, shown
from ...formats.requests.words import ANSWER_WORDS
from ...formats.sequence import INVARIANTS, Drive, DriveInput, PoolLine, Sequence
from ..sequence import judge
from .bounds import MOST_TOKENS, too_many_units
from .drive import Limits, Run, run
from .protocol import Answer, Driver, Pool, Submission
from .scenario import Ending, Input, Scenario
from .smaller import prefixes_without

__all__ = ["case_of", "drive_of", "run_to_show", "scenario_of"]

_VERBS = {
    "submit": "submit",
    "abort": "abort",
    "set_schedulable": "schedulable",
    "next_chunk": "chunk",
    "pause": "pause",
    "resume": "resume",
    "cache_reset": "reset",
    "priority": "priority",
    "step": "step",
    "output": "output",
}
_KINDS = {verb: kind for kind, verb in _VERBS.items()}
_SUBMITTED = {
    "prompt": "prompt_tokens",
    "max": "max_tokens",
    "priority": "priority",
    "reserve": "reserve_tokens",
    "rank": "id_rank",
    "arrive": "arrive_ns",
}
_REQUEST = re.compile(r"R([0-9]{1,9})")
_ANSWER = re.compile(r"R([0-9]{1,9})/([0-9]{1,9})(?:/([a-z]+))?")
_BREAKS = ("breaks", "breaks too", "breaks as well", "breaks besides")
_MORE_STEPS = 32
_LAST, _DECODE_ONLY, _NONE = "last", "decode_only", "none"


def run_to_show(
    scenario: Scenario,
    driver: Driver,
    *,
    limits: Limits | None = None,
    at: Callable[[int, str], None] | None = None,
) -> Run:
    """Run a reduced scenario for its file.

    It ends with its first violation, as every run. Where only the state of the scheduler shows that one, it
    goes on if the commands soon break the same invariant by themselves: what was not given back is held when
    all has ended.

    Parameters
    ----------
    scenario, driver, limits, at
        As `drive.run` takes them.
    """
    first = run(scenario, driver, limits=limits, at=at)
    if not first.violations or judge(first.commands):
        return first
    further = replace(limits or Limits(), stop_at_first=False, max_steps=first.steps + _MORE_STEPS)
    longer = run(scenario, driver, limits=further, at=at)
    if len(longer.commands) > 2 * len(first.commands) + _MORE_STEPS:
        return first
    broken = {v.invariant for v in judge(longer.commands)}
    return longer if first.violations[0].invariant in broken else first


def case_of(made: Run, *, notes: Mapping[str, str] | None = None, name: str = "case") -> Sequence:
    """Return a run as a sequence that can be printed, checked, and run again from its file.

    Parameters
    ----------
    made : Run
        Of the reduced scenario, judged; see `run_to_show`.
    notes : mapping of str to str
        Comments ``# key: value`` beside those that say what breaks.
    name : str
        File name for messages.

    Returns
    -------
    Sequence
        It claims what its commands break by themselves; what only the state of the scheduler showed stands in
        its comments. Its drive has the calls that were really made.
    """
    said = dict(notes or {})
    kinds = list(dict.fromkeys(v.kind for v in made.violations))
    for key, (invariant, what) in zip(_BREAKS, kinds, strict=False):
        meaning = INVARIANTS.get(invariant, "the scheduler returns from every call")
        said[key] = f"{invariant} ({meaning}): {what}"
    if made.violations:
        said["shows"] = made.violations[0].words
    claims = [v.claim() for v in judge(made.commands)]
    places = [c.at for c in made.calls[: made.given]]
    if len(made.calls) > made.given:
        places.append(made.calls[made.given].at)
    drive = drive_of(made.made().but(pools=made.pools), places)
    return Sequence.of(made.commands, claims or None, name=name, notes=said, drive=drive)


def drive_of(scenario: Scenario, places: Iterable[int] = ()) -> Drive:
    """Return a scenario as the lines from which it is made again.

    Parameters
    ----------
    scenario : Scenario
        Any.
    places : iterable of int
        Before which command each input stands; one more than there are inputs says where the drain begins.
    """
    endings = {e.request: e for e in scenario.endings}
    given = [_line(i, endings) for i in scenario.inputs]
    submitted = {s.request for s in scenario.submissions()}
    strangers = {r for prefix in scenario.prefixes for r in prefix[:2]} - submitted
    at = list(places) or [0] * len(given)
    if len(at) > len(given):
        given.append(DriveInput("drain"))
    return Drive(
        scenario.engine,
        scenario.engine_version,
        dict(scenario.config),
        tuple(PoolLine(p.name, p.units, p.reserved, p.tokens_per_unit) for p in scenario.pools),
        prefixes_without(scenario.prefixes, strangers),
        tuple(replace(g, before=n) for g, n in zip(given, at, strict=True)),
    )


def _line(given: Input, endings: Mapping[int, Ending]) -> DriveInput:
    args = [f"R{r}" for r in given.about()]
    values: dict[str, str | None] = {}
    s = given.submission
    if s is not None:
        values = {key: str(v) for key, name in _SUBMITTED.items() if (v := getattr(s, name)) is not None}
        if s.request in endings:
            values["ends"] = f"{endings[s.request].tokens}/{endings[s.request].word}"
        args += s.flags
    if given.word:
        args.append(given.word)
    if given.value is not None and given.kind == "priority":
        args.append(str(given.value))
    elif given.value is not None:
        values["value"] = str(given.value)
    if given.tokens is not None:
        values["tokens"] = str(given.tokens)
    if given.arrive_ns is not None:
        values["arrive"] = str(given.arrive_ns)
    if given.step is not None:
        values["step"] = str(given.step)
    if given.answers is not None:
        args += [_answer_text(a) for a in given.answers] or [_NONE]
    args += [_DECODE_ONLY] * given.decode_only + [_LAST] * given.last
    return DriveInput(_VERBS[given.kind], tuple(args), values)


def _answer_text(answer: Answer) -> str:
    text = f"R{answer.request}/{answer.tokens}"
    return text if answer.word is None else f"{text}/{answer.word}"


# --- and back ---


def scenario_of(sequence: Sequence) -> Scenario:
    """Return what makes a sequence.

    Parameters
    ----------
    sequence : Sequence
        Read from a file.

    Raises
    ------
    LitmusError
        It does not say how it was made, or not in the way of a reduced case.
    """
    drive = sequence.drive
    if drive is None:
        raise LitmusError(
            "a sequence that does not say how it was made",
            expected="lines `engine NAME`, `config {...}` and `> submit ...`",
            where=sequence.name,
            next_step="judge it with `tapedelay check`; only cases that `rerun` wrote can be run again",
        )
    reader = _Reader(sequence.name)
    pools = tuple(Pool(p.name, p.units, p.reserved, p.tokens_per_unit) for p in drive.pools)
    units = too_many_units(pools)
    if units is not None:
        raise reader.error(*units)
    for given in drive.inputs:
        reader.read(given)
    for request, of, _, _ in drive.prefixes:
        for number in (request, of):
            if number not in reader.submitted:
                raise reader.error(f"prefix of R{number}, which is never submitted", "requests of this file")
    return Scenario(
        engine=drive.engine,
        engine_version=drive.engine_version,
        config=drive.config,
        pools=pools,
        inputs=tuple(reader.inputs),
        prefixes=drive.prefixes,
        endings=tuple(reader.endings),
    )


class _Reader:
    """Reads the inputs of a drive."""

    def __init__(self, name: str) -> None:
        self.inputs: list[Input] = []
        self.endings: list[Ending] = []
        self.submitted: set[int] = set()
        self._name = name
        self._spot = Spot(name, 1)
        self._drained = False
        self._tokens = 0

    def error(self, found: str, expected: str) -> LitmusError:
        """Return the error that names the line."""
        return self._spot.error(found, expected)

    def read(self, given: DriveInput) -> None:
        """Take the next input."""
        self._spot = given.spot or self._spot
        if self._drained:
            raise self.error("an input after `> drain`", "nothing: the scheduler is drained at the end")
        if given.verb == "drain":
            if given.args or given.values:
                raise self.error("arguments of drain", "`> drain` alone")
            self._drained = True
            return
        kind = _KINDS[given.verb]
        made = getattr(self, f"_{kind}", self._plain)(kind, list(given.args), dict(given.values))
        self.inputs.append(made)

    def _submit(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        request = self._request(args)
        if request in self.submitted:
            raise self.error(f"R{request} is submitted twice", "each request once")
        if "prompt" not in values:
            raise self.error("submit without prompt=", "`> submit R0 prompt=30`")
        ends = values.pop("ends", None)
        low = {"prompt": 0, "max": 1, "reserve": 0, "rank": 0, "priority": None, "arrive": None}
        numbers = {name: self._integer(values, key, low[key]) for key, name in _SUBMITTED.items()}
        self._over(kind, [], values)
        self._make(numbers["prompt_tokens"])
        self._make(numbers["reserve_tokens"])
        self.submitted.add(request)
        if ends is not None:
            tokens, _, word = ends.partition("/")
            if word not in ANSWER_WORDS:
                raise self.error(f"ends={shown(ends)}", "ends=TOKENS/WORD, such as ends=3/stop")
            self.endings.append(Ending(request, integer(self._spot, tokens, "ends", low=1), word))
        submission = Submission(request=request, flags=tuple(args), **numbers)  # type: ignore[arg-type]
        return Input(kind, submission=submission)

    def _abort(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        requests = [self._request(args)]
        while args:
            requests.append(self._request(args))
        self._over(kind, args, values)
        return Input(kind, requests=tuple(requests))

    def _step(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        decode_only = self._flag(args, _DECODE_ONLY)
        step = self._integer(values, "step", 0)
        self._over(kind, args, values)
        return Input(kind, decode_only=decode_only, step=step)

    def _output(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        step = self._integer(values, "step", 0)
        self._over(kind, [], values)
        answers = None
        if args:
            answers = () if args == [_NONE] else tuple(self._answer(a) for a in args)
        return Input(kind, step=step, answers=answers)

    def _answer(self, text: str) -> Answer:
        m = _ANSWER.fullmatch(text)
        if m is None or (m[3] is not None and m[3] not in ANSWER_WORDS):
            raise self.error(f"answer {shown(text)}", "R0/1 or R0/1/stop: request, tokens, why it ends")
        self._make(int(m[2]))
        return Answer(int(m[1]), int(m[2]), m[3])

    def _next_chunk(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        last = self._flag(args, _LAST)
        request = self._request(args)
        tokens, value = self._integer(values, "tokens", 0), self._integer(values, "value", None)
        arrive = self._integer(values, "arrive", None)
        self._over(kind, args, values)
        self._make(tokens)
        return Input(kind, request=request, tokens=tokens, value=value, last=last, arrive_ns=arrive)

    def _priority(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        request = self._request(args)
        value = integer(self._spot, args.pop(0) if args else None, "priority")
        self._over(kind, args, values)
        return Input(kind, request=request, value=value)

    def _set_schedulable(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        request = self._request(args)
        self._over(kind, args, values)
        return Input(kind, request=request)

    def _plain(self, kind: str, args: list[str], values: dict[str, str | None]) -> Input:
        word = args.pop(0) if args else None
        self._over(kind, args, values)
        return Input(kind, word=word)

    def _make(self, tokens: int | None) -> None:
        """Count tokens that the rerun makes in memory."""
        self._tokens += tokens or 0
        if self._tokens > MOST_TOKENS:
            raise self.error(f"{self._tokens} tokens up to here", f"at most {MOST_TOKENS} in a case")

    def _request(self, args: list[str]) -> int:
        m = _REQUEST.fullmatch(args[0]) if args else None
        if m is None:
            raise self.error(f"request {shown(args[0] if args else '-')}", "a request, R0, R1, ...")
        args.pop(0)
        return int(m[1])

    def _integer(self, values: dict[str, str | None], key: str, low: int | None) -> int | None:
        text = values.pop(key, None)
        return None if text is None else integer(self._spot, text, key, low=low)

    @staticmethod
    def _flag(args: list[str], word: str) -> bool:
        if word not in args:
            return False
        args.remove(word)
        return True

    def _over(self, kind: str, args: list[str], values: Mapping[str, object]) -> None:
        over = [*args, *(f"{k}=" for k in values)]
        if over:
            raise self.error(f"{shown(over[0])} after {_VERBS[kind]}", "arguments of this input")
