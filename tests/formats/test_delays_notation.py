"""Delay plans as text: both ways, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapedelay.formats.delays import (
    AFTER_END,
    BEFORE_ISSUE,
    BEFORE_START,
    EVERY,
    LAST,
    PLACES,
    Glob,
    Line,
    Pattern,
    Plan,
    parse_expression,
    parse_plan,
    plan_of,
    print_anchor,
    print_line,
    print_plan,
    print_time,
    read_plan,
)
from tapedelay.formats.delays.plan import (
    ANY_KIND,
    MAX_ANCHORS,
    MAX_LINE,
    MAX_NS,
    MAX_NTH,
    MAX_SEED,
)
from tapedelay.formats.errors import MissingInput, PlanError, VersionError
from tapedelay.formats.schema import OP_KINDS

HEAD = "tapedelay-plan 1\n"
WITHOUT_SURROGATES = st.characters(exclude_categories=["Cs"])
GLOBS = st.lists(st.sampled_from(["*", "?", "\\*", "\\?", '\\"', "\\\\"]) | WITHOUT_SURROGATES.filter(
    lambda c: c != "\\"), max_size=8).map("".join).map(Glob.of)  # fmt: skip
ANCHORS = st.integers(0, 10**18 - 1) | st.builds(
    Pattern,
    which=st.sampled_from([EVERY, LAST, 1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 111, 112])
    | st.integers(1, MAX_NTH),
    kind=st.sampled_from([*OP_KINDS, ANY_KIND]),
    name=st.none() | GLOBS,
    touching=st.none() | GLOBS,
    on=st.none() | GLOBS,
    further=st.sampled_from([0, 1, MAX_NTH]),
)
LINES = st.builds(
    Line,
    anchor=ANCHORS,
    ns=st.integers(0, MAX_NS) | st.sampled_from([1_000, 1_500_000, 3_000_000, 10**9]),
    place=st.sampled_from([BEFORE_ISSUE, BEFORE_START, AFTER_END]),
    seed=st.none() | st.integers(0, MAX_SEED),
    note=st.text(WITHOUT_SURROGATES, max_size=12),
)


@given(st.lists(LINES, max_size=5).map(tuple), st.lists(st.text(WITHOUT_SURROGATES, max_size=9), max_size=2))
def test_what_is_printed_reads_as_what_it_was(lines: tuple[Line, ...], notes: list[str]) -> None:
    plan = Plan(lines, tuple(notes))
    text = print_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert print_plan(again).splitlines()[-len(lines) or 99 :] == text.splitlines()[-len(lines) or 99 :]
    for line in lines:
        assert parse_expression(print_line(line)).lines == (line,)


def anchor(text: str) -> int | Pattern:
    (line,) = parse_expression(f"{text} +1ns").lines
    return line.anchor


def test_anchors() -> None:
    assert anchor("#75") == 75
    assert anchor("every op") == Pattern()
    assert anchor("first copy of model.input_embed on TAPE0") == Pattern(
        1, "copy", name=Glob.exactly("model.input_embed"), on=Glob.exactly("TAPE0")
    )
    assert anchor("last sync") == Pattern(LAST, "sync")
    assert anchor("2nd compute of norm-0 +12") == Pattern(2, "compute", Glob.exactly("norm-0"), further=12)
    assert anchor("2th op") == anchor("2nd op")
    assert anchor("1st op") == anchor("first op")
    quoted = anchor('17th memset of "#2 a \\"b\\" \\u{a}" touching "a b"')
    assert quoted == Pattern(17, "memset", Glob.exactly('#2 a "b" \n'), Glob.exactly("a b"))
    assert print_anchor(quoted) == '17th memset of "#2 a \\"b\\" \\u{a}" touching "a b"'
    assert anchor("every copy of on on of") == Pattern(
        EVERY, "copy", Glob.exactly("on"), on=Glob.exactly("of")
    )
    assert print_anchor(Pattern(22)) == "22nd op"
    assert print_anchor(Pattern(112)) == "112th op"


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("3ms", 3_000_000), ("1.5us", 1_500), ("0ns", 0), ("3600s", MAX_NS), ("0.000000001s", 1),
        ("1.50ms", 1_500_000),
    ],
)  # fmt: skip
def test_times(text: str, ns: int) -> None:
    assert parse_expression(f"#1 +{text}").lines[0].ns == ns


def test_times_are_printed_in_the_largest_unit_that_holds_them() -> None:
    assert [print_time(n) for n in (0, 1, 1_000, 1_500, 3_000_000, 2 * 10**9)] == [
        "0ns", "1ns", "1us", "1500ns", "3ms", "2s",
    ]  # fmt: skip


def test_places_and_random() -> None:
    (line,) = parse_expression("#1 +1ns after_end").lines
    assert line.place == AFTER_END
    (line,) = parse_expression("#1 +1ns").lines
    assert line.place == BEFORE_START
    for text in (
        "seed=7 max=200us",
        "random seed=7 max=200us",
        "random seed=7 max=200us every op before_start",
    ):
        assert parse_expression(text).lines == (Line(Pattern(), 200_000, seed=7),)
    (line,) = parse_expression("seed=0 max=1us every copy on TAPE* before_issue").lines
    assert line == Line(Pattern(EVERY, "copy", on=Glob.of("TAPE*")), 1_000, BEFORE_ISSUE, 0)
    assert parse_expression("seed=1 max=1us after_end").lines[0].place == AFTER_END


def test_comments_and_op_ids() -> None:
    plan = parse_plan(
        "# above\n\n" + HEAD + "# first\n#second\n##3 +1ms\n\t #12 +1ms # why #13\r\n"
        "# between\n#13 +1ms\nfirst copy of a#b +1ms #\n"
    )
    assert [n.anchor for n in plan.lines] == [12, 13, Pattern(1, "copy", Glob.exactly("a#b"))]
    assert [n.note for n in plan.lines] == ["why #13", "", ""]
    assert [n.number for n in plan.lines] == [7, 9, 10]
    assert plan.notes == ("above", "first", "second", "#3 +1ms")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("first copy of", "the end of the line"),
        ("first", "the end of the line"),
        ("first copy", "+TIME"),
        ("copy of a +1ms", "'copy'"),
        ("frist copy +1ms", "'frist'"),
        ("first kopy +1ms", "'kopy'"),
        ("0th copy +1ms", "'0th'"),
        ("99999999999th copy +1ms", "'99999999999th'"),
        ('first copy of "a +1ms', "an open quote"),
        ('first copy of a"b" +1ms', "a blank between words"),
        ('first copy of "a"b +1ms', "a blank between words"),
        ('first copy of "a"# +1ms', "a blank between words"),
        ('first copy of "\\q" +1ms', "a backslash"),
        ('first copy of "\\u{d800}" +1ms', "a backslash"),
        ('first copy of "\\u{110000}" +1ms', "a backslash"),
        ("first copy of a\\b +1ms", "a name"),
        ("first copy of é +1ms", "a name"),
        ("first copy on A of B +1ms", "`of` here"),
        ("first copy on A on B +1ms", "`on` here"),
        ("first copy +0 +1ms", "+K"),
        ("first copy +1 +2 +1ms", "+TIME"),
        ("first copy +1", "+TIME"),
        ("#12", "+TIME"),
        ("#12a +1ms", "'#12a'"),
        ("#1234567890123456789 +1ms", "an op id"),
        ("#12 +1", "a unit"),
        ("#12 +1h", "a unit"),
        ("#12 1ms", "a unit"),
        ("#12 +-1ms", "a unit"),
        ("#12 +1e3ms", "a unit"),
        ("#12 +2.5ns", "a whole number of nanoseconds"),
        ("#12 +3601s", "at most 3600 s"),
        ("#12 +9999999999999s", "at most 3600 s"),
        ("#12 +99999999999999s", "a unit"),
        ("#12 +1ms nowhere", "'nowhere'"),
        ("#12 +1ms after_end after_end", "the end of the line"),
        ("#12 +1ms #13", "'#13'"),
        ("seed=-1 max=1ms", "seed=N"),
        ("seed=18446744073709551616 max=1ms", "seed=N"),
        ("random max=1ms", "seed=N"),
        ("seed=1", "max=TIME"),
        ("seed=1 max=1", "a unit"),
        ("seed=1 max=1ms +1ms", "'+1ms'"),
        ("random seed=1 max=1ms every op +1ms", "'+1ms'"),
        ("#12 +1ms \x07", "U+0007"),
        ("#12\x0b+1ms", "U+000B"),
        ("#12 +1ms\u2028#13 +1ms", "U+2028"),
        ("#12 +1ms # " + "x" * MAX_LINE, "characters"),
        ("first copy +٣ms", "+TIME"),
    ],
)
def test_what_is_refused_names_its_line(line: str, found: str) -> None:
    with pytest.raises(PlanError) as e:
        parse_plan(f"{HEAD}\n{line}\n", "my.delays")
    assert e.value.where == "my.delays:3"
    assert found in e.value.text()
    assert e.value.next_step


@pytest.mark.parametrize(
    "text", ["", "\n", "# only\n", "#12 +1ms\n", "tapedelay-plan\n#12 +1ms", "tapedelay 1\n"]
)
def test_a_file_begins_with_its_header(text: str) -> None:
    with pytest.raises(PlanError, match="tapedelay-plan 1"):
        parse_plan(text)


def test_another_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(VersionError, match=r"version '2'.*expected version 1"):
        parse_plan("tapedelay-plan 2\nsomething new\n")


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapedelay.formats.delays.parse.MAX_LINES", 2_000)
    for line in ("#1 +1ns before_start\n", "#1 +1ns\n"):
        assert len(parse_plan(HEAD + line * 2_000).lines) == 2_000
        with pytest.raises(PlanError, match=r"plan:2002: more than 2,000 delays"):
            parse_plan(HEAD + line * 2_001)
    patterns = [f"every op of t{i} +1ns\n" for i in range(MAX_ANCHORS + 1)]
    with pytest.raises(PlanError, match=r"plan:1002: more than 1,000 patterns that differ in more"):
        parse_plan(HEAD + "".join(patterns))
    assert len(parse_plan(HEAD + "".join(patterns[:-1])).lines) == MAX_ANCHORS
    for which in ("first", "2nd", "last"):  # counts make no other pattern
        parse_plan(HEAD + "".join(patterns[:-1]) + f"{which} op of t0 +1 +1ns\n")
    with pytest.raises(PlanError, match="lines"):
        parse_plan(HEAD + "\n" * 4_001)


def test_a_line_that_counts_reads_the_same_in_any_spelling() -> None:
    for anchor in ("17th copy on TAPE0", "first sync on host0", "2nd op on a.b_2", "113th wait on Vulkan0"):
        for time in ("57us", "1ns", "3600s"):
            plain = parse_plan(f"{HEAD}{anchor} +{time} after_end\n")
            assert plain == parse_plan(f"{HEAD}  {anchor}  +{time} after_end # note\n")
            assert print_plan(plain).splitlines()[1] == f"{anchor} +{time} after_end"
    for wrong in (
        "0th copy on A +1us",
        "first copi on A +1us",
        "first copy on A +3601s",
        "first copy on +1us",
    ):
        with pytest.raises(PlanError):
            parse_plan(f"{HEAD}{wrong} after_end\n")


def test_a_hundred_thousand_lines_of_one_pattern() -> None:
    lines = "".join(f"{i}th copy on TAPE0 +57us before_start\n" for i in range(4, 100_004))
    plan = parse_plan(HEAD + lines)
    assert print_plan(plan) == HEAD + lines.replace("1th", "1st").replace("2th", "2nd").replace(
        "3th", "3rd"
    ).replace("11st", "11th").replace("12nd", "12th").replace("13rd", "13th")


@given(
    st.text(max_size=60)
    | st.text(st.sampled_from('#+"\\ first copy of on\n1ms2nd*?seed=max{}u'), max_size=60)
)
def test_any_text_is_a_plan_or_a_plan_error(text: str) -> None:
    try:
        plan = parse_expression(text)
    except PlanError:
        return
    assert parse_plan(print_plan(plan)) == plan


@given(GLOBS, st.text(WITHOUT_SURROGATES, max_size=8))
def test_a_glob_matches_what_a_regular_expression_matches(glob: Glob, name: str) -> None:
    parts = {"any": ".*", "one": "."}
    pattern = "".join(parts.get(t) or re.escape(t) for t in glob.tokens)
    assert glob.matches(name) == (re.fullmatch(pattern, name, re.S) is not None)
    assert Glob.exactly(name).matches(name)
    assert Glob.exactly(name).literal == name


def test_a_hostile_glob_ends() -> None:
    assert not Glob.of("*a" * 200 + "b").matches("a" * 2_000)


def test_files_and_expressions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my.delays"
    path.write_text(HEAD + "#1 +1ms\n")
    assert plan_of(str(path)) == plan_of("#1 +1ms") == read_plan(path)
    Path("#1 +1ms").write_text(HEAD + "#2 +2ms\n")
    assert plan_of("#1 +1ms").lines[0].anchor == 2  # a file comes first
    assert plan_of("#3 +1ms\n#4 +1ms").lines[1].anchor == 4
    with pytest.raises(MissingInput):
        plan_of("missing.delays")
    with pytest.raises(MissingInput):
        plan_of(str(tmp_path))
    with pytest.raises(PlanError, match="--delays:1"):
        plan_of("frist copy +1ms")
    with pytest.raises(PlanError, match="no delay"):
        plan_of("# 12")
    with pytest.raises(PlanError, match="UTF-8"):
        plan_of("first copy of \udcff +1ms")
    path.write_bytes(HEAD.encode() + b"\n# \xff\n")
    with pytest.raises(PlanError, match=r"my\.delays:3"):
        read_plan(path)
    path.write_bytes(b"x" * ((32 << 20) + 1))
    with pytest.raises(PlanError, match="bytes"):
        read_plan(path)
    with pytest.raises(MissingInput, match="regular"):
        read_plan("/dev/null")


def test_the_examples_of_the_specification_are_plans() -> None:
    text = (Path(__file__).resolve().parents[2] / "formats/DELAYS.md").read_text()
    blocks = re.findall(r"(?:^    .*\n)+", text, re.M)
    plain = [re.sub(r"^    ", "", b, flags=re.M) for b in blocks]
    (whole,) = [b for b in plain if b.startswith("tapedelay-plan")]
    assert [n.number for n in parse_plan(whole).lines] == [3, 4, 5]
    (names,) = [b for b in plain if b.startswith("first compute of")]
    first, second = parse_expression(names).lines
    assert isinstance(first.anchor, Pattern)
    assert isinstance(second.anchor, Pattern)
    assert first.anchor.name is not None
    assert first.anchor.name.matches("cache_r_l7 (reshaped) (view)")
    assert second.anchor.on == Glob.exactly("TAPE*0")
    (commands,) = [b for b in plain if b.startswith("tapedelay replay")]
    for expression in re.findall(r"--delays '(.*?)'", commands):
        assert parse_expression(expression).lines
    for place in PLACES:
        assert f"`{place}`" in text


def test_a_pipe_is_refused_before_anything_waits_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingInput, match="no regular file"):
        read_plan(tmp_path / "pipe")
    with pytest.raises(MissingInput, match="no regular file"):
        read_plan(tmp_path)
