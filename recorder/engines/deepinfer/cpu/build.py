"""Build DeepInfer's request scheduler from its own sources, without CUDA.

The project is one source distribution whose build wants a CUDA toolkit. Its scheduler needs neither GPU nor
model: its sources are compiled with ``binding.cpp`` beside this file, against this Python's torch.

``python -m tapedelay.recorder.engines.deepinfer.cpu.build DIR`` leaves in DIR ``source`` (unpacked, as it
came), ``objects`` (of CMake) and ``package``, which has the package ``deepinfer``; with ``--install`` the
running Python finds it from then on.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .....formats.errors import InfrastructureError

__all__ = ["VERSION", "build", "compiled", "fetch", "main"]

VERSION = "0.1.0"
"""The release whose sources ``CMakeLists.txt`` lists."""

_HERE = Path(__file__).resolve().parent
_FETCH_TIMEOUT_S = 600
_COMPILE_TIMEOUT_S = 3600
_PTH = "tapedelay-deepinfer.pth"


def fetch(folder: Path) -> Path:
    """Return the folder with the unpacked sources, downloaded by name unless they are there.

    Parameters
    ----------
    folder : Path
        Gets them as ``source``.

    Raises
    ------
    InfrastructureError
        They cannot be had.
    """
    source = folder / "source"
    if source.is_dir():
        return source
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        # pip would ask the sources for their metadata, which wants CUDA; this client only downloads
        wanted = f"deepinfer=={VERSION}"
        _run(
            [sys.executable, "-m", "unearth", wanted, "--no-binary", "--py", "3.12", "--download", scratch],
            f"downloading {wanted}",
            _FETCH_TIMEOUT_S,
        )
        archives = list(Path(scratch).glob("*.tar.gz"))
        if len(archives) != 1:
            raise InfrastructureError(
                f"{len(archives)} archives", expected="one", where=f"download of {wanted}"
            )
        try:
            with tarfile.open(archives[0]) as archive:
                archive.extractall(scratch, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise InfrastructureError(
                f"it cannot be unpacked: {error}",
                expected="an archive of sources",
                where=archives[0].name,
                next_step="run it again: the download may have been cut off",
            ) from error
        (Path(scratch) / f"deepinfer-{VERSION}").rename(source)
    return source


def compiled(source: Path, folder: Path, jobs: int = 2) -> Path:
    """Return the folder that, on the path of Python, has the package ``deepinfer``; compile what has changed.

    Parameters
    ----------
    source : Path
        The unpacked sources.
    folder : Path
        Gets ``objects`` and ``package``.
    jobs : int
        Compilers at once; one takes up to 2 GB.

    Raises
    ------
    InfrastructureError
        There is no torch, or the compiler fails.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        raise InfrastructureError(
            "there is no torch", where=sys.executable, next_step="make engine-deepinfer"
        )
    package = folder / "package" / "deepinfer"
    package.mkdir(parents=True, exist_ok=True)
    # The engine's own package starts the whole engine and asks for Python 3.12.
    (package / "__init__.py").write_text(
        f'"""DeepInfer\'s request scheduler, built for the CPU."""\n__version__ = "{VERSION}"\n'
    )
    shutil.copy(source / "deepinfer" / "sampling_params.py", package)
    objects = folder / "objects"
    tool = _tool("cmake")
    ninja = _tool("ninja")
    _run(
        [
            tool, "-S", str(_HERE), "-B", str(objects), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}",
            f"-DDEEPINFER_SOURCE={source}", f"-DTORCH={next(iter(torch.submodule_search_locations))}",
            f"-DPACKAGE={package}", f"-DPython3_EXECUTABLE={sys.executable}",
        ],
        "configuring DeepInfer's scheduler",
        _COMPILE_TIMEOUT_S,
    )  # fmt: skip
    _run(
        [tool, "--build", str(objects), "--parallel", str(jobs)],
        "compiling DeepInfer's scheduler",
        _COMPILE_TIMEOUT_S,
    )
    return package.parent


def build(folder: Path, jobs: int = 2) -> Path:
    """Download and compile; return the folder for the path of Python."""
    return compiled(fetch(folder), folder, jobs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="build", description="Build DeepInfer's request scheduler for the CPU."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--install", action="store_true", help="this Python finds the package from then on")
    given = parser.parse_args(arguments)
    print(f"building DeepInfer {VERSION}'s request scheduler: some minutes the first time", flush=True)
    try:
        path = build(given.folder.absolute(), given.jobs)
        if given.install:
            (Path(sysconfig.get_path("purelib")) / _PTH).write_text(f"{path}\n")
    except InfrastructureError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _tool(name: str) -> str:
    """Return a build tool: the one of the running Python's environment, or of the machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise InfrastructureError(f"{name} is not there", next_step=f"install {name} (pip install {name})")
    return found


def _run(command: Sequence[str], what: str, timeout_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(
            str(error), where=what, next_step="run it again where the machine has less to do"
        ) from error
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise InfrastructureError(f"exit code {done.returncode}\n{last}", where=what, next_step=_advice(last))


def _advice(said: str) -> str:
    if "fmt/format.h" in said:
        return "install {fmt} (Debian: libfmt-dev); compilers before GCC 13 have no std::format"
    return "look at the message above"


if __name__ == "__main__":
    sys.exit(main())
