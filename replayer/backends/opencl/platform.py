"""Find an OpenCL device, also where nothing but wheels is installed.

pyopencl's own wheels carry an ICD loader that looks into ``pyopencl/.libs`` beside the system's vendors, and
``pocl-binary-distribution`` puts PoCL and its ICD file there. A pyopencl that was built from source uses the
system's loader, which does not know that place: `prepare` names it to that loader.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ....formats.errors import ReplayFailed, Unsupported

__all__ = ["DEVICE_VARIABLE", "Device", "choose", "load_pyopencl", "prepare", "why_not"]

DEVICE_VARIABLE = "TAPEDELAY_OPENCL"
"""Environment variable: a part of the platform's or device's name that is to be used."""

WORKERS = 16
"""Threads of PoCL: it runs at most that many commands side by side, and by default one per core, which would
put the queues of a tape one after another on a small machine."""

EXTRA = "install the extra: pip install 'tapedelay[opencl]' (pyopencl, and PoCL for machines without a GPU)"


@dataclass(frozen=True, eq=False)
class Device:
    """An OpenCL device with a context of its own.

    Attributes
    ----------
    cl : module
        pyopencl.
    device, context : pyopencl.Device, pyopencl.Context
        What everything is made of.
    name : str
        Platform and device, for notes.
    workers : int
        Commands that it runs side by side as far as it tells.
    out_of_order : bool
        It has queues that are not in order.
    """

    cl: Any
    device: Any
    context: Any
    name: str
    workers: int
    out_of_order: bool


def prepare() -> None:
    """Set what the OpenCL loader and PoCL read when they start; nothing that is set already."""
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(max(WORKERS, os.cpu_count() or 1)))
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or not spec.origin:
        return
    wheels = Path(spec.origin).parent / ".libs"
    bundled_loader = any(wheels.glob("libOpenCL*"))
    if bundled_loader or not any(wheels.glob("pocl.icd")) or any(Path("/etc/OpenCL/vendors").glob("*.icd")):
        return
    # The ICD file names its library without a directory: the loader finds it once it is in the process.
    import ctypes

    for library in wheels.glob("libpocl*.so*"):
        ctypes.CDLL(str(library))
    os.environ.setdefault("OCL_ICD_VENDORS", str(wheels))


def load_pyopencl() -> ModuleType:
    """Import pyopencl, prepared.

    Raises
    ------
    Unsupported
        It is not installed or cannot be imported.
    """
    prepare()
    try:
        import pyopencl
    except (ImportError, OSError) as error:
        raise Unsupported(
            f"backend opencl needs pyopencl: {error}", where="opencl", next_step=EXTRA
        ) from error
    module: ModuleType = pyopencl
    return module


def _devices(cl: Any) -> list[tuple[Any, Any]]:
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader found no platform at all
        return []
    found = []
    for platform in platforms:
        try:
            found += [(platform, device) for device in platform.get_devices()]
        except cl.Error:  # a platform without devices
            continue
    return found


def _rank(cl: Any, platform: Any, device: Any) -> tuple[int, int]:
    kinds = (cl.device_type.GPU, cl.device_type.ACCELERATOR, cl.device_type.CPU)
    kind = next((n for n, k in enumerate(kinds) if device.type & k), len(kinds))
    return kind, -int(device.max_compute_units)


def _usable(device: Any) -> bool:
    return bool(device.available and device.compiler_available)


def _find(cl: Any) -> tuple[Any, Any] | str:
    found = [(p, d) for p, d in _devices(cl) if _usable(d)]
    if not found:
        return "no OpenCL device"
    wanted = os.environ.get(DEVICE_VARIABLE, "").lower()
    named = [(p, d) for p, d in found if wanted in f"{p.name} {d.name}".lower()]
    if not named:
        names = ", ".join(f"{p.name}: {d.name}" for p, d in found)
        return f"no OpenCL device with {wanted!r} ({DEVICE_VARIABLE}) in its name; there are: {names}"
    return min(named, key=lambda pd: _rank(cl, *pd))


def why_not() -> str:
    """Return an empty string, or why there is no device, in words."""
    try:
        cl = load_pyopencl()
    except Unsupported as error:
        return f"{error.found} ({EXTRA})"
    got = _find(cl)
    return f"{got} ({EXTRA})" if isinstance(got, str) else ""


_CHOSEN: dict[str, Device] = {}


def choose() -> Device:
    """Return the device: the one that `DEVICE_VARIABLE` names, else a GPU before a CPU.

    A process keeps its context and the compiled kernels for the next program.

    Raises
    ------
    Unsupported
        There is none.
    ReplayFailed
        Its driver does not give a context.
    """
    cl: Any = load_pyopencl()
    wanted = os.environ.get(DEVICE_VARIABLE, "")
    if wanted in _CHOSEN:
        return _CHOSEN[wanted]
    got = _find(cl)
    if isinstance(got, str):
        raise Unsupported(got, where="opencl", next_step=EXTRA)
    platform, device = got
    try:
        context = cl.Context([device])
    except cl.Error as error:
        raise ReplayFailed(
            f"no context on {device.name}: {error}",
            where="opencl",
            next_step=f"name another device in {DEVICE_VARIABLE}",
        ) from error
    properties = int(device.queue_properties)
    _CHOSEN[wanted] = Device(
        cl,
        device,
        context,
        f"{platform.name}: {device.name}",
        int(device.max_compute_units),
        bool(properties & int(cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)),
    )
    return _CHOSEN[wanted]
