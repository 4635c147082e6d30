"""`--json`: SEARCH.md names every key that is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.replayer.conformance.__main__ import main as kit

ROOT = Path(__file__).parents[2]
BAD = str(ROOT / "traces" / "ggml-26040-bad.tape.zip")
B01 = str(ROOT / "tests" / "corpus" / "ops" / "B01.litmus")
WORDS = set(re.findall(r"`([a-z_]+)`", (ROOT / "replayer" / "SEARCH.md").read_text().split("## JSON")[1]))


def keys(value: Any, *opaque: str) -> set[str]:
    """Return the keys of a JSON value, but not of what is described elsewhere."""
    if isinstance(value, list):
        return set().union(*(keys(v, *opaque) for v in value))
    if not isinstance(value, dict):
        return set()
    below = [keys(v, *opaque) for k, v in value.items() if k not in opaque]
    return set(value).union(*below)


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (["replay", BAD, "--delays", "first copy of model.input_embed on TAPE0 +3ms"], "tapedelay-replay-1"),
        (["replay", BAD, "--search"], "tapedelay-search-1"),
        (["export", BAD, "--format", "html", "-o", "OUT"], ""),
        (["export", B01, "--format", "litmus"], ""),
    ],
)
def test_every_key_is_described(
    arguments: list[str], schema: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([str(tmp_path / "out") if a == "OUT" else a for a in arguments] + ["--json"])
    data = json.loads(capsys.readouterr().out)
    opaque = ("confirmed", "finding", "conditions", "counts", "busy_ns", "op")
    assert data.get("schema", "") == schema
    assert keys(data, *opaque) - WORDS == set()
    assert len(keys(data, *opaque)) > 2


def test_every_key_of_the_kit_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kit(["virtual", "--only", "edges/*", "--patterns", "none", "--json"])
    assert ended.value.code in (0, None)
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "tapedelay-conformance-1"
    assert keys(data) - WORDS == set()
    assert data["results"]
