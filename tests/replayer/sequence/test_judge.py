"""What the judge says, what it remembers, and that no input makes it slow or verbose."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.errors import UsageError
from tapedelay.formats.sequence import INVARIANTS, VERBS, Command, parse
from tapedelay.replayer.sequence import Judge, judge
from tapedelay.replayer.sequence import report as reports
from tapedelay.replayer.sequence.report import Seen, report_on

Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.counted
SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))


def commands(text: str) -> list[Command]:
    """Return commands that stand between semicolons."""
    return parse("seq\n" + text.replace(";", "\n")).commands()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alloc A u; share B u; alloc C u v", "I1@3: u (owned by A, B) handed out to C"),
        ("alloc A u; share A u", "I1@2: A shares u, which it owns already"),
        ("free A u", "I1@1: A frees u, which nobody owns"),
        ("alloc A u; free B u v", "I1@2: B frees v, which nobody owns and u (owned by A)"),
        ("take n A; give n B", "I1@2: B gives back n, which it has not taken"),
        ("alloc A u; launch S A u; launch T A u; free A u", "I2@4: A frees u (in flight in S, T)"),
        ("alloc A u; launch S A u; retire S; launch T A u; free A u", "I2@5: A frees u (in flight in T)"),
        ("alloc A u; take n B; take n B; idle", "I3@4: idle, but u (owned by A), n (taken by B) are held"),
        ("take n B; idle", "I3@2: idle, but n (taken by B) is held"),
        ("launch S A u", "I4@1: S uses u (owned by nobody) for A"),
        ("alloc B u; launch S A u", "I4@2: S uses u (owned by B) for A"),
        ("arrive A; pass; pass; pass", "I5@4: 3 passes in a row without progress while A waits"),
        ("put m A; put m B", "I6@2: message B in mailbox m overwrites A, which nobody has read"),
        ("put m A; get m B", "I6@2: B reads the message of A from mailbox m"),
        ("get m B", "I6@1: B reads mailbox m, which holds no message"),
        ("inc n 3; dec n 5", "I7@2: counter n becomes -2"),
        ("arrive A; abort A; emit A", "I8@3: output of A is shown after its abort"),
        ("cap n 1; take n A; take n B", "I9@3: B takes n: 2 taken of 1 (by A, B)"),
        ("fill u; read u v", "I10@2: v read, never filled since it was handed out"),
    ],
)
def test_what_is_said(text: str, said: str) -> None:
    (found,) = judge(commands(text))
    assert found.text() == said
    assert found.claim().text() == said.split(":")[0]
    data = found.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["says"] == INVARIANTS[found.invariant]


def test_the_sort_of_a_mistake_does_not_depend_on_names_and_numbers() -> None:
    small, large = (
        commands("alloc A u; free A u; free A u"),
        commands("alloc B v w; free B v w; free B v w x"),
    )
    (a,), (b,) = judge(small), judge(large)
    assert (a.invariant, a.what) == (b.invariant, b.what)
    assert (a.names, b.names) == (("u",), ("v", "w", "x"))


def test_what_it_knows() -> None:
    checker = Judge()
    for c in commands("alloc A u v; share B u; launch S A u u v; launch S B u; free A v"):
        checker.feed(c)
    assert checker.count == 5
    assert checker.held() == {"u": ("A", "B")}
    assert checker.in_flight() == {"S": ("u", "v")}
    checker.feed(Command("retire", ("S",)))
    assert checker.in_flight() == {}


def test_every_verb_is_known_and_malformed_commands_are_refused() -> None:
    examples = {"R": "A", "n": "1", "u...": "u"}
    for verb, form in VERBS.items():
        args = tuple(examples.get(w, "x") for w in form.split())
        Judge().feed(Command(verb, args))
        if form and verb != "note":
            with pytest.raises(UsageError, match=f"{verb} with 0 arguments"):
                Judge().feed(Command(verb))
    for command in (
        Command("sing"),
        Command("idle", ("now",)),
        Command("inc", ("n", "x")),
        Command("cap", ("n", "9" * 5000)),
    ):
        with pytest.raises(UsageError):
            Judge().feed(command)


def test_nothing_grows_with_the_number_of_commands() -> None:
    checker = Judge()
    for n in range(2_000):
        for c in commands(f"alloc R u; fill u; launch S{n} R u; retire S{n}; free R u; take s R; give s R"):
            assert checker.feed(c) == []
    left = {
        k: v
        for k, v in vars(checker).items()
        if isinstance(v, (dict, set, list)) and k != "_do" and len(v) > 1
    }
    assert left == {}


# --- many of everything ---


def of_many(kind: str, n: int) -> list[str]:
    """Return the lines of a file that is wrong throughout: at n = 59,990 as large as it may be."""
    third = range(n // 3 - 2)
    units = " ".join(f"u{i}" for i in range(min(n, 9_000)))
    if kind == "held at each idle":
        return [f"alloc A {units}", *["idle"] * (n - 2)]
    if kind == "owners of one unit":
        shares, allocs = (f"share B{i} u" for i in third), (f"alloc C{i} u" for i in third)
        return ["alloc A u", *shares, *allocs, *(f"free X{i} u" for i in third)]
    if kind == "steps that use one unit":
        return ["alloc A u", *(f"launch S{i} A u" for i in third), *["free A u", "alloc A u"] * len(third)]
    if kind == "takers":
        return ["cap n 0", *(f"take n A{i}" for i in third), *["idle"] * len(third)]
    if kind == "that wait":
        return [*(f"arrive A{i}" for i in third), *["progress", "pass", "pass", "pass"] * (n // 6 - 2)]
    assert kind == "kinds"
    return [f"dec {chr(97 + i % 26)}{'x' * (i // 26)} 1" for i in range(n // 20)]


@pytest.mark.parametrize(
    "kind",
    ["held at each idle", "owners of one unit", "steps that use one unit", "takers", "that wait", "kinds"],
)
def test_a_file_that_is_wrong_throughout(kind: str, tmp_path: Path, capsys: Capture) -> None:
    """It takes time in proportion to its size, and what is printed is of a length that suits people."""
    lines = of_many(kind, 59_990 if SOAK else 6_000)
    file = tmp_path / "many.litmus"
    file.write_text("\n".join(["seq", *lines]) + "\n")
    assert run(["check", str(file)]) == 1
    out = capsys.readouterr().out
    count = int(out.split(" ")[1].replace(",", ""))
    assert len(lines) // 10 < count <= len(lines)
    assert max(map(len, out.splitlines())) < 400


def test_more_violations_and_kinds_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_MAX_KINDS", 3)
    told = [Command("dec", (name * 2, "1")) for name in "abcdefgh"] * 5
    report = report_on("x", lambda: map(Seen, told), limit=7)
    assert len(report.violations) == 7
    assert sum(k.count for k in report.kinds) == report.found == 40
    assert len(report.kinds) == 4


def test_kinds_of_violations(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "kinds.litmus"
    file.write_text("seq\nalloc A k1\nalloc A k1\nalloc A s1\nalloc A s1\nalloc A k1\nclean\n")
    assert run(["check", str(file)]) == 1
    out = capsys.readouterr()
    assert "VIOLATION  I1@2 handed out while owned  2 times, first:" in out.out
    assert "VIOLATION  I1@4 handed out while owned  once" in out.out
    assert "verdict lines: differ: expected clean, found violates: I1@2, I1@4, I1@5\n" in out.out
    assert out.err == f"next: tapedelay info {file}\n"
    assert run(["check", str(file), "--all"]) == 1
    assert "    command 5: k1 (owned by A) handed out to A\n" in capsys.readouterr().out
    assert run(["check", str(file), "--expect"]) == 1
    file.write_text("seq\nalloc A k1\nviolates: I3@1\n")
    assert run(["check", str(file), "--expect"]) == 1
    assert run(["check", str(file)]) == 0
    file.write_text("seq\nidle\n")
    capsys.readouterr()
    assert run(["check", str(file), "--expect"]) == 2
    assert "--expect without verdict lines" in capsys.readouterr().err


def test_what_comes_next(tmp_path: Path, capsys: Capture) -> None:
    """The repaired variant where there is one; the engine where the file says how it was made."""
    file = tmp_path / "case.litmus"
    file.write_text("seq\nengine toy 1\n> step\nalloc A u\nidle\nviolates: I3@2\n")
    assert run(["check", str(file)]) == 1
    assert capsys.readouterr().err == f"next: tapedelay rerun {file} --engine toy\n"
    file.write_text("seq\nalloc A u\n+free A u\nidle\nviolates: I3@2\n")
    assert run(["check", str(file)]) == 1
    assert capsys.readouterr().err == f"next: tapedelay check {file} --variant fixed\n"
    assert run(["check", f"{file}:fixed"]) == 0
    assert capsys.readouterr().err == f"next: tapedelay info {file}:fixed\n"
