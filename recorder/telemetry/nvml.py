"""NVIDIA's counters, through NVML (package ``nvidia-ml-py``, module ``pynvml``).

Product names and PCI bus ids are read, serial numbers and UUIDs are not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import nan
from typing import Any

__all__ = ["METRICS", "Device", "NoNvml", "Nvml"]

METRICS: tuple[tuple[str, str], ...] = (
    ("sm_clock", "MHz"),
    ("memory_clock", "MHz"),
    ("power", "W"),
    ("temperature", "C"),
    ("memory_used", "bytes"),
    ("utilisation", "%"),
    ("memory_utilisation", "%"),
    ("throttle_reasons", "mask"),
    ("pcie_tx", "bytes/s"),
    ("pcie_rx", "bytes/s"),
)
"""Names and units, in the order of the values that `Nvml.read` returns."""

_SLOW = frozenset({"pcie_tx", "pcie_rx"})
"""The driver counts bytes for 20 ms before it answers."""


class NoNvml(Exception):
    """There is no NVML that answers; the message says why."""


@dataclass
class Device:
    """One device as NVML counts them.

    Attributes
    ----------
    name : str
        Product name; empty where it is not told, or no UTF-8.
    bus : str
        PCI bus id, ``DOMAIN:BUS:DEVICE.FUNCTION``; likewise.
    missing : dict of str to str
        Metrics that this device or driver does not tell, and why.
    gone : str
        Why it stopped answering; empty while it answers.
    """

    handle: Any
    name: str
    bus: str
    missing: dict[str, str] = field(default_factory=dict)
    gone: str = ""


class Nvml:
    """The devices of this machine's driver.

    Raises
    ------
    NoNvml
        The package or the driver's library is not there, or the driver does not answer.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as e:
            raise NoNvml("the Python package nvidia-ml-py is not installed") from e
        self._nvml = pynvml
        self._readers = _readers(pynvml)
        try:
            pynvml.nvmlInit()
            self.devices = [self._device(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as e:
            if isinstance(e, pynvml.NVMLError_LibraryNotFound):
                raise NoNvml("libnvidia-ml.so.1 is not there: no NVIDIA driver") from e
            raise NoNvml(self._words(e)) from e

    def _device(self, index: int) -> Device:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as e:
            return Device(None, "", "", gone=self._words(e))
        name = bus = ""
        with suppress(self._nvml.NVMLError, UnicodeDecodeError):  # pynvml decodes
            name = _text(self._nvml.nvmlDeviceGetName(handle))
        with suppress(self._nvml.NVMLError, UnicodeDecodeError):
            bus = _text(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
        return Device(handle, name, bus)

    def read(self, device: Device, *, slow: bool = True) -> list[float]:
        """Return the values of `METRICS`, not-a-number for what is not told.

        Parameters
        ----------
        device : Device
            One of `devices`. What it does not tell is noted in it and not asked for again.
        slow : bool
            Whether to ask also for what takes the driver tens of milliseconds.
        """
        values = []
        for name, _ in METRICS:
            value = nan
            if not device.gone and name not in device.missing and (slow or name not in _SLOW):
                try:
                    value = float(self._readers[name](device.handle))
                except self._nvml.NVMLError as e:
                    if e.value in self._for_good():
                        device.missing[name] = self._words(e)
                    elif e.value != self._nvml.NVML_ERROR_NO_DATA:
                        # Whatever it is: to ask on would mean to ask a device that is in trouble.
                        device.gone = self._words(e)
            values.append(value)
        return values

    def close(self) -> None:
        """Let go of the driver."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _for_good(self) -> tuple[int, ...]:
        n = self._nvml
        return (
            n.NVML_ERROR_NOT_SUPPORTED,
            n.NVML_ERROR_FUNCTION_NOT_FOUND,
            n.NVML_ERROR_NO_PERMISSION,
            n.NVML_ERROR_INVALID_ARGUMENT,
        )

    def _words(self, error: Any) -> str:
        try:
            return str(error)[:100]
        except Exception:  # the text comes from the driver, too
            return f"NVML error {error.value}"


def _readers(nvml: Any) -> dict[str, Callable[[Any], float]]:
    return {
        "sm_clock": lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM),
        "memory_clock": lambda h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM),
        "power": lambda h: nvml.nvmlDeviceGetPowerUsage(h) / 1e3,
        "temperature": lambda h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU),
        "memory_used": lambda h: nvml.nvmlDeviceGetMemoryInfo(h).used,
        "utilisation": lambda h: nvml.nvmlDeviceGetUtilizationRates(h).gpu,
        "memory_utilisation": lambda h: nvml.nvmlDeviceGetUtilizationRates(h).memory,
        "throttle_reasons": lambda h: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        # told in KB/s
        "pcie_tx": lambda h: nvml.nvmlDeviceGetPcieThroughput(h, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1000,
        "pcie_rx": lambda h: nvml.nvmlDeviceGetPcieThroughput(h, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1000,
    }


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
