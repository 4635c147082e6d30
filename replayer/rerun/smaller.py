"""What makes a scenario smaller, one step at a time, and the order that says which of two is the smaller one.

Standard library only: scenarios are reduced in the engine's own Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from .protocol import Submission
from .scenario import Input, Scenario

__all__ = [
    "Number",
    "numbers",
    "plainer",
    "prefixes_without",
    "renumbered",
    "size",
    "without_inputs",
    "without_requests",
]

Size = tuple[int, int, int, int, int]
Prefix = tuple[int, int, int, int]


def size(scenario: Scenario, keys: Collection[str] = ()) -> Size:
    """Return the measure that a reduction makes smaller, compared from left to right.

    Parameters
    ----------
    scenario : Scenario
        Any.
    keys : collection of str
        Keys of the configuration that count units or slots.

    Returns
    -------
    tuple of int
        Requests; inputs; what is not plain (flags, words, explicit answers, members of a batch, decode-only
        steps, prefixes, endings, features that are on); units and slots; tokens and other numbers.
    """
    submissions = scenario.submissions()
    odd = len(scenario.prefixes) + len(scenario.endings)
    odd += sum(value is True for value in scenario.config.values())
    odd += sum(_oddness(i) for i in scenario.inputs)
    units = sum(int(scenario.config[k]) for k in keys if _is_count(scenario.config.get(k)))
    tokens = sum(abs(n.value) for n in numbers(scenario))
    return len(submissions), len(scenario.inputs), odd, units, tokens


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _oddness(item: Input) -> int:
    odd = len(item.requests) + (item.request is not None) + item.decode_only + bool(item.word)
    odd += (item.arrive_ns is not None) + (item.step is not None)
    odd += 0 if item.answers is None else 1 + len(item.answers)
    s = item.submission
    if s is not None:
        given = (s.priority, s.reserve_tokens, s.id_rank, s.arrive_ns)
        odd += len(s.flags) + sum(v is not None for v in given)
    return odd


# --- fewer requests and inputs ---


def without_requests(scenario: Scenario, gone: Collection[int]) -> Scenario:
    """Return a scenario in which some requests never arrived; nothing is about them any more.

    Requests that had tokens in common with one that is gone keep them in common with each other.
    """
    inputs = []
    for item in scenario.inputs:
        kept = _about_others(item, gone)
        if kept is not None:
            inputs.append(kept)
    return scenario.but(
        inputs=tuple(inputs),
        prefixes=prefixes_without(scenario.prefixes, gone),
        endings=tuple(e for e in scenario.endings if e.request not in gone),
    )


def _about_others(item: Input, gone: Collection[int]) -> Input | None:
    answers = item.answers
    if answers is not None:
        answers = tuple(a for a in answers if a.request not in gone)
    about = item.about()
    if about and all(r in gone for r in about):
        return None
    return replace(item, requests=tuple(r for r in item.requests if r not in gone), answers=answers)


def prefixes_without(prefixes: Sequence[Prefix], gone: Collection[int]) -> tuple[Prefix, ...]:
    """Return what the others have in common with each other, said without those that are gone."""
    kept = list(prefixes)
    for number in sorted(gone, reverse=True):
        own = [p for p in kept if p[0] == number]
        heirs: list[Prefix] = []
        out: list[Prefix] = []
        for request, of, begin, end in kept:
            if request == number:
                continue
            if of != number:
                out.append((request, of, begin, end))
                continue
            # What the missing one had from an earlier request is now had from there ...
            out += [
                (request, o, max(begin, b), min(end, e)) for _, o, b, e in own if max(begin, b) < min(end, e)
            ]
            # ... and what it had first, from the first of the others that had it too.
            out += [
                (request, heir, max(begin, b), min(end, e))
                for heir, _, b, e in heirs
                if heir < request and max(begin, b) < min(end, e)
            ]
            heirs.append((request, of, begin, end))
        kept = out
    return tuple(dict.fromkeys(kept))


def without_inputs(scenario: Scenario, gone: Collection[int]) -> Scenario:
    """Return a scenario without the inputs at some indices; with its arrival a request is gone altogether."""
    requests = {
        s.request for n, i in enumerate(scenario.inputs) if n in gone and (s := i.submission) is not None
    }
    kept = scenario.but(inputs=tuple(i for n, i in enumerate(scenario.inputs) if n not in gone))
    return without_requests(kept, requests) if requests else kept


# --- plainer ones ---


def plainer(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are plainer in one thing."""
    for n, item in enumerate(scenario.inputs):
        for plain in _plainer_inputs(item):
            yield _with(scenario, n, plain)
    for n in range(len(scenario.endings)):
        yield scenario.but(endings=scenario.endings[:n] + scenario.endings[n + 1 :])
    for n in range(len(scenario.prefixes)):
        yield scenario.but(prefixes=scenario.prefixes[:n] + scenario.prefixes[n + 1 :])
    for key, value in scenario.config.items():
        if value is True:
            yield scenario.but(config={**scenario.config, key: False})


def _plainer_inputs(item: Input) -> Iterator[Input]:
    if len(item.requests) > 1:
        for n in range(len(item.requests)):
            yield replace(item, requests=item.requests[:n] + item.requests[n + 1 :])
    if item.answers is not None:
        yield replace(item, answers=None)
        for n in range(len(item.answers)):
            yield replace(item, answers=item.answers[:n] + item.answers[n + 1 :])
    if item.decode_only:
        yield replace(item, decode_only=False)
    if item.word and item.kind == "cache_reset":
        yield replace(item, word=None)
    if item.step is not None:
        yield replace(item, step=None)
    if item.arrive_ns is not None:
        yield replace(item, arrive_ns=None)
    s = item.submission
    if s is not None:
        for flag in s.flags:
            yield replace(item, submission=replace(s, flags=tuple(f for f in s.flags if f != flag)))
        for change in _plainer_submissions(s):
            yield replace(item, submission=change)


def _plainer_submissions(s: Submission) -> Iterator[Submission]:
    if s.priority is not None:
        yield replace(s, priority=None)
    if s.reserve_tokens is not None:
        yield replace(s, reserve_tokens=None)
    if s.id_rank is not None:
        yield replace(s, id_rank=None)
    if s.arrive_ns is not None:
        yield replace(s, arrive_ns=None)


def _with(scenario: Scenario, n: int, item: Input) -> Scenario:
    return scenario.but(inputs=(*scenario.inputs[:n], item, *scenario.inputs[n + 1 :]))


# --- smaller numbers ---


@dataclass(frozen=True)
class Number:
    """One number of a scenario that can be smaller.

    Attributes
    ----------
    value : int
        What it is.
    low : int
        The smallest sensible value.
    put : callable
        Returns the scenario with another value.
    """

    value: int
    low: int
    put: Callable[[int], Scenario]


_SUBMITTED = (("prompt_tokens", 1), ("max_tokens", 1), ("reserve_tokens", 0), ("priority", 0))


def numbers(scenario: Scenario) -> Iterator[Number]:
    """Yield the numbers of a scenario, in a fixed order; after a change they are to be asked for again."""
    for n, item in enumerate(scenario.inputs):
        s = item.submission
        if s is not None:
            for name, low in _SUBMITTED:
                value = getattr(s, name)
                if value is not None:
                    yield Number(value, low, _submission_putter(scenario, n, item, s, name))
        for name in ("tokens", "value"):
            value = getattr(item, name)
            if value is not None:
                yield Number(value, 0, _input_putter(scenario, n, item, name))
    for n, (request, of, begin, end) in enumerate(scenario.prefixes):
        yield Number(end - begin, 1, _prefix_putter(scenario, n, (request, of, begin, end)))
    for n, ending in enumerate(scenario.endings):

        def put_ending(value: int, n: int = n) -> Scenario:
            ended = replace(scenario.endings[n], tokens=value)
            return scenario.but(endings=(*scenario.endings[:n], ended, *scenario.endings[n + 1 :]))

        yield Number(ending.tokens, 1, put_ending)


def _submission_putter(
    scenario: Scenario, n: int, item: Input, s: Submission, name: str
) -> Callable[[int], Scenario]:
    def put(value: int) -> Scenario:
        changes = {name: value}
        if name == "prompt_tokens" and s.reserve_tokens == s.prompt_tokens:
            changes["reserve_tokens"] = value
        changed = replace(s, **changes)  # type: ignore[arg-type]
        return _with(scenario, n, replace(item, submission=changed))

    return put


def _input_putter(scenario: Scenario, n: int, item: Input, name: str) -> Callable[[int], Scenario]:
    def put(value: int) -> Scenario:
        changed = replace(item, tokens=value) if name == "tokens" else replace(item, value=value)
        return _with(scenario, n, changed)

    return put


def _prefix_putter(scenario: Scenario, n: int, prefix: Prefix) -> Callable[[int], Scenario]:
    request, of, begin, _ = prefix

    def put(value: int) -> Scenario:
        changed = (request, of, begin, begin + value)
        return scenario.but(prefixes=(*scenario.prefixes[:n], changed, *scenario.prefixes[n + 1 :]))

    return put


# --- numbered anew ---


def renumbered(scenario: Scenario) -> Scenario:
    """Return it with requests 0, 1, ... in the order of their arrival, and ranks of ids without gaps.

    What is about a request that never arrives is left out.
    """
    order = [s.request for s in scenario.submissions()]
    number = {r: n for n, r in enumerate(order)}
    ranks = sorted({s.id_rank for s in scenario.submissions() if s.id_rank is not None})
    rank = {r: n for n, r in enumerate(ranks)}
    strangers = {r for i in scenario.inputs for r in i.about() if r not in number}
    strangers.update(r for p in scenario.prefixes for r in p[:2] if r not in number)
    strangers.update(e.request for e in scenario.endings if e.request not in number)
    if strangers:
        scenario = without_requests(scenario, strangers)
    inputs = []
    for item in scenario.inputs:
        s = item.submission
        if s is not None:
            s = replace(s, request=number[s.request], id_rank=None if s.id_rank is None else rank[s.id_rank])
        answers = item.answers
        if answers is not None:
            answers = tuple(replace(a, request=number[a.request]) for a in answers if a.request in number)
        inputs.append(
            replace(
                item,
                request=None if item.request is None else number[item.request],
                requests=tuple(number[r] for r in item.requests),
                submission=s,
                answers=answers,
            )
        )
    prefixes = tuple(
        (max(a, b), min(a, b), begin, end)
        for r, of, begin, end in scenario.prefixes
        for a, b in [(number[r], number[of])]
    )
    endings = tuple(replace(e, request=number[e.request]) for e in scenario.endings)
    return scenario.but(inputs=tuple(inputs), prefixes=prefixes, endings=endings)
