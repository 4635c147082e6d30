"""The path file of an editable install: pytest says nothing about the loader that the build backend adds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOADER = "_editable_skbc_tapedelay"


def session(site: Path) -> str:
    """What pytest says where these are site-packages; without the filters of this repository."""
    (site / "test_it.py").write_text("def test_it(): pass\n")
    (site / "pytest.ini").write_text("[pytest]\n")
    code = (
        f"import site, sys; sys.modules.pop({LOADER!r}, None); sys.path.insert(0, {str(site)!r}); "
        f"site.addsitedir({str(site)!r}); "
        "import pytest; pytest.main(['-q', '-p', 'no:cacheprovider'])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=site, capture_output=True, text=True, timeout=60, check=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    return done.stdout


def test_no_warning_about_the_loader(tmp_path: Path) -> None:
    """A site folder as pip leaves it: the loader, its path file, ours, and the list of files."""
    info = tmp_path / "tapedelay-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tapedelay\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\ntapedelay_of_the_test = a_plugin\n")
    (info / "RECORD").write_text(f"{LOADER}.py,,\n{LOADER}.pth,,\ntapedelay_editable.pth,,\n")
    (tmp_path / "a_plugin.py").write_text("")
    (tmp_path / f"{LOADER}.py").write_text('"""A loader."""\n')
    (tmp_path / f"{LOADER}.pth").write_text(f"import {LOADER}\n")
    assert f"cannot be rewritten; {LOADER}" in session(tmp_path)
    (quiet,) = re.findall(r"set\(quiet \[\[(.*?)\]\]\)", (ROOT / "CMakeLists.txt").read_text())
    (tmp_path / "tapedelay_editable.pth").write_text(f"{tmp_path}\n{quiet}\n")
    assert "warning" not in session(tmp_path)


def test_the_line_is_a_loader_s_own_business_where_there_is_none(tmp_path: Path) -> None:
    (quiet,) = re.findall(r"set\(quiet \[\[(.*?)\]\]\)", (ROOT / "CMakeLists.txt").read_text())
    (tmp_path / "tapedelay_editable.pth").write_text(f"{quiet}\n")
    code = f"import site; site.addsitedir({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
