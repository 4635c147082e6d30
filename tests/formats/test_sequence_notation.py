"""Sequences: every line of the notation, printing, and what hostile text is answered with."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.formats.cli import run
from tapedelay.formats.errors import LitmusError, MissingInput, UsageError
from tapedelay.formats.litmus import parse as parse_ops
from tapedelay.formats.sequence import (
    VERBS,
    Claim,
    Command,
    Drive,
    DriveInput,
    PoolLine,
    Row,
    Sequence,
    is_sequence,
    is_sequence_file,
    parse,
    print_sequence,
    read,
)

Capture = pytest.CaptureFixture[str]
CORPUS = Path(__file__).parents[1] / "corpus"

WHOLE = """\
# id: whole
# source: own

seq   # what follows is a sequence
engine deepinfer 0.1.0
config {"num_blocks": 17, "words": ["a # b"], "slots": null}
pool kv units=17 reserved=1 tokens=16
pool state units=4
prefix 1 of 0 from 0 to 32
> submit R0 prompt=30 max=3 priority=-
arrive R0
> step decode_only
alloc R0 kv1 kv2  # two units
-free R0 kv2
+note  any text # with this in it
launch S0 R0
> output
retire S0
cap slot 9223372036854775807
idle
> drain
violates: I3@6
fixed: violates: I3@5, I3@6
fixed: violates: I1@1
"""


def test_every_line() -> None:
    s = parse(WHOLE, name="/somewhere/whole.litmus")
    assert s.name == "whole.litmus"
    assert s.notes == {"id": "whole", "source": "own"}
    assert s.has_variants
    assert [c.text() for c in s.commands()] == [
        "arrive R0",
        "alloc R0 kv1 kv2",
        "free R0 kv2",
        "launch S0 R0",
        "retire S0",
        "cap slot 9223372036854775807",
        "idle",
    ]
    assert s.commands("fixed")[2] == Command("note", ("any text # with this in it",))
    assert s.rows[1] == Row(Command("alloc", ("R0", "kv1", "kv2")), "", "two units")
    assert s.stated() == (Claim(6, "I3"),)
    assert s.stated("fixed") == (Claim(1, "I1"), Claim(5, "I3"), Claim(6, "I3"))
    drive = s.drive
    assert drive is not None
    assert (drive.engine, drive.engine_version) == ("deepinfer", "0.1.0")
    assert drive.config == {"num_blocks": 17, "words": ["a # b"], "slots": None}
    assert drive.pools == (PoolLine("kv", 17, 1, 16), PoolLine("state", 4))
    assert drive.prefixes == ((1, 0, 0, 32),)
    assert [(i.verb, i.args, dict(i.values), i.before) for i in drive.inputs] == [
        ("submit", ("R0",), {"prompt": "30", "max": "3", "priority": None}, 0),
        ("step", ("decode_only",), {}, 1),
        ("output", (), {}, 5),
        ("drain", (), {}, 8),
    ]
    assert drive.inputs[0].spot is not None
    assert drive.inputs[0].spot.line == 10


def test_it_is_printed_and_read_again() -> None:
    s = parse(WHOLE, name="whole.litmus")
    text = print_sequence(s)
    assert parse(text, name="whole.litmus") == s
    assert print_sequence(parse(text)) == text
    assert "> step decode_only\nalloc R0 kv1 kv2  # two units\n" in text
    assert text.endswith("idle\n> drain\nviolates: I3@6\nfixed: violates: I1@1, I3@5, I3@6\n")


@pytest.mark.parametrize(
    ("verdicts", "buggy", "fixed"),
    [
        ("", None, None),
        ("clean", (), ()),
        ("violates: I3@2", (Claim(2, "I3"),), ()),
        ("fixed: violates: I10@1", None, (Claim(1, "I10"),)),
        ("fixed: clean", None, ()),
        ("violates: I3@2 # because\nfixed: clean", (Claim(2, "I3"),), ()),
    ],
)
def test_verdict_lines(verdicts: str, buggy: object, fixed: object) -> None:
    s = parse(f"seq\n-alloc R u\n+note\nidle\n{verdicts}\n")
    assert s.stated("buggy") == buggy
    assert s.stated("fixed") == fixed
    again = parse(print_sequence(s))
    assert (again.stated("buggy"), again.stated("fixed")) == (buggy, fixed)


def test_one_variant_is_both() -> None:
    s = parse("seq\nidle\nclean\n")
    assert not s.has_variants
    assert s.commands("buggy") == s.commands("fixed") == [Command("idle")]
    assert s.stated("fixed") == ()
    with pytest.raises(UsageError, match="variant 'other'"):
        s.commands("other")


def test_a_sequence_is_told_from_a_tape() -> None:
    for text in ("seq", "\n\n  # c\n# d: e\r\nseq\r\nidle\r\n", "\tseq # x\n", "seq\n1 | host | H\n"):
        assert is_sequence(text), text
    for text in ("", "# seq\n", "sequence\n", "1 | host | H\nseq\n", "seq idle\n", "clean\nseq"):
        assert not is_sequence(text), text
    with pytest.raises(LitmusError, match="a sequence of a request scheduler"):
        parse_ops("seq\nidle\n")
    assert is_sequence_file(CORPUS / "seq" / "B21.litmus")
    assert not is_sequence_file(CORPUS / "ops" / "B01.litmus")
    assert not is_sequence_file(CORPUS / "none.litmus")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sing R", "command 'sing'"),
        ("alloc R", "alloc with 1 argument "),
        ("alloc", "alloc with 0 arguments"),
        ("free R u:\x00", "name 'u:"),
        ("fill", "fill with 0 arguments"),
        ("launch S", "launch with 1 argument "),
        ("retire S T", "retire with 2 arguments"),
        ("idle now", "idle with 1 argument "),
        ("inc n x", "number 'x'"),
        ("inc n -1", "number '-1'"),
        ("inc n 9223372036854775808", "number '92"),
        ("dec n", "dec with 1 argument "),
        ("arrive " + "R" * 201, "name 'RRR"),
        ("arrive größe", "name 'größe'"),
        ("--free R u", "line '--free R u'"),
        ("seq", "command 'seq'"),
        ("1 | host | H", "line '1 | host | H'"),
        ("violates:", "claim ''"),
        ("violates: I11@1", "claim 'I11@1'"),
        ("violates: I0@1", "claim 'I0@1'"),
        ("violates: I1@0", "claim 'I1@0'"),
        ("violates: I1@2", "command 2"),
        ("violates: I1@1, I1@1", "I1@1 twice"),
        ("violates: I1@1\nviolates: I1@1", "I1@1 twice"),
        ("violates: I1@1\nclean", "`clean` beside other"),
        ("clean: yes", "'yes' after `clean`"),
        ("fixed: clean", "`fixed:` in a file without variants"),
        ("> step", "inputs without an engine"),
        ("config {}", "inputs without an engine"),
        ("engine", "engine ''"),
        ("engine a b c", "engine 'a b c'"),
        ("engine a\nengine a", "a second engine"),
        ("engine os:getcwd", "engine 'os:getcwd'"),
        ("engine os:getcwd 1.0", "engine 'os:getcwd 1.0'"),
        ("-engine a", "engine marked -"),
        ("engine a\nconfig [1]", "config '"),
        ("engine a\nconfig {", "config '{'"),
        ("engine a\nconfig " + "[" * 5000, "config '["),
        ('engine a\nconfig {"a": NaN}', "config '"),
        ("engine a\nconfig {}\nconfig {}", "a second config"),
        ("engine a\npool kv", "units"),
        ("engine a\npool kv units=-1", "units -1"),
        ("engine a\npool kv units=1 colour=red", "pool '"),
        ("engine a\npool kv units=1\npool kv units=1", "a second pool"),
        ("engine a\nprefix 1 of 1 from 0 to 2", "prefix '"),
        ("engine a\nprefix 1 of 0 from 2 to 2", "prefix '"),
        ("engine a\nprefix 99999999999999999999 of 0 from 0 to 2", "number '9999"),
        ("engine a\n> ", "input ''"),
        ("engine a\n> dance R0", "input 'dance'"),
        ('engine a\n> submit "R0', "words and key=value"),
        ("engine a\n> submit R0 a=1 a=2", "a second a="),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(LitmusError) as e:
        parse(f"seq\nidle\n{line}\n", name="f.litmus")
    assert message in f"{e.value.found} ({e.value.expected}"
    assert e.value.where.startswith("f.litmus:")
    assert e.value.expected or e.value.next_step


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line `seq`"),
        ("# only: a comment\n", "no line `seq`"),
        ("idle\n", "line 'idle'"),
        ("seq\n" + "idle\n" * 60_000, "more lines"),
        ("seq\n" + "x" * 65_537, "a line of 65537"),
        ("seq\nfill " + "u " * 30_000 + "\n" + ("fill " + "u " * 30_000 + "\n") * 6, "more arguments"),
        ("seq\n" + "#" * (8 << 20), "8388612 characters"),
    ],
)
def test_bounds(text: str, message: str) -> None:
    with pytest.raises(LitmusError) as e:
        parse(text)
    assert message in e.value.found


def test_files_that_cannot_be_read(tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(MissingInput):
        read(tmp_path / "none.litmus")
    os.mkfifo(tmp_path / "pipe.litmus")
    for words in (["check"], ["info"], ["rerun"], ["export", "--format", "litmus"]):
        assert run([words[0], str(tmp_path / "pipe.litmus"), *words[1:]]) == 3
        assert "no regular file" in capsys.readouterr().err
    bad = tmp_path / "bad.litmus"
    bad.write_bytes(b"seq\n\xff\n")
    with pytest.raises(LitmusError, match="not UTF-8"):
        read(bad)
    bad.write_text("seq\nfree R\n")
    for words in (
        ["check"],
        ["info"],
        ["info", "--dump"],
        ["info", "--validate"],
        ["export", "--format", "litmus"],
    ):
        assert run([words[0], str(bad), *words[1:]]) == 3
        assert "bad.litmus:2: free with 1 argument" in capsys.readouterr().err


def test_what_cannot_be_written_is_refused() -> None:
    for command in (
        Command("arrive", ("a b",)),
        Command("note", ("a\nb",)),
        Command("sing"),
        Command("inc", ("n", "x")),
    ):
        with pytest.raises(UsageError, match="cannot be written"):
            print_sequence(Sequence.of([command]))


def test_a_case_is_made_and_read_again() -> None:
    commands = [Command("arrive", ("R0",)), Command("idle")]
    drive = Drive(
        "toy",
        None,
        {"kv": 3},
        (),
        (),
        (DriveInput("submit", ("R0",), {"prompt": "3"}, 0), DriveInput("step", before=2)),
    )
    made = Sequence.of(commands, [Claim(2, "I3")], name="a/case.litmus", notes={"id": "case"}, drive=drive)
    text = print_sequence(made)
    assert text == (
        '# id: case\nseq\nengine toy\nconfig {"kv": 3}\n'
        "> submit R0 prompt=3\narrive R0\nidle\n> step\nviolates: I3@2\n"
    )
    assert parse(text, name="case.litmus") == made
    assert Sequence.of(commands).stated() is None
    assert parse(print_sequence(Sequence.of(commands, []))).stated() == ()


@settings(max_examples=200, derandomize=True, database=None)
@given(st.text(max_size=200))
def test_any_text_is_a_sequence_or_an_error(text: str) -> None:
    for given_text in (text, "seq\n" + text):
        try:
            made = parse(given_text)
        except LitmusError:
            continue
        assert parse(print_sequence(made)) == made


def test_mutated_files_are_sequences_or_errors() -> None:
    rng = random.Random(5)
    texts = [f.read_text() for f in sorted(CORPUS.glob("seq*/*.litmus"))] + [WHOLE]
    words = [*VERBS, "-", "+", "violates:", "I1@1", "#", ">", "\n", " ", "u", "engine", "\x00", "é"]
    good = 0
    for _ in range(2_000):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", rng.choice(words)]) + text[at + rng.randint(0, 6) :]
        try:
            made = parse(text)
        except LitmusError:
            continue
        good += 1
        assert parse(print_sequence(made)) == made
    assert 100 < good < 1_900


def test_info(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "whole.litmus"
    file.write_text(WHOLE)
    assert run(["info", str(file)]) == 0
    out = capsys.readouterr()
    assert "whole.litmus: a sequence of a request scheduler\n" in out.out
    assert "buggy      7 commands about 1 request, 2 units: arrive 1, alloc 1, free 1, " in out.out
    assert "states     I1@1, I3@5, I3@6\n" in out.out
    assert "made by    4 inputs to deepinfer 0.1.0\n" in out.out
    assert out.err == f"next: tapedelay check {file}\n"
    assert run(["info", "--dump", f"{file}:fixed"]) == 0
    assert "3 note any text # with this in it\n" in capsys.readouterr().out
    assert run(["info", "--dump", "--json", str(file)]) == 0
    assert '{"at": 1, "verb": "arrive", "args": ["R0"]}\n' in capsys.readouterr().out
    assert run(["info", "--validate", str(file)]) == 0
    assert run(["info", "--json", str(file)]) == 0
    assert '"engine": "deepinfer"' in capsys.readouterr().out


def test_other_commands_say_what_it_is(capsys: Capture) -> None:
    file = str(CORPUS / "seq" / "B66.litmus")
    for words in (["replay", file], ["replay", file, "--search"], ["export", file, "--format", "html"]):
        assert run(words) == 3
        assert "a sequence of a request scheduler" in capsys.readouterr().err
    assert run(["export", file, "--format", "litmus", "--ops", "1:2"]) == 2
    assert run(["export", file, "--format", "litmus"]) == 0
    assert parse(capsys.readouterr().out.removesuffix("")) == parse(Path(file).read_text())
