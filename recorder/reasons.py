"""Why an engine could not be recorded: each reason with what shows it and what helps.

``record`` and ``doctor`` both ask here, so that they say the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .evidence import Evidence, Seen

__all__ = ["Reason", "refused_by", "switched_off", "unused_copy", "why_nothing"]


@dataclass(frozen=True)
class Reason:
    """One reason.

    Attributes
    ----------
    code : str
        A word for programs.
    found : str
        What was found.
    remedy : str
        What helps.
    """

    code: str
    found: str
    remedy: str


def why_nothing(evidence: Evidence) -> Reason | None:
    """Return why no process loaded the plugin; None: nothing is known that would have kept it out."""
    return next(_known(evidence), None)


def _known(evidence: Evidence) -> Iterator[Reason]:
    for find in _REASONS:
        reason = find(evidence)
        if reason is not None:
            yield reason


def refused_by(evidence: Evidence) -> Reason | None:
    """Return why the plugin did not start in some engine."""
    return _refused_by_plugin(evidence) or _refused_by_package(evidence)


# --- the plugin was loaded and did not start ----------------------------------------------------------------

_WITH_SYMBOLS = "use a build of the engine with ggml as a shared library, or one that exports its symbols"
_REFUSED = (
    (
        "no loaded library exports",
        "static-ggml",
        _WITH_SYMBOLS,
    ),
    (
        "backend API version",
        "api-version",
        "use a build of the engine with one of these versions, or a newer tapedelay",
    ),
    ("does not fit", "layout", "use an official build of the engine, or a newer tapedelay"),
    ("this ggml has no", "missing-function", "use a newer build of the engine"),
    ("second copy of ggml", "second-copy", "run the part that uses the other copy in a process of its own"),
    ("TAPEDELAY_", "settings", "leave the TAPEDELAY_ variables to `tapedelay record`"),
)


_UNRECORDED = "is not recorded"
"""So say hooks of request schedulers."""


def _refused_by_plugin(e: Evidence) -> Reason | None:
    for said in e.refusals:
        for words, code, remedy in _REFUSED:
            if words in said:
                return Reason(code, _where(e, said), remedy)
    for said in e.refusals:
        if _UNRECORDED in said:
            return Reason("scheduler", said, "use a version of the engine that is supported, or report it")
    if e.refusals:
        return Reason(
            "refused", _where(e, e.refusals[0]), "see that the engine's build is one that is supported"
        )
    return None


def _where(e: Evidence, said: str) -> str:
    packages = [f"{h['package']} {h['version']}".strip() for h in e.hooks if h.get("fault")]
    return f"the plugin could not be loaded into {', '.join(packages) or 'the engine'}: {said}"


def _refused_by_package(e: Evidence) -> Reason | None:
    faults = [f"{h['package']} {h['version']}: {h['fault']}" for h in e.hooks if h.get("fault")]
    if not faults:
        return None
    code, remedy = "refused", "use a build of the engine whose ggml loads plugins"
    if any("from its environment" in f for f in faults):
        code, remedy = (
            "environment-removed",
            "let the program keep its environment until the engine is imported",
        )
    elif any("does not export" in f for f in faults):
        code = "no-exported-symbols"
    return Reason(code, f"the plugin could not be loaded into {'; '.join(faults)}", remedy)


# --- nothing led to the plugin ------------------------------------------------------------------------------


def _other_user(e: Evidence) -> Reason | None:
    for p in e.watched.processes:
        if p.secure:
            return Reason(
                "setuid",
                f"{p.name} runs as another user or with capabilities of its file: it cannot write this "
                "user's recording, and the system takes LD_PRELOAD from it",
                "record it as the user as whom it runs, or run a copy of it that has no setuid bit and no "
                "capabilities",
            )
    return None


def _hook_switched_off(e: Evidence) -> Reason | None:
    if e.python:
        return None
    for command in (e.command, *(p.command for p in e.watched.processes)):
        off = switched_off(command)
        if off:  # whether it used an engine is not known
            return Reason(
                "import-hook-off", f"Python with {off} does not load the import hook", f"run it without {off}"
            )
    return None


def _environment_removed(e: Evidence) -> Reason | None:
    without = [p for p in e.watched.processes if p.environment is False]
    for p in sorted(without, key=lambda p: not (p.exporting or p.hidden)):
        return Reason(
            "environment-removed",
            f"{p.name} was started without the variables of the recording",
            "start the engine with the command's environment (no env -i; sudo needs --preserve-env)",
        )
    return None


def _nowhere_to_write(e: Evidence) -> Reason | None:
    for p in e.watched.processes:
        if p.plugin:
            return Reason(
                "no-place",
                f"{p.name} loaded the plugin, which found no place for the recording",
                "see what it said on stderr; let it see and write the folder of the tape (containers "
                "and chroots hide it, other users may not write it)",
            )
    return None


def _static_ggml(e: Evidence) -> Reason | None:
    for p in e.watched.processes:
        if p.hidden and not p.exporting:
            return Reason(
                "static-ggml",
                f"{p.name} has ggml in {_names(p.hidden)} and exports none of its functions",
                _WITH_SYMBOLS,
            )
    return None


_LONG_ENOUGH_S = 0.2
"""A process that lived shorter may have loaded the plugin behind the back of whoever looks."""


def _never_loaded(e: Evidence) -> Reason | None:
    for p in e.watched.processes:
        if p.exporting and not p.plugin:
            brief = p.seen_s < _LONG_ENOUGH_S
            never = "never asked it to load a backend"
            unloaded = "ended before it could be seen to load a backend" if brief else never
            look = "see what it said on stderr; " * brief
            return Reason(
                "not-loaded",
                f"{p.name} uses ggml ({_names(p.exporting)}) and {unloaded}",
                f"{look}use a build whose ggml loads GGML_BACKEND_PATH (it calls ggml_backend_load_all), or "
                "the Python packages xllamacpp or llama_cpp",
            )
    return None


_REASONS: tuple[Callable[[Evidence], Reason | None], ...] = (
    _refused_by_plugin,
    _refused_by_package,
    _hook_switched_off,
    _environment_removed,
    _other_user,
    _nowhere_to_write,
    _static_ggml,
    _never_loaded,
)
"""The surest first."""


# --- the plugin recorded nothing ----------------------------------------------------------------------------


def unused_copy(evidence: Evidence) -> Reason | None:
    """Return that a process holds several copies of ggml, if nothing was computed in that with the plugin."""
    for p in evidence.watched.processes:
        if p.plugin and len(p.exporting) + len(p.hidden) > 1:
            return _unused(p)
    for said in evidence.refusals:
        if "second copy of ggml" in said:
            return Reason(
                "unused-copy", said, "run the part that uses the other copy in a process of its own"
            )
    return None


def _unused(p: Seen) -> Reason:
    copies = (*p.exporting, *p.hidden)
    return Reason(
        "unused-copy",
        f"{p.name} holds {len(copies)} copies of ggml ({_names(copies)}) and computes in one that did not "
        "load the plugin",
        "use a build of the engine that holds ggml once, or let the copy that computes load the plugin "
        "(ggml_backend_load)",
    )


def _names(paths: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(Path(p).name for p in paths))


def switched_off(command: Sequence[str]) -> str:
    """Return the option of a Python command that keeps it from the import hook; empty if there is none."""
    if not command or not re.match(r"(python|pypy)[\d.]*t?$", Path(command[0]).name):
        return ""
    words = iter(command[1:])
    for word in words:
        if not re.fullmatch(r"-[A-Za-z]+.*", word):
            break
        for i, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in "WX":  # the rest is the option's argument, or the next word
                if i == len(word) - 1:
                    next(words, None)
                break
    return ""
