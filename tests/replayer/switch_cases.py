"""A litmus for every debugging switch: what `check` finds without it, and what in each state."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A file without the line of the switch, and its verdict lines.

    Attributes
    ----------
    without : tuple of str
        Where nothing says the state of the switch.
    states : dict of str to tuple of str
        Where something does; more lines may come with the state, after a comma.
    hidden_by : tuple of str or None
        What `check` names for the first finding without; None: not asked.
    """

    text: str
    without: tuple[str, ...]
    states: dict[str, tuple[str, ...]]
    hidden_by: tuple[str, ...] | None = None


def machine(device: str, *lines: str, kind: str = "gpu", order: str = "in") -> str:
    head = f"""\
device CPU host
device {device} {kind}
host H CPU
host T CPU
queue s0 {device} order={order}
queue s1 {device}
buffer M 64 device=CPU
buffer N 64 device=CPU
buffer R 64 device=CPU
buffer D 64 device={device}
buffer E 64 device={device}
"""
    return head + "".join(f"{line}\n" for line in lines)


# A kernel and a copy, each beside host code that writes what it reads.
_KERNEL_AND_COPY = (
    "1 | kernel | s0 | M | D",
    "2 | host   | H  |   | M",
    "3 | copy   | s1 | N | E",
    "4 | host   | H  |   | N",
)
_BOTH = ("race: 1x2 WAR M[0:64]; 3x4 WAR N[0:64]",)
_COPY_LEFT = ("race: 3x4 WAR N[0:64]",)
_KERNEL_LEFT = ("race: 1x2 WAR M[0:64]",)
_CLEAN = ("clean",)

# ggml: a split's input is copied, the split is computed, the CPU writes the next input; then copies alone.
_SPLIT = (
    "1 | copy    | s0 | M | D",
    "2 | compute | s0 | D | E",
    "3 | host    | H  |   | M",
)
_COPY_ALONE = (
    "4 | copy    | s0 | N | D",
    "5 | host    | H  |   | N",
)
_GET = (
    "6 | copy    | s0 | E | R",
    "7 | host    | H  | R |",
)
_PARTS = (
    "1 | compute | s0 | | |",
    "2 | kernel  | s0 | M | D | | parent=1",
    "3 | kernel  | s1 | D | E | | parent=1",
)
_COLLECTIVE = (
    "1 | coll    | s1 |   | D:update | c",
    "2 | record  | s1 |   |   | done",
    "3 | wait    | s0 |   |   | done",
    "4 | host    | H  |   | D",
    "5 | kernel  | s1 | M |   |",
    "6 | record  | s1 |   |   | other",
    "7 | wait    | s0 |   |   | other",
    "8 | host    | H  |   | M",
)
_DRAINED = (
    "1 | copy    | s0 | M | D",
    "2 | kernel  | s0 | D | E",
    "3 | host    | H  |   | M",
    "4 | host    | H  |   | E",
)
_DRAINED_COPY = (
    "1 | kernel  | s0 | M | D",
    "2 | copy    | s0 | N | E",
    "3 | host    | H  |   | M",
    "4 | host    | H  |   | N",
)


def nothing(device: str, *states: str) -> Case:
    """Return the case of a switch that orders nothing."""
    same: dict[str, tuple[str, ...]] = dict.fromkeys(states, _BOTH)
    return Case(machine(device, *_KERNEL_AND_COPY), _BOTH, same)


def blocking_wait() -> Case:
    return Case(
        machine("CUDA0", *_COLLECTIVE),
        ("race: 1x4 WAW D[0:64]; 5x8 WAR M[0:64]",),
        {"on": ("race: 5x8 WAR M[0:64]",), "off": ("race: 1x4 WAW D[0:64]; 5x8 WAR M[0:64]",)},
    )


CASES: dict[str, Case] = {
    "CUDA_LAUNCH_BLOCKING": Case(
        machine("CUDA0", *_KERNEL_AND_COPY),
        _BOTH,
        {"on": _COPY_LEFT, "off": _BOTH},
        ("CUDA_LAUNCH_BLOCKING=1",),
    ),
    "GGML_CUDA_DISABLE_GRAPHS": Case(
        machine("CUDA0", *_SPLIT),
        ("race: 1x3 WAR M[0:64]",),
        {
            "on": ("race: 1x3 WAR M[0:64]",),
            "off": ("race: 1x3 WAR M[0:64]",),
            "off, switch CUDA_LAUNCH_BLOCKING on": ("race: 1x3 WAR M[0:64]",),
            "on, switch CUDA_LAUNCH_BLOCKING on": _CLEAN,
        },
        ("CUDA_LAUNCH_BLOCKING=1 (with GGML_CUDA_DISABLE_GRAPHS=1)",),
    ),
    "GGML_CUDA_GRAPH_OPT": Case(
        machine("CUDA0", *_PARTS),
        ("race: 2x3 RAW D[0:64]",),
        {"on": ("race: 2x3 RAW D[0:64]",), "off": _CLEAN},
        (),  # off already, for all that is known
    ),
    "GGML_CUDA_PDL": Case(
        machine("CUDA0", "1 | kernel | s0 | M | D", "2 | kernel | s0 | D | E", order="out"),
        ("race: 1x2 RAW D[0:64]",),
        {"on": ("race: 1x2 RAW D[0:64]",), "off": _CLEAN},
        ("CUDA_LAUNCH_BLOCKING=1", "GGML_CUDA_PDL=0"),
    ),
    "CUDA_DEVICE_MAX_CONNECTIONS": nothing("CUDA0", "one", "other"),
    "HIP_LAUNCH_BLOCKING": Case(
        machine("ROCm0", *_KERNEL_AND_COPY),
        _BOTH,
        {"on": _COPY_LEFT, "off": _BOTH},
        ("HIP_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=2"),
    ),
    "AMD_SERIALIZE_KERNEL": Case(
        machine("ROCm0", *_DRAINED),
        ("race: 1x3 WAR M[0:64]; 2x4 WAW E[0:64]",),
        {
            "off": ("race: 1x3 WAR M[0:64]; 2x4 WAW E[0:64]",),
            "before": ("race: 2x4 WAW E[0:64]",),
            "after": _CLEAN,
            "both": _CLEAN,
            "other": ("race: 1x3 WAR M[0:64]; 2x4 WAW E[0:64]",),
        },
        ("HIP_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=1", "AMD_SERIALIZE_KERNEL=2", "AMD_SERIALIZE_COPY=2"),
    ),
    "AMD_SERIALIZE_COPY": Case(
        machine("ROCm0", *_DRAINED_COPY),
        ("race: 1x3 WAR M[0:64]; 2x4 WAR N[0:64]",),
        {
            "off": ("race: 1x3 WAR M[0:64]; 2x4 WAR N[0:64]",),
            "before": ("race: 2x4 WAR N[0:64]",),
            "after": _CLEAN,
            "both": _CLEAN,
        },
        ("HIP_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=2", "AMD_SERIALIZE_COPY=1", "AMD_SERIALIZE_COPY=2"),
    ),
    "GPU_MAX_HW_QUEUES": nothing("ROCm0", "one", "other"),
    "HSA_ENABLE_SDMA": nothing("ROCm0", "on", "off"),
    "GGML_VK_DISABLE_ASYNC": Case(
        machine("Vulkan0", *_SPLIT, *_COPY_ALONE, *_GET),
        ("race: 1x3 WAR M[0:64]; 4x5 WAR N[0:64]; 6x7 RAW R[0:64]",),
        {
            "on": ("race: 4x5 WAR N[0:64]",),
            "off": ("race: 1x3 WAR M[0:64]; 4x5 WAR N[0:64]; 6x7 RAW R[0:64]",),
        },
        ("GGML_VK_DISABLE_ASYNC=1", "GGML_VK_SERIALIZE_SUBMISSIONS=1"),
    ),
    "GGML_VK_PERF_LOGGER": Case(
        machine("Vulkan0", *_SPLIT, *_GET),
        ("race: 1x3 WAR M[0:64]; 6x7 RAW R[0:64]",),
        {"on": ("race: 6x7 RAW R[0:64]",), "off": ("race: 1x3 WAR M[0:64]; 6x7 RAW R[0:64]",)},
    ),
    "GGML_VK_SERIALIZE_SUBMISSIONS": Case(
        machine("Vulkan0", *_SPLIT, *_GET),
        ("race: 1x3 WAR M[0:64]; 6x7 RAW R[0:64]",),
        {"on": ("race: 6x7 RAW R[0:64]",), "off": ("race: 1x3 WAR M[0:64]; 6x7 RAW R[0:64]",)},
    ),
    "GGML_VK_ASYNC_USE_TRANSFER_QUEUE": Case(
        machine("Vulkan0", "1 | kernel | s0 | D | E", "2 | copy | s0 | M | D"),
        _CLEAN,
        {"on": ("unknown:",), "off": _CLEAN},  # the copy may overtake: nothing is called clean
    ),
    "GGML_VK_SYNC_LOGGER": nothing("Vulkan0", "on", "off"),
    "GGML_METAL_CONCURRENCY_DISABLE": Case(
        machine("MTL0", *_PARTS),
        ("race: 2x3 RAW D[0:64]",),
        {"on": _CLEAN, "off": ("race: 2x3 RAW D[0:64]",)},
        ("GGML_METAL_CONCURRENCY_DISABLE=1",),
    ),
    "GGML_SCHED_DEBUG": nothing("CUDA0", "on", "off"),
    "LLAMA_GRAPH_REUSE_DISABLE": nothing("CUDA0", "on", "off"),
    "NCCL_LAUNCH_MODE": nothing("CUDA0", "group", "parallel", "other"),
    "TORCH_NCCL_BLOCKING_WAIT": blocking_wait(),
    "NCCL_BLOCKING_WAIT": blocking_wait(),
    "TAPEDELAY_SYNC": Case(
        machine("TAPE0", *_KERNEL_AND_COPY, kind="test profile=full-async"),
        _BOTH,
        {"on": _CLEAN, "off": _BOTH},
        ("TAPEDELAY_SYNC=1",),
    ),
}
