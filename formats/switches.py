"""Debugging switches: environment variables that change what an engine and its drivers order.

One table for all of the toolkit. The recorder writes the state of a switch as a *known word* into
``manifest.switches`` (never what the variable holds); the edges of a switch count for the tape (SPEC.md
section 8, rule 10); `check` names the switches that would order the two ops of a finding.

What a switch orders is said in a closed vocabulary, `EFFECTS`. A switch without effects says in `reason` why:
nothing that its source promises orders the ops of a tape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .schema import OP_KINDS

__all__ = [
    "BACKENDS",
    "DIRECTIONS",
    "EFFECTS",
    "LONGEST",
    "READINGS",
    "SWITCHES",
    "TABLE",
    "Effect",
    "Switch",
    "family",
    "word_of",
]

EFFECTS = {
    "blocks": "the issuer of such an op, if it is part of no other, goes on after the op has ended",
    "drains": "... goes on after all that the op's in-order queue held before it has ended",
    "in_order": "such ops of one queue run in row order, also where the queue is not in order",
    "launch_in_order": "such ops that are part of one op run in row order, on whatever queues",
    "collective_waits_block": "the issuer of a wait for a record right behind a collective waits for it too",
}
"""The vocabulary: what a switch can add to the contract."""

DIRECTIONS = ("h2d", "d2h", "d2d", "p2d", "d2p")
"""Copy directions that `blocks` may be limited to: as in profiles, and from and to pinned memory."""

BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "metal": "Metal", "test": "test devices"}
"""Families of devices, and what people call them."""

READINGS = {
    "set": "on wherever the variable is set, also to nothing or 0",
    "number": "on for a number that is not 0",
    "one": "on for the number 1",
    "flag": "on for 1, y, yes, t, true or on",
    "words": "each value that it knows has a word of its own",
}
"""How the one who reads a variable takes it."""

LONGEST = 64
"""A longer value is no word that anybody knows."""

_KERNELS = ("kernel", "compute")
_PLAYED = {"vulkan-like": "vulkan", "cuda-like": "cuda", "cuda-legacy": "cuda", "cuda-pageable": "cuda"}
_NAMED = re.compile(r"(?:p[0-9]+\.)?(CUDA|ROCm|HIP|Vulkan|MTL|Metal)[0-9]{0,4}(?:\.[0-9]+)?")
_FAMILIES = {
    "CUDA": "cuda",
    "ROCm": "rocm",
    "HIP": "rocm",
    "Vulkan": "vulkan",
    "MTL": "metal",
    "Metal": "metal",
}
_TRUE = ("1", "y", "yes", "t", "true", "on")
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")


@dataclass(frozen=True)
class Effect:
    """What a switch in one state adds to the contract.

    Attributes
    ----------
    rule : str
        A key of `EFFECTS`.
    kinds : tuple of str
        Op kinds that it is about.
    directions : tuple of str
        For ``blocks``: only copies of these directions; empty: all.
    needs : tuple of (str, str)
        Other switches and the states that they must be in as well.
    """

    rule: str
    kinds: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Switch:
    """A variable, what its values mean, and what they order.

    Attributes
    ----------
    name : str
        The variable.
    backends : tuple of str
        Families of devices that it concerns; empty: none in particular.
    doc : str
        What it does, in one line.
    source : str
        Where that is said.
    reading : str
        A key of `READINGS`.
    words : tuple of (str, str)
        For ``words``: value and word. Any other value is ``other``.
    default : str
        State while the variable is not set.
    effects : mapping of str to tuple of Effect
        What each state adds; a state that is missing adds nothing.
    reason : str
        Why there is no effect.
    weakens : str
        What it takes away from the order that a tape assumes, where it is on: pairs that depend on that are
        not judged, and nothing is called clean.
    offered : bool
        Whether `check` proposes it. Its edges count either way.
    """

    name: str
    backends: tuple[str, ...]
    doc: str
    source: str
    reading: str = "number"
    words: tuple[tuple[str, str], ...] = ()
    default: str = "off"
    effects: Mapping[str, tuple[Effect, ...]] = field(default_factory=dict)
    reason: str = ""
    weakens: str = ""
    offered: bool = True

    @property
    def states(self) -> tuple[str, ...]:
        """All words that its state can be."""
        return (*(w for _, w in self.words), "other") if self.reading == "words" else ("off", "on")

    def value(self, state: str) -> str:
        """Return what to set the variable to for a state; empty: do not set it."""
        if self.reading == "words":
            return next((v for v, w in self.words if w == state), "")
        if self.reading == "set":
            return "1" if state == "on" else ""
        return {"on": "1", "off": "0"}.get(state, "")

    def setting(self, state: str) -> str:
        """Return a state as a person sets it: ``NAME=1``, or ``NAME unset``."""
        value = self.value(state)
        return f"{self.name}={value}" if value else f"{self.name} unset"


def word_of(name: str, value: str | None) -> str | None:
    """Return the word for what a variable holds; None where it is not set or no switch.

    The recorder's plugin does the same (``native/switches.cpp``).
    """
    switch = TABLE.get(name)
    if switch is None or value is None:
        return None
    if switch.reading == "set":
        return "on"
    if switch.reading == "words":
        return dict(switch.words).get(value, "other")
    if switch.reading == "flag":
        return "on" if value.lower() in _TRUE else "off"
    digits = _NUMBER.match(value[:LONGEST])
    number = int(digits[1]) if digits else 0
    return "on" if (number == 1 if switch.reading == "one" else number != 0) else "off"


def family(name: str, kind: str, profile: str) -> tuple[str, bool]:
    """Return the family of a device, and whether it only plays that one.

    Parameters
    ----------
    name, kind, profile : str
        Columns of `devices`.

    Returns
    -------
    tuple
        A key of `BACKENDS` or an empty text; True for a test device with the profile of a real one.
    """
    if kind == "host":
        return "", False
    if kind == "test":
        return _PLAYED.get(profile, ""), True
    named = _NAMED.fullmatch(name)
    return (_FAMILIES[named[1]] if named else _PLAYED.get(profile, "")), False


_VULKAN = "llama.cpp, ggml/src/ggml-vulkan/ggml-vulkan.cpp"
_CLR = "ROCm/clr, rocclr/utils/flags.hpp"
_TORCH = "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
_NO_ORDER = "it changes what is printed, not what is ordered"

SWITCHES: tuple[Switch, ...] = (
    Switch(
        "CUDA_LAUNCH_BLOCKING",
        ("cuda",),
        "a kernel launch returns when the kernel has ended; copies, and launches of a captured graph, are not"
        " promised to",
        "CUDA C++ Programming Guide, asynchronous concurrent execution",
        effects={
            "on": (
                Effect("blocks", ("kernel", "coll")),
                Effect("blocks", ("compute",), needs=(("GGML_CUDA_DISABLE_GRAPHS", "on"),)),
            )
        },
    ),
    Switch(
        "GGML_CUDA_DISABLE_GRAPHS",
        ("cuda", "rocm"),
        "kernels of a graph are launched one by one instead of as a captured graph",
        "llama.cpp, ggml/src/ggml-cuda/common.cuh: is_enabled",
        reading="set",
        reason="the kernels go to the same stream in the same order either way; it only makes that"
        " CUDA_LAUNCH_BLOCKING holds for the computes of ggml as well",
    ),
    Switch(
        "GGML_CUDA_GRAPH_OPT",
        ("cuda", "rocm"),
        "independent branches of a graph run on streams of their own; off: on one stream, in order",
        "llama.cpp, ggml/src/ggml-cuda/ggml-cuda.cu: ggml_backend_cuda_graph_optimize",
        reading="one",
        effects={"off": (Effect("launch_in_order", ("kernel",)),)},
    ),
    Switch(
        "GGML_CUDA_PDL",
        ("cuda",),
        "a kernel may start while the one before it on its stream still runs; off: only when that has ended",
        "llama.cpp, ggml/src/ggml-cuda/common.cuh: ggml_cuda_kernel_launch (pull request 22522)",
        default="on",
        effects={"off": (Effect("in_order", ("kernel",)),)},
    ),
    Switch(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        ("cuda",),
        "preferred number of hardware work queues per device",
        "CUDA C++ Programming Guide, environment variables",
        reading="words",
        words=(("1", "one"),),
        default="other",
        reason="with one, kernels of all streams are seen to start as they were launched, but the number is a"
        " preference (the driver may use another) and no order of ends is promised",
    ),
    Switch(
        "HIP_LAUNCH_BLOCKING",
        ("rocm",),
        "a kernel launch waits for the kernel, as AMD_SERIALIZE_KERNEL=2",
        _CLR,
        effects={
            "on": (
                Effect("blocks", ("kernel", "coll")),
                Effect("blocks", ("compute",), needs=(("GGML_CUDA_DISABLE_GRAPHS", "on"),)),
            )
        },
    ),
    Switch(
        "AMD_SERIALIZE_KERNEL",
        ("rocm",),
        "a kernel launch waits for its stream before (1), for the kernel after (2), or both (3)",
        _CLR,
        reading="words",
        words=(("0", "off"), ("1", "before"), ("2", "after"), ("3", "both")),
        effects={
            "before": (Effect("drains", ("kernel", "coll")),),
            "after": (
                Effect("blocks", ("kernel", "coll")),
                Effect("blocks", ("compute",), needs=(("GGML_CUDA_DISABLE_GRAPHS", "on"),)),
            ),
            "both": (
                Effect("blocks", ("kernel", "coll")),
                Effect("blocks", ("compute",), needs=(("GGML_CUDA_DISABLE_GRAPHS", "on"),)),
            ),
        },
    ),
    Switch(
        "AMD_SERIALIZE_COPY",
        ("rocm",),
        "a copy waits for its stream before (1), for the copy after (2), or both (3)",
        _CLR,
        reading="words",
        words=(("0", "off"), ("1", "before"), ("2", "after"), ("3", "both")),
        effects={
            "before": (Effect("drains", ("copy",)),),
            "after": (Effect("blocks", ("copy",)),),
            "both": (Effect("blocks", ("copy",)),),
        },
    ),
    Switch(
        "GPU_MAX_HW_QUEUES",
        ("rocm",),
        "how many hardware queues the streams of a device share",
        "ROCm documentation, HIP environment variables",
        reading="words",
        words=(("1", "one"),),
        default="other",
        reason="streams that share a hardware queue happen to be in order; no order between them is promised",
    ),
    Switch(
        "HSA_ENABLE_SDMA",
        ("rocm",),
        "copies use the DMA engines; off: kernels that copy",
        "ROCm documentation, ROCR environment variables",
        default="on",
        reason="it changes what carries out a copy; the copy keeps its place on its stream either way",
    ),
    Switch(
        "GGML_VK_DISABLE_ASYNC",
        ("vulkan",),
        "a compute returns when it, and all before it on its backend, has ended; an asynchronous get becomes"
        " a blocking one; asynchronous sets and copies, and events, stay what they are",
        f"{_VULKAN}: support_async in ggml_backend_vk_graph_compute and ggml_backend_vk_init",
        reading="set",
        effects={
            "on": (
                Effect("blocks", _KERNELS),
                Effect("blocks", ("copy",), directions=("d2h", "d2p")),
            )
        },
    ),
    Switch(
        "GGML_VK_PERF_LOGGER",
        ("vulkan",),
        "times are printed: a compute is submitted with a fence and waited for; where a copy is pending the"
        " build may stop with an assertion, so it is not proposed",
        f"{_VULKAN}: vk_perf_logger_enabled in ggml_backend_vk_graph_compute",
        reading="set",
        effects={"on": (Effect("blocks", _KERNELS),)},
        offered=False,
    ),
    Switch(
        "GGML_VK_SERIALIZE_SUBMISSIONS",
        ("vulkan",),
        "a compute waits on a fence for each of its submissions, so that it returns when it has ended"
        " (newer builds; seen on lavapipe)",
        f"{_VULKAN}: serialize_submissions",
        reading="set",
        effects={"on": (Effect("blocks", _KERNELS),)},
    ),
    Switch(
        "GGML_VK_ASYNC_USE_TRANSFER_QUEUE",
        ("vulkan",),
        "copies from host memory go to a queue of their own; a later compute waits for them, but they do not"
        " wait for an earlier one",
        f"{_VULKAN}: async_use_transfer_queue in ggml_vk_get_compute_ctx",
        reading="set",
        reason="it adds no order",
        weakens="copies from host memory may overtake earlier computes of their queue",
    ),
    Switch(
        "GGML_VK_SYNC_LOGGER",
        ("vulkan",),
        "prints nodes and barriers",
        f"{_VULKAN}: vk_enable_sync_logger",
        reading="set",
        reason=_NO_ORDER,
    ),
    Switch(
        "GGML_METAL_CONCURRENCY_DISABLE",
        ("metal",),
        "kernels of a graph are encoded for serial dispatch instead of concurrent dispatch with barriers",
        "llama.cpp, ggml/src/ggml-metal/ggml-metal-context.m: use_concurrency (pull request 15929)",
        reading="set",
        effects={"on": (Effect("launch_in_order", ("kernel",)),)},
    ),
    Switch(
        "GGML_SCHED_DEBUG",
        (),
        "prints how the scheduler splits a graph",
        "llama.cpp, ggml/src/ggml-backend.cpp",
        reason=_NO_ORDER,
    ),
    Switch(
        "LLAMA_GRAPH_REUSE_DISABLE",
        (),
        "the graph is built and allocated anew for each batch",
        "llama.cpp, src/llama-context.cpp: graph_reuse_disable",
        reason="it changes which graph is computed, not what orders it; a fault of reuse goes away with it",
    ),
    Switch(
        "NCCL_LAUNCH_MODE",
        ("cuda",),
        "how the kernels of one process's GPUs are launched together",
        "NCCL user guide, environment variables",
        reading="words",
        words=(("GROUP", "group"), ("PARALLEL", "parallel")),
        default="other",
        reason="it groups launches of one collective; what orders that with other work is its stream",
    ),
    Switch(
        "TORCH_NCCL_BLOCKING_WAIT",
        ("cuda",),
        "Work.wait() lets the host wait for the collective as well, not only the current stream",
        f"{_TORCH}: blocking wait",
        reading="flag",
        effects={"on": (Effect("collective_waits_block"),)},
    ),
    Switch(
        "NCCL_BLOCKING_WAIT",
        ("cuda",),
        "the older name of TORCH_NCCL_BLOCKING_WAIT",
        f"{_TORCH}: blocking wait",
        reading="flag",
        effects={"on": (Effect("collective_waits_block"),)},
        offered=False,
    ),
    Switch(
        "TAPEDELAY_SYNC",
        ("test",),
        "every command of a test device is complete before its call returns",
        "this package, recorder/engines/ggml/native/config.h",
        effects={"on": (Effect("blocks", OP_KINDS),)},
    ),
)
"""The table, in the order in which `check` names switches and the recorder looks for them."""

TABLE: Mapping[str, Switch] = {s.name: s for s in SWITCHES}
"""The table by name."""
