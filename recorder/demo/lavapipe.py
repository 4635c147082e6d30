"""Mesa's lavapipe: a Vulkan device made of CPU threads, a real asynchronous backend without a GPU."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_driver", "lavapipe_environment"]

_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")


def find_driver() -> Path | None:
    """Return the description file of the installed lavapipe driver, or None."""
    for folder in _FOLDERS:
        found = sorted(Path(folder).glob("lvp_icd*.json"))
        if found:
            return found[0]
    return None


def lavapipe_environment(driver: Path, shader_cache: Path) -> dict[str, str]:
    """Return the environment in which ggml's Vulkan backend uses lavapipe and nothing else.

    Parameters
    ----------
    driver : Path
        What `find_driver` returned.
    shader_cache : Path
        Folder of the compiled shaders; the first run of a build fills it, which takes half a minute.
    """
    return {
        "VK_DRIVER_FILES": str(driver),
        "GGML_VK_VISIBLE_DEVICES": "0",  # without it ggml skips devices of type CPU
        "LP_NUM_THREADS": "1",
        "MESA_SHADER_CACHE_DIR": str(shader_cache),
    }
