"""Builds and models for the tests of real engines; a skip says what could not be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.recorder.demo import engines, lavapipe
from tapedelay.recorder.demo.commands import engine_environment

from .vllm_recordings import KINDS, Recorded, record_apart, record_program, recorded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engines)


def xllamacpp(version: str) -> dict[str, str]:
    """Return the environment of this build; skip where it cannot be had."""
    try:
        return engine_environment(engines.xllamacpp(version))
    except InfrastructureError as error:
        pytest.skip(f"xllamacpp {version}: {error.found}")


@pytest.fixture(scope="session")
def racy() -> dict[str, str]:
    return xllamacpp(engines.XLLAMACPP_RACY)


@pytest.fixture(scope="session")
def fixed() -> dict[str, str]:
    return xllamacpp(engines.XLLAMACPP_FIXED)


@pytest.fixture(scope="session")
def newest() -> dict[str, str]:
    return xllamacpp(engines.XLLAMACPP_NEWEST)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return engines.tiny_model()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    try:
        return engines.smollm2_model()
    except InfrastructureError as error:
        pytest.skip(f"SmolLM2: {error.found}")


@pytest.fixture(scope="session")
def lavapipe_driver() -> Path:
    driver = lavapipe.find_driver()
    if driver is None:
        pytest.skip("no lavapipe driver (Debian: mesa-vulkan-drivers, libvulkan1)")
    return driver


@pytest.fixture(scope="session")
def vulkan(lavapipe_driver: Path) -> dict[str, str]:
    """The environment in which ggml's Vulkan backend runs on lavapipe."""
    return lavapipe.lavapipe_environment(lavapipe_driver, shader_cache=engines.engines_root() / "shaders")


@pytest.fixture(scope="session")
def two_vulkans(lavapipe_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same with two devices."""
    second = lavapipe.second_driver(lavapipe_driver, tmp_path_factory.mktemp("driver"))
    if second is None:
        pytest.skip(f"{lavapipe_driver} does not say where its library lies")
    shaders = engines.engines_root() / "shaders"
    return lavapipe.lavapipe_environment(lavapipe_driver, second, shader_cache=shaders)


@pytest.fixture(scope="session")
def vllm_runs(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Recorded:
    """vLLM's real core with a pretended model: one scheduler per word of `KINDS`."""

    def make(folder: Path) -> None:
        record_program(folder, "vllm_core.py", ",".join(KINDS), str(folder), PYTHONHASHSEED="5")

    return recorded(made_once("vllm-core", make))


@pytest.fixture(scope="session")
def vllm_llm(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Recorded:
    """vLLM's ``LLM`` with a tiny model, all in one process."""

    def make(folder: Path) -> None:
        record_program(folder, "vllm_llm.py", str(folder), VLLM_ENABLE_V1_MULTIPROCESSING="0")

    return recorded(made_once("vllm-llm", make))


@pytest.fixture(scope="session")
def vllm_apart(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Recorded:
    """vLLM's ``LLM`` with its core in a process of its own."""
    return recorded(made_once("vllm-apart", record_apart))
