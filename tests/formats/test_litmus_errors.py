"""What does not parse is named with file, line, found and expected; nothing else comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapedelay.formats.errors import LitmusError
from tapedelay.formats.litmus import parse, read

CORPUS = Path(__file__).parent.parent / "corpus"
FILES = sorted(f for d in ("ops", "own") for f in (CORPUS / d).glob("*.litmus"))
ROW = "1 | host | H | | A |\n"
DECLARED = "device host host\nhost H\nbuffer A 64\nsync e event\n"

CASES = [
    # (text, line, found, expected)
    ("hello\n", 1, "line 'hello'", "a row, `edge A -> B`, a verdict line, a comment, or one of process"),
    ("hosts H\n", 1, "line 'hosts H'", "one of process, device, host"),
    ("1\n", 1, "line '1'", "a row"),
    ("a b | host | H\n", 1, "row label 'a b'", "letters, digits"),
    (ROW + "host T\n", 2, "`host` after the first row", "header lines before the rows"),
    ("1 | host\n", 1, "2 fields", "label | kind | queue"),
    ("1 | host | H | | | | | x\n", 1, "8 fields", "label | kind | queue"),
    ("1 | hots | H\n", 1, "kind 'hots'", "one of host, kernel, compute"),
    ("1 | host | H H2@\n", 1, "queue 'H H2@'", "QUEUE or QUEUE@THREAD"),
    ("1 | host | H | A\" | |\n", 1, "open quote", "a closing quote on the same line"),
    ("1 | host | H | A[1] | |\n", 1, "range [1]", "[begin:end]"),
    ("1 | host | H | A[8:4] | |\n", 1, "range [8:4]", "0 <= begin <= end"),
    ("1 | host | H | A[-4:4] | |\n", 1, "range [-4:4]", "0 <= begin <= end"),
    ("1 | host | H | A[0:9999999999999999999] | |\n", 1, "range", "64 bits"),
    ("1 | host | H | A[0:8*arg] | | | arg=-1\n", 1, "bytes 0 to -8 of A", "begin <= end"),
    ("1 | host | H | A:reed | |\n", 1, ":reed", "one of read, write, update"),
    ("1 | host | H | A! | |\n", 1, "'!' after a buffer", ":mode, :origin or :name=NAME"),
    ("1 | host | H | , | |\n", 1, "access ''", "NAME, NAME[begin:end]"),
    ("1 | host | H | ? | A |\n", 1, "`?` beside accesses", "`?` alone"),
    ("1 | host | H | ?:update | |\n", 1, "`?` without a range", "?[0:bytes]"),
    ("1 | host | H | | | e\n", 1, "'e' in the sixth field of a host", "nothing there"),
    ("1 | record | H\n", 1, "a record without a name", "event, semaphore or collective"),
    ("1 | wait_any | H\n", 1, "a wait_any without names", "events in the sixth field"),
    ("1 | wait_any | H | | | e | units=1\n", 1, "names beside units=", "either of them"),
    ("1 | sync | H\n", 1, "a sync without a target", "QUEUE, device:NAME or *"),
    ("1 | sync | H | | | vk0\n", 1, "queue 'vk0'", "a queue that the rows name"),
    ("1 | sync | H | | | device:vk\n", 1, "device 'vk'", "a device"),
    (ROW + "1 | host | H\n", 2, "a second row '1' in the buggy variant", "each label once"),
    ("1 | host | H | | | | nmae=x\n", 1, "nmae=", "one of label, name, parent"),
    ("1 | host | H | | | | name=\n", 1, "name= without a value", "name=VALUE, or name=- for none"),
    ("1 | host | H | | | | step=1 step=2\n", 1, "a second step=", "each key once"),
    ("1 | host | H | | | | stray\n", 1, "'stray' among the extras", "key=value parts"),
    ("1 | host | H | | | | step=1.5\n", 1, "step '1.5'", "a whole number"),
    ("1 | host | H | | | | split=2147483648\n", 1, "split 2147483648", "a number from"),
    ("1 | host | H | | | | step=9223372036854775808\n", 1, "step 9223372036854775808", "a number from"),
    ('1 | host | H | | | | name="\\ud800"\n', 1, "string", "a JSON string"),
    ('1 | host | H | | | | name="\\q"\n', 1, "string", "a JSON string"),
    ("1 | wait | H | | | e | of=7\n", 1, "row '7'", "the label of a row of the buggy variant"),
    ("1 | wait | H | | | e | state=lost\n", 1, "state 'lost'", "one of contract, unresolved, none, foreign"),
    ("1 | host | H | | | | origin=-\n", 1, "origin=-", "one of observed"),
    ("1 | host | H | | | | list=0\n", 1, "list 0", "a list that the header declares"),
    ("1 | host | H | | | | set=1\n", 1, "set 1", "a set that the header declares"),
    (DECLARED + "set 1 | B |\n1 | host | H | | | | set=1\n", 5, "buffer 'B'", "a buffer that the header"),
    (DECLARED + "set 1 | A |\n1 | host | H | A | | | set=1\n", 6, "accesses beside set=", "either of them"),
    (DECLARED + "set 1 | |\n", 5, "set 1 without accesses", "at least one"),
    (DECLARED + "set 1 | A |\nset 1 | A |\n", 6, "a second set 1", "each set once"),
    (DECLARED + "list 1 5\nlist 1 5\n", 6, "a second list 1", "each list once"),
    (DECLARED + "1 | host | T\n", 5, "queue 'T'", "a queue that the header declares"),
    (DECLARED + "1 | host | H | B | |\n", 5, "buffer 'B'", "a buffer that the header declares"),
    (DECLARED + "1 | host | H | A#1 | |\n", 5, "buffer 'A#1'", "a buffer that the header declares"),
    (DECLARED + "1 | host | H | .7 | |\n", 5, "buffer .7", "an id below 1"),
    (DECLARED + "1 | host | H | A[0:65] | |\n", 5, "bytes 0 to 65 of A", "a range inside its 64 bytes"),
    (DECLARED + "1 | record | H | | | f\n", 5, "sync 'f'", "a sync that the header declares"),
    (DECLARED + "queue q\n", 5, "queue 'q' without a device", "queue NAME [DEVICE]"),
    (DECLARED + "queue q gpu\n", 5, "device 'gpu'", "a device that the header declares"),
    (DECLARED + "host H\n", 5, "a second queue 'H'", "each name once"),
    (DECLARED + "buffer A 64\n", 5, "a second buffer A#0", "each generation once"),
    (DECLARED + "buffer B 65 parent=A offset=0\n", 5, "bytes 0 to 65 of a parent of 64", "a range inside it"),
    (DECLARED + "buffer B 65 parent=A\n", 5, "parent= or offset= alone", "both, or none"),
    (DECLARED + "buffer B 65 parent=C offset=0\n", 5, "parent 'C'", "one buffer that an earlier line"),
    (DECLARED + "buffer .5 64\n", 5, "buffer .5", ".1: ids count up from 0"),
    (DECLARED + "buffer B 64 alloc=1\n" + ROW.replace("1", "2"), 5, "row '1'", "the label of a row"),
    (DECLARED + "buffer B\n1 | host | H | B | |\n", 6, "all of B, whose size is not known", "B[begin:end]"),
    ("device .1 gpu\n", 1, "device .1", ".0: ids count up from 0"),
    ("device host hots\n", 1, "device kind 'hots'", "one of host, gpu"),
    ("device host\n", 1, "`device host`", "device NAME KIND"),
    ("device gpu gpu\nhost H\n", 2, "a host thread without a host device", "`device NAME host`"),
    ("coverage H waits=some\n", 1, "waits 'some'", "one of full, partial, none"),
    ("coverage H waits=none\n", 1, "queue 'H'", "a queue"),
    ("process x\n", 1, "process 'x'", "a whole number"),
    ("profile p [1]\n", 1, "`profile p [1]`", 'profile NAME {"key": value'),
    ("profile p {\n", 1, "profile '{'", "JSON on one line"),
    ("profile p " + "[" * 20_000 + "\n", 1, "profile", "JSON on one line"),
    ("meta lost true\n", 1, "meta lost 'true'", "JSON of type int"),
    ("meta path 1\n", 1, "meta 'path'", "one of engine, switches"),
    ("1 | semsig | s | | | e\n2 | wait | s | | | e\n", 2, "which is of kind semaphore", "one name for"),
    ("1 | alloc | H | | | A=B\n", 1, "'A=B'", "alloc with NAME=BUFFER[begin:end]"),
    ("1 | free | H | | | A=B[0:4]\n", 1, "'A=B[0:4]'", "alloc with NAME=BUFFER[begin:end]"),
    ("1 | alloc | H | | | B[0:4*arg]\n", 1, "alloc of 'B[0:4*arg]'", "a buffer or a fixed range"),
    ("1 | free | H | | | B[0:4]\n", 1, "free of B[0:4]", "the range of an earlier `alloc`"),
    ("1 | alloc | H | | | A=M[0:4]\n2 | alloc | H | | | A=M[4:8]\n", 2, "a second buffer 'A'", "a new name"),
    ("1 | alloc | H | | | A=M[0:4]\n2 | host | H | A[0:5] | |\n", 2, "bytes 0 to 5 of A", "its 4 bytes"),
    (ROW + "edge 1 -> 2\n", 2, "row '2'", "the label of a row"),
    (ROW + "edge 1 -> 1 graf\n", 2, "edge kind 'graf'", "one of graph"),
    (ROW + "edge 1 -> 1 graph data\n", 2, "' graph data'", "edge SRC -> DST [kind]"),
    (ROW + "race: 1x2 RAW A\n", 2, "pair '1x2'", "the labels of two rows"),
    (ROW + "race: 1x1 RAR A\n", 2, "verdict '1x1 RAR A'", "one of RAW, WAR, WAW"),
    (ROW + "lifetime: 1x1 RAW A\n", 2, "verdict '1x1 RAW A'", "use-after-free"),
    (ROW + "race: 1x1 RAW A[4:4]\n", 2, "range [4:4]", "begin < end"),
    (ROW + "race:\n", 2, "verdict ''", "`2x5 RAW M0[0:64]`"),
    (ROW + "deadlock: 1,2\n", 2, "label '2'", "the label of a row"),
    (ROW + "clean: 1\n", 2, "'1' after `clean`", "nothing"),
    (ROW + "clean\nrace: 1x1 RAW A\n", 3, "`clean` beside other verdicts", "either of them"),
    (ROW + "fixed: clean\n", 2, "`fixed:` in a file without variants", "rows marked"),
    (".5 | host | H\n2 | host | H | | | | id=5\n", 2, "op id 5 after 5", "ids that grow"),
    ("1 | host | H\n" * 1 + "x" * 70_000, 2, "a line of 70000 characters", "at most"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "found", "expected"), CASES, ids=[c[2][:40] for c in CASES])
def test_message(text: str, line: int, found: str, expected: str) -> None:
    with pytest.raises(LitmusError) as e:
        parse(text, name="x.litmus")
    assert e.value.where == f"x.litmus:{line}"
    assert found in e.value.found
    assert expected in e.value.expected
    assert e.value.next_step
    assert e.value.exit_code == 3
    assert len(e.value.text()) < 1000


@pytest.mark.parametrize("data", [b"\xff\xfe", b"1 | host | H\n\x80"])
def test_not_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.litmus").write_bytes(data)
    with pytest.raises(LitmusError, match=r"x\.litmus: byte \d+ is not UTF-8"):
        read(tmp_path / "x.litmus")


# --- nothing but LitmusError comes out ---

LINES = [line for f in FILES for line in f.read_text().splitlines() if not line.startswith("#")]
WORDS = sorted({w for line in LINES for w in line.replace("|", " | ").split()})
PIECES = [
    *"|,:;[]#=@+-*?.\"'\\x \n\t",
    "-1",
    "9" * 19,
    "arg",
    "name=",
    "of=",
    "id=",
    "set 1 |",
    "list 0 ",
    "edge ",
    "\ud800",
]


def outcome(text: str) -> str:
    """Return what parsing gives; whatever else is raised fails the test."""
    try:
        parse(text)
    except LitmusError as e:
        return e.where and "error"
    return "tape"


EDITS = st.lists(
    st.tuples(st.integers(0, 600), st.integers(0, 4), st.sampled_from(PIECES) | st.text(max_size=3)),
    min_size=1,
    max_size=4,
)


def mutated(file: Path, edits: list[tuple[int, int, str]]) -> str:
    text = file.read_text()
    for at, length, piece in edits:
        at %= len(text)
        text = text[:at] + piece + text[at + length :]
    return text


HOSTILE = {
    "words": st.lists(st.sampled_from([*WORDS, *PIECES]), max_size=40).map(" ".join),
    "lines": st.lists(st.sampled_from(LINES), max_size=12).map("\n".join),
    "mutations": st.builds(mutated, st.sampled_from(FILES), EDITS),
    "text": st.text(max_size=200),
}


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text(kind: str, count: int) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(HOSTILE[kind])
    def run(text: str) -> None:
        assert outcome(text)

    run()


def repeated(form: str, count: int) -> str:
    """Return lines with i and j filled in."""
    return "".join(form.format(i=i, j=i + 1, k=i + 9000, q=i % 9) for i in range(count))


LONG: dict[str, Callable[[], str]] = {
    "rows": lambda: repeated("{i} | kernel | s{q} | A | B |\n", 4_000),
    "allocs": lambda: repeated("{i} | alloc | H | | | M[{i}:{k}]\n{i}a | host | H | M[{i}:{j}] | |\n", 2_000),
    "generations": lambda: repeated("{i} | alloc | H | | | A\n{i}a | free | H | | | A\n", 2_000),
    "buffers": lambda: repeated("{i} | host | H | A{i} | |\n", 4_000),
    "declared": lambda: repeated("buffer A#{i} 4\n", 4_000),
    "queues": lambda: repeated("queue q{i}\n", 10_000),
    "syncs": lambda: repeated("{i} | record | s | | | e{i}\n", 4_000),
    "accesses": lambda: f"1 | host | H | {','.join('A' for _ in range(30_000))} | |\n",
    "flags": lambda: "1 | host | H | A" + ":read" * 12_000 + " | |",
    "quotes": lambda: '1 | host | H | | | | name="' + '\\"' * 30_000,
    "quoted": lambda: "1 | host | H | | | | " + '"a" ' * 16_000,
    "spaces": lambda: "edge 1" + " " * 60_000 + "x",
    "edge": lambda: "edge " + "-" * 60_000,
    "verdict": lambda: "1 | host | H\nrace: " + "1x1 RAW A;" * 6_000,
    "pair": lambda: "1 | host | H\nrace: " + "1x" * 30_000,
    "pair-spaces": lambda: "1 | host | H\nrace: 1x1" + " " * 4_000 + "RAW" + " " * 50 + "!",
    "units": lambda: "1 | host | H | A[0:1/1] | | | units=" + ",".join("1" for _ in range(30_000)),
    "lines": lambda: "\n" * 1_000_000,
    "text": lambda: "x" * 9_000_000,
}


@pytest.mark.parametrize("kind", LONG)
def test_long_text_costs_little(kind: str) -> None:
    text = LONG[kind]()
    begin = time.process_time()
    assert outcome(text)
    assert time.process_time() - begin < 10
