"""RECORD.md names every key of the JSON and every reason that there is."""

from __future__ import annotations

import re
from pathlib import Path

from tapedelay.recorder import reasons
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.delays import LineCount
from tapedelay.recorder.outcome import Recording

SOURCES = Path(reasons.__file__).resolve().parent
PAGE = (SOURCES / "RECORD.md").read_text(encoding="utf-8")


def words(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_key_is_there() -> None:
    table = PAGE.partition("## JSON")[2].partition("`doctor --json`")[0]
    keys = Recording(Path("run.tape"), Asked()).as_dict()
    assert set(keys) <= words(table)
    assert set(LineCount(1, "first copy +1us", 1).as_dict()) <= words(table)


def test_every_reason_is_there() -> None:
    text = "".join((SOURCES / p).read_text(encoding="utf-8") for p in ("reasons.py", "doctor/engine.py"))
    codes = set(re.findall(r'(?:Reason\(\s*|code = |else )"([a-z-]+)"', text)) | {
        c for _, c, _ in reasons._REFUSED
    }
    assert len(codes) > 12
    assert codes <= words(PAGE.partition("| word in `--json` |")[2].partition("\n\n")[0])
