"""Drivers of GPUs: NVML for telemetry, Vulkan and its stand-in for machines without a GPU."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

from ..demo.lavapipe import find_driver
from ..telemetry.process import NO_ANSWER, NvmlProcess
from .finding import LIMIT, NO, OK, Finding

__all__ = ["look_at_nvml", "look_at_vulkan"]

_PATIENCE_S = 10.0
_DRIVER = Path("/proc/driver/nvidia/version")
_ICD_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")


def look_at_nvml() -> Finding:
    """Return whether NVIDIA's counters can be sampled: no loss where no NVIDIA GPU is."""
    try:
        wrong, answer = NvmlProcess("look", answers=True).end(_PATIENCE_S)
    except OSError as e:
        found = f"the process that asks NVML could not be started ({e.strerror})"
        return Finding("nvml", NO, found, "see what limits processes here")
    if wrong:
        within = f" within {_PATIENCE_S:g} s" * (wrong == NO_ANSWER)
        return Finding("nvml", NO, f"NVML {wrong}{within}", "see what ails the driver")
    said = json.loads(answer)
    if "no_nvml" in said:
        return _no_nvml(said["no_nvml"])
    lacks = []
    for index, device in enumerate(said["devices"]):
        if device["gone"]:
            lacks.append(f"nvml{index} does not answer ({device['gone']})")
        elif device["missing"]:
            lacks.append(f"nvml{index} does not tell {', '.join(device['missing'])}")
    count = len(said["devices"])
    found = f"NVML answers for {count} device{'s' * (count != 1)}"
    if lacks:
        return Finding("nvml", LIMIT, f"{found}; {'; '.join(lacks)}")
    return Finding("nvml", OK if count else LIMIT, found)


def _no_nvml(why: str) -> Finding:
    if _DRIVER.exists():
        found = f"an NVIDIA driver is there and its counters cannot be sampled: no NVML ({why})"
        return Finding("nvml", NO, found, "install the libnvidia-ml that belongs to the driver")
    return Finding("nvml", LIMIT, f"no NVML ({why}): tapes have no telemetry")


def look_at_vulkan() -> Finding:
    """Return which Vulkan drivers ggml's Vulkan backend would find."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        found = "no Vulkan loader: ggml's Vulkan backend does not run here"
        return Finding("vulkan", LIMIT, found, "for Vulkan install libvulkan1 and a driver")
    chosen = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if chosen:
        files = [Path(p) for p in chosen.split(os.pathsep) if p]
    else:
        files = [p for folder in _ICD_FOLDERS for p in sorted(Path(folder).glob("*.json"))]
    drivers = [p.stem for p in files if p.is_file()]
    if not drivers:
        found = "a Vulkan loader and no driver: ggml's Vulkan backend has no device here"
        return Finding("vulkan", LIMIT, found, "install a driver; mesa-vulkan-drivers has one for the CPU")
    found = f"Vulkan drivers: {', '.join(drivers)}"
    if find_driver() is not None:
        found += "; lavapipe runs ggml's Vulkan backend on the CPU (with GGML_VK_VISIBLE_DEVICES=0)"
    return Finding("vulkan", OK, found)
