"""``make demo``: a real llama.cpp, recorded without a GPU, its race named, and shown by one delay.

Two demonstrations. *tiny*: upstream bug #26040 before and after its fix, on a tiny model with random weights;
both tapes are replayed with the delay that shows the race of the first, and both engines run with late
copies.
*smollm2*: a real model on a real prompt with the newest engine, on two devices, each device profile in turn.
Either one fails when a tape does not show what it must show.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...formats.errors import InfrastructureError, TapedelayError
from . import engines
from .commands import engine_environment, prompt_program, record_arguments, record_program, shown
from .screen import DemoError, Screen

__all__ = ["main"]

PROMPT_TOKENS = 150
UBATCH_TOKENS = 32
RACING_PAIR = ("input_embed", "conv_states")
"""Tensors of upstream bug #26040: the copy of the first against the CPU compute that writes the second."""

LATE = "every copy on TAPE0 +20ms"
"""Delay that the engines run under: long, so that it counts on a busy machine, too."""

STORY = Path(__file__).resolve().parent / "story.txt"
"""A prompt of 91 tokens."""
PROFILES = (("vulkan-like", False), ("cuda-like", False), ("full-async", True))
"""Device profiles, and whether the newest engine has findings under them."""
KNOWN = Path(__file__).resolve().parent / "known.json"
"""Findings of the newest engine that are real and change no answer; ``check --baseline`` takes the file.

When a server of llama.cpp starts it decodes two tokens to see what its memory can do, then clears that memory
(``llama_memory_clear``) and only then waits for the decode (``llama_synchronize``). The file names the KV
memory of attention layers and the recurrent state of hybrid models, on one and two devices, under every
profile; no run shows all of them.
"""


@dataclass(frozen=True)
class Stage:
    """One recording of the demonstration and what its tape must show."""

    title: str
    tape: str
    version: str
    races: bool
    profile: str
    devices: int
    program: list[str]


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; return 0 if every tape showed what it must."""
    parser = argparse.ArgumentParser(prog="python -m tapedelay.recorder.demo", description=__doc__)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the tapes (default: out)")
    options = parser.parse_args(arguments)
    screen = Screen()
    start = time.monotonic()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if options.model == "tiny":
            shows = [str(_demo_bug(screen, options.out))]
        else:
            shows = ["--baseline", os.path.relpath(KNOWN), str(_demo_smollm2(screen, options.out))]
    except DemoError as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot write to {options.out}: {error.strerror}", file=sys.stderr)
        return InfrastructureError.exit_code
    except TapedelayError as error:
        print(error.text(), file=sys.stderr)
        return error.exit_code
    screen.line(f"done in {time.monotonic() - start:.0f} s")
    screen.line(f"next: {_our_command()} check {shlex.join(shows)}")
    return 0


def _our_command() -> str:
    """Return how the user can type our command: its environment may not be the active one."""
    python = Path(sys.executable)
    script = python.with_name("tapedelay")
    first, rest = (script, []) if script.is_file() else (python, ["-m", "tapedelay"])
    nearby = os.path.relpath(first)
    return shlex.join([str(first) if nearby.startswith(os.pardir) else nearby, *rest])


def _demo_bug(screen: Screen, out: Path) -> Path:
    """Record, check and compare both builds; return the tape that races."""
    screen.line("llama.cpp bug #26040: a copy to the device still reads memory that the CPU writes again.")
    screen.line(
        "The same program on the build before the fix and on the one after it; one test device, no GPU."
    )
    program = prompt_program(
        engines.tiny_model(),
        "--prompt-tokens",
        str(PROMPT_TOKENS),
        "--ubatch",
        str(UBATCH_TOKENS),
        "--kv-host",
    )
    stages = [
        Stage("before the fix", "ggml-26040-bad", engines.XLLAMACPP_RACY, True, "vulkan-like", 1, program),
        Stage("after the fix", "ggml-26040-good", engines.XLLAMACPP_FIXED, False, "vulkan-like", 1, program),
    ]
    answers, tapes, ready = [], [], []
    for stage in stages:
        screen.line(f"\n== {stage.title}: xllamacpp {stage.version}")
        try:
            with screen.working(f"install xllamacpp {stage.version}"):
                packages = engines.xllamacpp(stage.version)
        except InfrastructureError as error:
            tape = _committed(stage.tape, error)
            screen.line(f"  {error.text()}")
            screen.line("  so the tape of the same run that comes with the sources is checked instead")
        else:
            tape = out / f"{stage.tape}.tape"
            answers.append(_record(screen, stage, packages, tape))
            ready.append((stage, packages))
        found = screen.judged("check", tape)
        _expect(found, stage.races, tape, RACING_PAIR)
        tapes.append(tape)
    screen.line()
    if len(answers) == len(stages):
        screen.line(
            "The answers differ: the race showed."
            if answers[0] != answers[1]
            else "The answers are equal: by luck, and the race is named all the same."
        )
    _show(screen, tapes[0], tapes[1], out / "ggml-26040.delays")
    if ready:
        _show_in_engine(screen, ready, out)
    screen.line(f"tapes: {', '.join(str(tape) for tape in tapes)}")
    return tapes[0]


def _show(screen: Screen, bad: Path, good: Path, plan: Path) -> None:
    """Search the delay that shows the race, and replay both tapes with it."""
    screen.line("\n== one delay shows it")
    screen.told("replay", "--search", "--write-plan", plan, "--force", bad)
    screen.line("\n  the tape from before the fix, with that delay:")
    done = screen.told("replay", "--delays", plan, bad)
    if done.code != 1 or not all(name in done.out for name in ("CONFIRMED", *RACING_PAIR)):
        raise DemoError(f"{bad}: the delay that shows the race did not show it")
    screen.line("\n  the tape from after the fix, with the same delay:")
    if screen.told("replay", "--delays", plan, good).code:
        raise DemoError(f"{good}: a wrong read with the same delay, expected none")
    screen.line()


def _show_in_engine(screen: Screen, ready: list[tuple[Stage, Path]], out: Path) -> None:
    """Run each build on synchronous devices and with late copies: the answers differ before the fix only."""
    screen.line("== the engine itself, with all copies to the device late")
    for stage, packages in ready:
        screen.line(f"\n  {stage.title}:")
        tape = out / f"{stage.tape}-late.tape"
        right = _record(screen, stage, packages, out / f"{stage.tape}-sync.tape", sync=True)
        late = _record(screen, stage, packages, tape, delays=LATE)
        wrong = late != right
        if wrong is not stage.races:
            expected = "another answer than" if stage.races else "the answer"
            raise DemoError(f"{tape}: with late copies, expected {expected} on synchronous devices")
        screen.line(f"  the delayed answer is {'WRONG' if wrong else 'right'}")
    screen.line()


def _demo_smollm2(screen: Screen, out: Path) -> Path:
    """Record and check every profile; return the last tape, which races."""
    version = engines.XLLAMACPP_NEWEST
    screen.line(f"SmolLM2-135M on xllamacpp {version}: a real prompt, two test devices, no GPU.")
    with screen.working(f"install xllamacpp {version}"):
        packages = engines.xllamacpp(version)
    with screen.working("fetch SmolLM2-135M (98 MB)"):
        model = engines.smollm2_model()
    program = prompt_program(
        model, "--prompt-file", str(STORY), "--ubatch", str(UBATCH_TOKENS), "--n-predict", "32"
    )
    tapes = []
    for profile, races in PROFILES:
        stage = Stage(f"profile {profile}", f"smollm2-{profile}", version, races, profile, 2, program)
        screen.line(f"\n== {stage.title}")
        tape = out / f"{stage.tape}.tape"
        _record(screen, stage, packages, tape)
        found = screen.judged("check", "--baseline", os.path.relpath(KNOWN), tape)
        _expect(found, stage.races, tape, ("copy", "embd") if stage.races else ())
        tapes.append(tape)
    screen.line(f"\ntapes: {', '.join(str(tape) for tape in tapes)}")
    return tapes[-1]


def _record(
    screen: Screen, stage: Stage, packages: Path, tape: Path, *, sync: bool = False, delays: str | None = None
) -> list[int]:
    arguments = record_arguments(
        tape, stage.program, devices=stage.devices, profile=stage.profile, sync=sync, delays=delays
    )
    arguments.insert(1, "--force")
    screen.line(f"  $ PYTHONPATH={os.path.relpath(packages)} {shown(arguments)}")
    with screen.working("record"):
        answer = record_program(arguments, engine_environment(packages)).answer
    tokens: list[int] = answer["tokens"]
    screen.line(f"  tokens: {' '.join(map(str, answer['tokens']))}")
    if stage.tape.startswith("smollm2"):
        screen.line(f"  text: {json.dumps(answer['text'].strip())}")
    return tokens


def _expect(found: dict[str, Any], races: bool, tape: Path, pair: tuple[str, ...]) -> None:
    findings = [finding for finding in found["findings"] if not finding["accepted"]]
    if not races:
        if findings:
            raise DemoError(f"{tape}: {len(findings)} findings, expected none")
        return
    named = [f for f in findings if all(name in str(f) for name in pair)]
    if not named:
        raise DemoError(f"{tape}: expected a race of {' and '.join(pair)}, found {findings}")


def _committed(name: str, error: InfrastructureError) -> Path:
    tape = Path(__file__).resolve().parents[2] / "traces" / f"{name}.tape.zip"
    if not tape.is_file():
        raise error
    return tape
