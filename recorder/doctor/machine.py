"""What of this machine matters to recordings."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
import time
from pathlib import Path

from ...formats.errors import InfrastructureError
from ..hook import SITE
from ..plugin import ggml_plugin
from ..tap import ggml_tap
from .elf import symbols
from .finding import LIMIT, NO, OK, Finding
from .place import look_at_place

__all__ = ["look_at_machine"]

_SLOW_CLOCKS = ("hpet", "acpi_pm", "refined-jiffies", "jiffies")


def look_at_machine(folder: Path) -> list[Finding]:
    """Return what was found.

    Parameters
    ----------
    folder : Path
        Where tapes would be written.
    """
    from .drivers import look_at_nvml, look_at_vulkan
    from .schedulers import look_at_schedulers

    found = [_python(), *_plugin(), *look_at_place(folder)]
    found += [look() for look in (_limits, _clock, _cores, _tracing, look_at_nvml, look_at_vulkan)]
    return found + look_at_schedulers()


def _python() -> Finding:
    found = f"Python {platform.python_version()} ({sys.implementation.name}) on {platform.machine()}"
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return Finding("python", NO, found, "record on Linux on x86-64")
    if not (SITE / "sitecustomize.py").is_file():
        return Finding("python", NO, f"{found}; the import hook is not there", "install tapedelay again")
    return Finding("python", OK, found)


def _plugin() -> list[Finding]:
    try:
        path = ggml_plugin()
    except InfrastructureError as e:
        return [Finding("plugin", NO, e.found, e.next_step)]
    needs, has = symbols(path).glibc, _glibc()
    wanted = f"glibc {needs[0]}.{needs[1]}"
    try:
        ctypes.CDLL(str(path))
    except OSError as e:
        if has and has < needs:
            found = f"the ggml plugin needs {wanted}, this machine has {has[0]}.{has[1]}"
            return [Finding("plugin", NO, found, "install a wheel built for this system, or build it here")]
        return [Finding("plugin", NO, f"the ggml plugin does not load: {e}", "install tapedelay again")]
    return [_loads(needs, has), _tap()]


def _tap() -> Finding:
    try:
        ggml_tap()
    except InfrastructureError as e:
        return Finding("tap", LIMIT, f"{e.found}: no steps, splits and graphs", e.next_step)
    return Finding("tap", OK, "the tap for the scheduler's own view is there (record --tap)")


def _loads(needs: tuple[int, int], has: tuple[int, int] | None) -> Finding:
    wanted = f"glibc {needs[0]}.{needs[1]}"
    here = f"{has[0]}.{has[1]}" if has else "another C library"
    return Finding("plugin", OK, f"the ggml plugin loads (needs {wanted}, here {here})")


def _glibc() -> tuple[int, int] | None:
    try:
        major, minor = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1].split(".")[:2]
        return int(major), int(minor)
    except (ValueError, IndexError, OSError):
        return None


def _limits() -> Finding:
    small = []
    for name, number, least, unit in (
        ("file size (ulimit -f)", resource.RLIMIT_FSIZE, 1 << 30, "bytes"),
        ("address space (ulimit -v)", resource.RLIMIT_AS, 1 << 33, "bytes"),
        ("open files (ulimit -n)", resource.RLIMIT_NOFILE, 64, "files"),
    ):
        soft = resource.getrlimit(number)[0]
        if soft != resource.RLIM_INFINITY and soft < least:
            small.append(f"{name} is {soft:,} {unit}")
    if small:
        return Finding(
            "limits", LIMIT, f"low limits: {'; '.join(small)}", "raise them before long recordings"
        )
    return Finding("limits", OK, "no limit on file size, memory or open files that matters")


def _clock() -> Finding:
    count = 1000
    begun = time.perf_counter_ns()
    for _ in range(count):
        time.monotonic_ns()
    each_ns = (time.perf_counter_ns() - begun) // count
    source = ""
    try:
        folder = Path("/sys/devices/system/clocksource/clocksource0")
        source = (folder / "current_clocksource").read_text().strip()
    except OSError:
        pass
    found = f"clock {source or 'of unknown source'}: at most {each_ns} ns to read, from Python"
    if source in _SLOW_CLOCKS:
        return Finding("clock", LIMIT, f"{found}: each record reads it", "boot with clocksource=tsc")
    return Finding("clock", OK, found)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    found = f"{cores} core{'s' * (cores != 1)} for this process"
    if cores == 1:
        return Finding("cores", LIMIT, f"{found}: engine and test devices take turns", "allow two or more")
    return Finding("cores", OK, found)


def _tracing() -> Finding:
    return Finding("ptrace", OK, "neither ptrace nor root is needed: the engine records itself")
