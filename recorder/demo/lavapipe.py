"""Mesa's lavapipe: a Vulkan device made of CPU threads, a real asynchronous backend without a GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

__all__ = ["find_driver", "lavapipe_environment", "second_driver"]

_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")


def find_driver() -> Path | None:
    """Return the description file of the installed lavapipe driver, or None."""
    for folder in _FOLDERS:
        found = sorted(Path(folder).glob("lvp_icd*.json"))
        if found:
            return found[0]
    return None


def second_driver(driver: Path, folder: Path) -> Path | None:
    """Return the description file of a copy of this driver, made in `folder`; None if it names no library.

    Two drivers are two devices. One driver that is listed twice is one: both share their thread.
    """
    described = json.loads(driver.read_text(encoding="utf-8"))
    library = driver.parent / described["ICD"]["library_path"]
    if not library.is_file():
        return None
    copy = folder / f"second-{library.name}"
    shutil.copyfile(library, copy)
    described["ICD"]["library_path"] = str(copy)
    second = folder / "second_icd.json"
    second.write_text(json.dumps(described), encoding="utf-8")
    return second


def lavapipe_environment(*drivers: Path, shader_cache: Path) -> dict[str, str]:
    """Return the environment in which ggml's Vulkan backend uses lavapipe and nothing else.

    Parameters
    ----------
    *drivers : Path
        What `find_driver` returned, `second_driver`: one device each.
    shader_cache : Path
        Folder of the compiled shaders; the first run of a build fills it, which takes half a minute.
    """
    return {
        "VK_DRIVER_FILES": ":".join(map(str, drivers)),
        # without it ggml skips devices of type CPU
        "GGML_VK_VISIBLE_DEVICES": ",".join(str(n) for n in range(len(drivers))),
        "LP_NUM_THREADS": "1",
        "MESA_SHADER_CACHE_DIR": str(shader_cache),
    }
