"""The page about a finding."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.edges import resolve
from tapedelay.formats.exporters.mark import Mark
from tapedelay.formats.exporters.page import finding_page
from tapedelay.formats.exporters.page.scene import MAX_SHOWN, Scene, scene
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape

ROOT = Path(__file__).resolve().parents[3]
BAD = ROOT / "traces" / "ggml-26040-bad.tape.zip"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags, attributes and text; fails where tags do not balance."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def mark_of(tape: Tape, *labels: str, link: str = "missing edge", text: str = "nothing orders them") -> Mark:
    known = tape.table("ops").column("label").to_pylist()
    rows = tuple(known.index(name) for name in labels)
    return Mark("RACE WAR on `M`", text, rows, labels, link, (("found", "once"),))


def scene_of(text: str, *labels: str, link: str = "missing edge") -> tuple[Scene, dict[str, int]]:
    tape = parse(text).tape()
    contract = resolve(tape)
    edges = (contract.source, contract.target, contract.rule)
    rows = {name: row for row, name in enumerate(tape.table("ops").column("label").to_pylist())}
    return scene(tape, mark_of(tape, *labels, link=link), edges), rows


def arrows(text: str, *labels: str, link: str = "missing edge") -> set[tuple[str, str]]:
    shown, rows = scene_of(text, *labels, link=link)
    names = {row: name for name, row in rows.items()}
    return {(names[a.source], names[a.target]) for a in shown.arrows}


def svg_of(page: str) -> ET.Element:
    found = re.search(r"<svg .*</svg>", page, re.DOTALL)
    assert found
    return ET.fromstring(found[0])  # SVG inside of HTML that is also good XML


def classes(svg: ET.Element) -> list[str]:
    return [e.get("class", "") for e in svg.iter()]


B01 = """
1 | host   | H   |            | M[0:4096]    |
2 | copy   | vk0 | M[0:4096]  | D0            |
3 | kernel | vk0 | D0         | D1            |
5 | host   | H   |            | M[1024:2048] |
"""


def test_the_page_of_a_small_race() -> None:
    tape = parse(B01).tape()
    page = finding_page(
        tape, mark_of(tape, "2", "5"), conditions=["not all was seen"], commands=["tapedelay check x.litmus"]
    )
    parsed = Page(page)
    for said in ("RACE WAR on `M`", "nothing orders them", "not all was seen", "check x.litmus", "once"):
        assert said in parsed.text
    svg = classes(svg_of(page))
    assert svg.count("op found") == 2
    assert svg.count("op") == 2
    assert svg.count("link") == svg.count("linked") == 1
    assert svg.count("edge") == 1  # 1 -> 2
    assert svg.count("fifo") == 2  # 1 -> 5 and 2 -> 3
    assert "stroke-dasharray" in re.search(r"\.link \{[^}]*dasharray[^}]*\}", page)[0]  # type: ignore[index]


def test_it_loads_nothing_and_runs_nothing() -> None:
    tape = load_tape(BAD)
    page = finding_page(tape, Mark("RACE", "text", (75, 77), ("#75", "#77"), "missing edge"))
    parsed = Page(page)
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use"}
    for _tag, attributes in parsed.tags:
        assert not [a for a in attributes if a.startswith("on")]
        assert not {"src", "href", "xlink:href"} & attributes.keys()
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#tip", "#tip-bad"}
    assert set(re.findall(r"https?://[^\"\s<]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_the_recording() -> None:
    tape = load_tape(BAD)
    page = finding_page(tape, Mark("RACE", "text", (75, 77), ("#75", "#77"), "missing edge"))
    parsed = Page(page)
    svg = classes(svg_of(page))
    assert svg.count("op found") == 2
    assert "10,654.3 µs" in parsed.text  # when #75 was issued
    assert "before" in parsed.text  # ops that are not shown are counted
    assert "333 more" in parsed.text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</svg></main>&amp;",
    "]]><!--",
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x1b]0;title\x07",
    "\x00\n\r\t",
    "שלום",
    "x" * 5000,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_cannot_leave_their_place(name: str) -> None:
    b = TapeBuilder()
    host = b.device(name=name, kind="host")
    gpu = b.device(name=name, kind="gpu")
    h, q = b.queue(device=host, name=name, kind="host_thread"), b.queue(device=gpu, name=name)
    buffer = b.buffer(device=host, name=name, bytes=64)
    touched = b.access_set([{"buffer": buffer, "offset": 0, "bytes": 64, "name": name, "mode": "write"}])
    event = b.sync(name=name, device=gpu, process=0)
    b.op(kind="copy", name=name, queue=q, issuer=h, access_set=touched, label=name)
    b.op(kind="record", queue=q, issuer=h, sync=event, access_set=0)
    b.op(kind="host", name=name, queue=h, issuer=h, access_set=touched)
    tape = b.build()
    tape.name = name
    mark = Mark(name, name, (0, 2), (name, name), "missing edge", ((name, name),))
    page = finding_page(tape, mark, conditions=[name], commands=[name])
    tame = Mark("a", "a", (0, 2), ("a", "a"), "missing edge", (("a", "a"),))
    plain = finding_page(tape, tame, conditions=["a"], commands=["a"])
    parsed = Page(page)
    # the same tags with the same attributes: the name is text everywhere
    shape = [(tag, sorted(a)) for tag, a in parsed.tags]
    assert shape == [(tag, sorted(a)) for tag, a in Page(plain).tags]
    assert not {tag for tag, _ in parsed.tags} & {"script", "img"}
    svg_of(page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", page)
    if name.isprintable() and len(name) < 100:
        assert parsed.text.count(name) > 8


# --- what is shown ---


def test_arrows_say_what_orders_the_ops() -> None:
    text = """
1 | host | H | | M
2 | copy | s0 | M | D
3 | record | s0 | | | e
4 | wait | s1 | | | e
5 | kernel | s1 | D | E
6 | host | H | | M
"""
    found = arrows(text, "2", "6")
    assert {("1", "2"), ("2", "3"), ("1", "6")} <= found
    assert arrows(text, "3", "5") >= {("3", "4"), ("4", "5"), ("2", "3")}


def test_an_order_that_runs_through_ops_that_are_not_shown() -> None:
    rows = ["a0 | host | H | | A |"]
    rows += [f"k{i} | kernel | s0 | | B |" for i in range(50)]
    rows += ["r | record | s0 | | | e"]
    rows += [f"w{i} | wait | s{i + 1} | | | e" for i in range(1)]
    rows += [f"m{i} | kernel | s1 | | C |" for i in range(50)]
    rows += ["z | kernel | s1 | | A |", "y | kernel | s2 | | A |"]
    text = "\n".join(rows)
    shown, names = scene_of(text, "k3", "z")
    at = {b.row: b for b in shown.boxes}
    assert names["k3"] in at
    assert names["z"] in at
    assert len(at) <= MAX_SHOWN
    # k3 comes before z, over 40 ops that are not shown: an arrow all the same, by whatever is shown
    after = {(a.source, a.target) for a in shown.arrows}
    reached, todo = set(), [names["k3"]]
    while todo:
        row = todo.pop()
        todo += [t for s, t in after if s == row and t not in reached]
        reached |= {t for s, t in after if s == row}
    assert names["z"] in reached
    hidden = [a.hidden for a in shown.arrows if a.hidden]
    assert hidden
    for a in shown.arrows:
        assert at[a.source].column < at[a.target].column


def test_no_arrow_where_nothing_orders() -> None:
    shown, names = scene_of(B01, "2", "5")
    after = {(a.source, a.target) for a in shown.arrows}
    assert (names["2"], names["5"]) not in after
    column = {b.row: b.column for b in shown.boxes}
    assert column[names["2"]] < column[names["5"]]  # the missing edge goes to the right too


def test_ops_of_one_queue_never_share_a_column() -> None:
    for file in sorted((ROOT / "tests" / "corpus").glob("o*/*.litmus")):
        tape = load_tape(file)
        ops = tape.table("ops")
        if ops.num_rows < 2:
            continue
        contract = resolve(tape)
        edges = (contract.source, contract.target, contract.rule)
        mark = Mark("t", "x", (0, ops.num_rows - 1), ("a", "b"), "missing edge")
        shown = scene(tape, mark, edges)
        places = [(b.queue, b.column) for b in shown.boxes]
        assert len(set(places)) == len(places), file.name
        assert all(0 <= c < shown.columns for _, c in places)
        svg_of(finding_page(tape, mark))


def test_collectives_are_joined_and_a_cycle_is_shown() -> None:
    text = """
1 | coll | g0 | | | a
2 | coll | g0 | | | b
3 | coll | g1 | | | b
4 | coll | g1 | | | a
"""
    shown, names = scene_of(text, "1", "2", "3", "4", link="")
    pairs = {(a.source, a.target, a.why) for a in shown.arrows}
    assert pairs == {
        (names["1"], names["2"], "program"), (names["3"], names["4"], "program"),
        (names["1"], names["4"], "one collective"), (names["2"], names["3"], "one collective"),
    }  # fmt: skip
    tape = parse(text).tape()
    page = finding_page(tape, mark_of(tape, "1", "2", "3", "4", link=""))
    assert classes(svg_of(page)).count("fifo bad") == 0
    assert classes(svg_of(page)).count("edge bad") == 2
    assert "waits in a circle" in page
    assert "one collective" in page


def test_parts_of_a_whole() -> None:
    text = """
1 | kernel | s0 | | A
2 | record | s0 | | | e
3 | wait | s1 | | | e
4 | compute | s1 | | |
5 | kernel | s2 | A | B | | parent=4
6 | kernel | s3 | | B
"""
    assert ("3", "5") in arrows(text, "5", "6")


def test_far_apart_in_a_long_tape() -> None:
    b = TapeBuilder()
    host, gpu = b.device(name="host", kind="host"), b.device(name="gpu", kind="gpu")
    h = b.queue(device=host, name="H", kind="host_thread")
    queues = [b.queue(device=gpu, name=f"q{i}") for i in range(3)]
    for i in range(30_000):
        b.op(kind="kernel", queue=queues[i % 3], issuer=h, access_set=0, issue_ns=i, duration_ns=1)
    tape = b.build()
    page = finding_page(tape, Mark("t", "x", (4, 29_999), ("#4", "#29999"), "missing edge"))
    svg = classes(svg_of(page))
    assert svg.count("op found") == 2
    assert svg.count("op") <= MAX_SHOWN
