"""The delays that `check` names: what hides and what shows a finding, and a kind of findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.delays import match_plan, parse_expression
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.command import render
from tapedelay.replayer.program import Program

ROOT = Path(__file__).parents[2]
BAD = ROOT / "traces" / "ggml-26040-bad.tape.zip"
B01 = ROOT / "tests" / "corpus" / "ops" / "B01.litmus"
HEAD = "device CPU host\ndevice V gpu\nhost H CPU\nqueue vk0 V\nqueue vk1 V\n"


def text_of(tape: Tape) -> str:
    return "\n".join(render(check_tape(tape)))


def wrong_reads(tape: Tape, *lines: str) -> int:
    """Wrong reads of a replay with these lines."""
    loaded = VirtualBackend().load(Program.from_tape(tape), Options())
    return loaded.run(match_plan(parse_expression("\n".join(lines)), tape).delays).wrong_count


def test_a_recording_of_many_findings_names_what_hides_and_shows_all_of_them() -> None:
    tape = load_tape(BAD)
    report = check_tape(tape)
    (group,) = report.groups
    assert group.count == 18
    hides, shows = group.delays_hide, group.delays_show
    assert hides == (
        'every compute of "cache_r_l0 (reshaped) (view) (view)" on host0 +10ms before_issue',
        "every compute of conv_states-0 on host0 +10ms before_issue",
    )
    assert shows == ("every copy of model.input_embed on TAPE0 +3ms before_start",)
    ids = tape.table("ops").column("op")
    for lines, ops in (
        (hides, {f.second for f in report.findings}),
        (shows, {f.first for f in report.findings}),
    ):
        delayed = match_plan(parse_expression("\n".join(lines)), tape).delays.row
        assert {ids[int(r)].as_py() for r in delayed} >= ops
    told = group.as_dict()
    assert told["hidden_by"][-1] == {"kind": "delays", "lines": list(hides)}
    assert told["shown_by"] == [{"kind": "delays", "lines": list(shows)}]
    text = text_of(tape)
    assert (
        "  delays of the second at its issue hide them (from the answer, not from check):\n"
        f"    `{hides[0]}`\n    `{hides[1]}`\n"
        f"  a delay of the first on its queue shows them: `{shows[0]}`\n"
    ) in text


def test_they_do_what_they_say() -> None:
    tape = load_tape(BAD)
    (group,) = check_tape(tape).groups
    assert wrong_reads(tape, *group.delays_show) > 0
    assert wrong_reads(tape, *group.delays_show, *group.delays_hide) == 0
    # Those of the first one alone leave the others.
    one = group.example
    assert wrong_reads(tape, one.delay_shows) > 0
    assert wrong_reads(tape, one.delay_shows, one.delay_hides) == 0
    assert wrong_reads(tape, *group.delays_show, one.delay_hides) > 0


def test_of_one_finding() -> None:
    tape = load_tape(B01)
    (group,) = check_tape(tape).groups
    one = group.example
    assert group.count == 1
    assert group.delays_hide == (one.delay_hides,)
    assert group.delays_show == (one.delay_shows,)
    text = text_of(tape)
    assert (
        f"a delay of the second at its issue hides it (from the answer, not from check): `{one.delay_hides}`"
    ) in text
    assert f"a delay of the first on its queue shows it: `{one.delay_shows}`" in text
    assert wrong_reads(tape, one.delay_shows) > 0
    assert wrong_reads(tape, one.delay_shows, one.delay_hides) == 0


@pytest.mark.parametrize(
    ("names", "hides"),
    [
        (3, tuple(f"every kernel of k{i} on vk1 +10ms before_issue" for i in range(3))),
        (9, ("every kernel on vk1 +10ms before_issue",)),
    ],
)
def test_ops_of_many_names_are_named_by_kind_and_queue(names: int, hides: tuple[str, ...]) -> None:
    rows = "1 | copy | vk0 | M0:name=m | D0 | | name=c\n"
    rows += "".join(f"1{i} | kernel | vk1 | | M0:name=m | | name=k{i}\n" for i in range(names))
    (group,) = check_tape(parse(HEAD + rows).tape()).groups
    assert group.count == names
    assert group.delays_hide == hides
    assert group.delays_show == ("every copy of c on vk0 +3ms before_start",)


def test_where_one_line_would_hold_up_both_only_the_first_is_told() -> None:
    # Each copy of the queue races with the others, and all have one name.
    rows = "".join(f"{i} | copy | vk0 | | D0 | | name=x\n" for i in range(1, 4))
    tape = parse(HEAD.replace("queue vk0 V", "queue vk0 V order=out") + rows).tape()
    (group,) = check_tape(tape).groups
    assert group.count > 1
    assert group.delays_hide == group.delays_show == ()
    line = group.example.delay_hides
    assert f"hides the first of them alone (from the answer, not from check): `{line}`" in text_of(tape)
