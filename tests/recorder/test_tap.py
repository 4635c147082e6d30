"""``record --tap``: what the command's environment gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.command import record
from tapedelay.recorder.outcome import Recording
from tapedelay.recorder.tap import TAP_ASKED, Tap, ggml_tap


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin and the tap in a folder whose name the dynamic linker would split."""
    folder = tmp_path / "a b:c"
    folder.mkdir()
    (folder / "libtapedelay_ggml.so").write_bytes(b"")
    (folder / "libtapedelay_ggml_tap.so").write_bytes(ggml_tap().read_bytes())
    monkeypatch.setenv("TAPEDELAY_PLUGIN", str(folder / "libtapedelay_ggml.so"))
    return folder


def preloaded(tmp_path: Path) -> str:
    result = Recording(tmp_path / "a.tape", Asked())
    with Tap().along(result, tmp_path) as env:
        assert set(env) == {"LD_PRELOAD"}
        done = subprocess.run(
            [sys.executable, "-c", "print(open('/proc/self/maps').read())"],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "libtapedelay_ggml_tap.so" in done.stdout
        assert done.stderr == ""
        return env["LD_PRELOAD"]


def test_the_tap_is_preloaded_and_the_spool_says_that_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert preloaded(tmp_path) == str(ggml_tap())
    assert (tmp_path / TAP_ASKED).exists()


def test_what_the_user_preloads_stays_and_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libm.so.6:libc.so.6")
    assert preloaded(tmp_path) == f"libm.so.6:libc.so.6 {ggml_tap()}"


def test_a_path_that_the_linker_would_split_is_reached_by_a_link(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    link = Path(preloaded(tmp_path))
    assert not set(" :$") & set(str(link))
    assert not link.parent.exists()  # no longer than it is needed


def test_no_place_for_a_link_is_said(
    elsewhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    with pytest.raises(InfrastructureError, match="cannot be preloaded"):
        preloaded(tmp_path)
    assert sorted(p.name for p in elsewhere.iterdir()) == ["libtapedelay_ggml.so", "libtapedelay_ggml_tap.so"]


def test_a_tap_that_is_not_there_is_said(elsewhere: Path, tmp_path: Path) -> None:
    (elsewhere / "libtapedelay_ggml_tap.so").unlink()
    with pytest.raises(InfrastructureError, match="the tap is not there"):
        preloaded(tmp_path)


def test_a_recording_that_ran_had_the_tap_or_not(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        record, ["-o", str(tmp_path / "a.tape"), "--tap", "--from-spool", str(tmp_path)]
    )
    assert "--tap and --from-spool" in str(done.exception)
