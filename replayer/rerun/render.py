"""Results of `rerun` as lines of text and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ...formats.sequence import INVARIANTS
from ...formats.shown import plural, quoted
from .api import Case, Strict
from .outcome import Found, Outcome
from .scenario import Scenario
from .strict import Difference, Divergence
from .violation import CRASH, HANG, RAISED, Violation

__all__ = [
    "campaign_dict",
    "case_dict",
    "inputs_shown",
    "meaning",
    "render_campaign",
    "render_case",
    "render_strict",
    "strict_dict",
]

_MOST_INPUTS = 20
"""Lines of a reduced case that the report shows; the file has all of it."""

_MEANINGS = {
    RAISED: "the scheduler does not raise",
    CRASH: "the scheduler does not crash",
    HANG: "every call comes back",
}


def meaning(invariant: str) -> str:
    """Return an invariant in words."""
    return INVARIANTS.get(invariant) or _MEANINGS.get(invariant, invariant)


def render_strict(tape: str, result: Strict, recorded_version: str | None) -> list[str]:
    """Return the result of a strict rerun."""
    rate = f", {result.steps / result.seconds:,.0f} steps/s" if result.seconds > 0 else ""
    given = f"{plural(result.steps, 'step')}, {plural(result.compared, 'input')} in all"
    lines = []
    if recorded_version is not None and recorded_version != result.version:
        lines.append(f"note: recorded with {recorded_version}, rerun on {result.version}")
    if result.divergence is not None:
        lines += [f"{tape}: strict: DIVERGED at input {result.divergence.index}"]
        lines += _divergence(result.divergence)
    else:
        lines += [f"{tape}: strict: every decision, unit and count as recorded: {given}{rate}"]
    for violation in result.violations[:5]:
        lines += ["", *_violation(violation)]
    return lines


def _divergence(found: Divergence) -> Iterator[str]:
    yield f"  > {found.given}  (after {plural(found.step, 'step')})"
    if found.words:
        yield f"  {found.words}"
    for difference in found.differences:
        yield from _difference(difference)
    if found.equal:
        yield f"  equal: {', '.join(found.equal)}"


def _difference(found: Difference) -> Iterator[str]:
    yield f"  {found.name}:"
    if found.equal_before:
        yield f"      {plural(found.equal_before, 'equal row')}"
    width = max([len("recorded"), *map(len, found.recorded)])
    yield f"    {'recorded':<{width}}  rerun"
    for n in range(max(len(found.recorded), len(found.rerun))):
        one = found.recorded[n] if n < len(found.recorded) else "-"
        other = found.rerun[n] if n < len(found.rerun) else "-"
        yield f"    {one:<{width}}  {other}"
    if found.left_out:
        yield f"      {plural(found.left_out, 'more row')} that differ"
    if found.equal_after:
        yield f"      {plural(found.equal_after, 'equal row')}"


def render_campaign(tape: str, out: Outcome, files: dict[tuple[str, str], str]) -> list[str]:
    """Return the result of a campaign; `files` says where each kind's case was written."""
    kinds = plural(len(out.found), "kind of violation", "kinds of violations")
    heads = {
        "found": f"FOUND {kinds}",
        "clean": "clean",
        "failed": "not judged",
        "cannot judge": "cannot judge",
    }
    rate = f", {out.runs / out.seconds:,.0f} runs/s" if out.seconds > 0 else ""
    head = "interrupted" if out.interrupted and not out.found else heads[out.verdict]
    made = f"{plural(out.runs, 'run')} ({plural(out.calls, 'call')}, {out.seconds:,.1f} s{rate})"
    lines = [f"{tape}: perturbed: {head} in {made} on {out.engine} {out.version}".rstrip()]
    if out.interrupted and out.found:
        lines.append("  interrupted: there may be more, and not all is reduced")
    lines.append(f"  {_planted(out)}")
    if out.actions:
        most = ", ".join(f"{name} {n:,}" for name, n in sorted(out.actions.items()))
        lines.append(f"  inserted in runs: {most}")
    phases: dict[str, int] = {}
    for (phase, _), n in out.moments.items():
        if phase != "any":
            phases[phase] = phases.get(phase, 0) + n
    if phases:
        lines.append(f"  states met: {', '.join(f'{name} {n:,}' for name, n in sorted(phases.items()))}")
    if out.unjudged:
        lines.append(f"  {plural(out.unjudged.total(), 'run')} ended early without a finding, not clean:")
        lines += [f"    {n:,} x {why}" for why, n in out.unjudged.most_common(5)]
    if out.trouble_count:
        lines.append(f"  {plural(out.trouble_count, 'run')} not judged (infrastructure), not clean:")
        lines += [f"    {why}" for why in out.troubles]
    for number, found in enumerate(out.found.values(), 1):
        lines += ["", *_found(number, found, files.get(found.violation.kind, ""))]
    return lines


def _planted(out: Outcome) -> str:
    planted = out.planted
    if not planted.name and out.interrupted:
        return "no fault was planted yet: nothing proves that this campaign would find one"
    if not planted.name:
        return "no fault was planted: nothing proves that this campaign would find one"
    runs, name = plural(planted.runs, "run"), quoted(planted.name)
    if planted.found is None:
        return f"the planted fault {name} was NOT found in {runs}: a clean result would mean nothing"
    return f"planted fault {name}: found after {runs} ({planted.found.invariant}: {planted.found.what})"


def _found(number: int, found: Found, file: str) -> Iterator[str]:
    head, *rest = _violation(found.violation)
    yield f"{number}. {head}"
    yield from rest
    yield f"  shown by: {found.recipe.text()}; in {plural(found.count, 'run')}, first in run {found.run}"
    reduced = found.reduced
    if reduced is not None:
        requests, inputs = len(reduced.submissions()), len(reduced.inputs)
        size = f"{plural(requests, 'request')} and {plural(inputs, 'input')}"
        done = "" if found.minimal else ", not to the end"
        yield f"  reduced to {size} in {plural(found.reduce_runs, 'run')}{done}" + f": {file}" * bool(file)
        yield from inputs_shown(reduced)
        if "\n> drain\n" in found.litmus:
            yield "    then steps and outputs until nothing is left, or nothing goes on"
    elif found.unreduced:
        yield f"  not reduced: {found.unreduced}"


def inputs_shown(reduced: Scenario) -> Iterator[str]:
    """Yield the inputs as lines, equal ones after each other as one; the first 20 of them."""
    folded = [(text, len(list(same))) for text, same in itertools.groupby(i.text() for i in reduced.inputs)]
    for text, times in folded[:_MOST_INPUTS]:
        yield f"    > {text}" + f"  ({times} times)" * (times > 1)
    left = sum(times for _, times in folded[_MOST_INPUTS:])
    if left:
        yield f"    and {left} more"


def _violation(violation: Violation) -> list[str]:
    return [
        f"{violation.invariant}: {violation.what}",
        f"  must hold: {meaning(violation.invariant)}",
        f"  {violation.words}",
    ]


def render_case(name: str, case: Case) -> list[str]:
    """Return the result of one case."""
    where = f"on {case.engine} {case.version}"
    if case.violations:
        lines = [f"{name}: FOUND {plural(len(case.violations), 'violation')} {where}"]
        for violation in case.violations:
            lines += ["", *_violation(violation)]
        return lines
    if case.reason:
        return [f"{name}: cannot judge {where}: {case.reason}"]
    return [f"{name}: clean {where}, {plural(case.steps, 'step')}"]


def strict_dict(result: Strict) -> dict[str, Any]:
    """Return the result of a strict rerun for ``--json``."""
    return {
        "steps": result.steps,
        "compared": result.compared,
        "seconds": result.seconds,
        "divergence": None if result.divergence is None else result.divergence.as_dict(),
        "violations": [_violation_dict(v) for v in result.violations],
    }


def campaign_dict(out: Outcome, files: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Return the result of a campaign for ``--json``."""
    planted = out.planted
    return {
        "verdict": out.verdict,
        "runs": out.runs,
        "calls": out.calls,
        "steps": out.steps,
        "seconds": out.seconds,
        "runs_per_s": out.runs / out.seconds if out.seconds else 0.0,
        "planted": {
            "fault": planted.name,
            "found": None if planted.found is None else _violation_dict(planted.found),
            "runs": planted.runs,
        },
        "inserted": dict(out.actions),
        "moments": [{"phase": p, "place": w, "count": n} for (p, w), n in sorted(out.moments.items())],
        "unjudged": dict(out.unjudged),
        "troubles": out.troubles,
        "trouble_count": out.trouble_count,
        "interrupted": out.interrupted,
        "found": [_found_dict(f, files.get(f.violation.kind)) for f in out.found.values()],
    }


def _found_dict(found: Found, file: str | None) -> dict[str, Any]:
    reduced = found.reduced
    return {
        **_violation_dict(found.violation),
        "recipe": found.recipe.text(),
        "runs": found.count,
        "first_run": found.run,
        "file": file,
        "litmus": found.litmus,
        "unreduced": found.unreduced,
        "reduced": None
        if reduced is None
        else {
            "requests": len(reduced.submissions()),
            "inputs": len(reduced.inputs),
            "runs": found.reduce_runs,
            "minimal": found.minimal,
        },
    }


def case_dict(case: Case) -> dict[str, Any]:
    """Return the result of one case for ``--json``."""
    return {
        "engine": case.engine,
        "version": case.version,
        "requests": len(case.scenario.submissions()),
        "inputs": len(case.scenario.inputs),
        "steps": case.steps,
        "reason": case.reason,
        "violations": [_violation_dict(v) for v in case.violations],
    }


def _violation_dict(violation: Violation) -> dict[str, Any]:
    return {**violation.as_dict(), "says": meaning(violation.invariant)}
