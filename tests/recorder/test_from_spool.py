"""``tapedelay record --from-spool``: what a kept spool gives, and what is refused with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tapedelay.formats.errors import MissingInput, UsageError
from tapedelay.recorder.command import record


def error_of(tmp_path: Path, *words: str) -> BaseException | None:
    spool = ("-o", str(tmp_path / "run.tape"), "--from-spool", str(tmp_path / "nowhere"))
    return CliRunner().invoke(record, [*words, *spool]).exception


@pytest.mark.parametrize(
    "words",
    [
        ("--keep-spool",), ("--last", "5"), ("--no-telemetry",), ("--profile", "vulkan-like"), ("--sync",),
        ("--tap",), ("--telemetry-ms", "100"),
    ],
)  # fmt: skip
def test_what_has_no_effect_on_a_run_that_is_over_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    error = error_of(tmp_path, *words)
    assert isinstance(error, UsageError)
    assert f"{words[0]} and --from-spool" in error.text()


@pytest.mark.parametrize(
    "words", [(), ("--no-tap",), ("--devices", "1"), ("--allow-unmatched",), ("--force",)]
)
def test_what_judges_a_recording_goes_with_a_kept_spool(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert isinstance(error_of(tmp_path, *words), MissingInput), "the folder that is not there"
