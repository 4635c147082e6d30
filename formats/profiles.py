"""Profiles: what a kind of device promises, as data.

A device names its profile. A profile adds edges that no queue, event or sync says (section 9 of the edge
contract) and describes how a test device behaves. A tape carries the definitions that it uses in
``manifest.profiles``; a name that is not there is looked up among the built-in ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import InvalidTape

__all__ = ["BUILTIN", "COPY_DIRECTIONS", "Profile", "find_profile"]

COPY_DIRECTIONS = ("h2d", "d2h", "d2d")
"""Copy directions: host to device, device to host, device to device; pinned memory counts as neither host."""


@dataclass(frozen=True)
class Profile:
    """What the queues of a device promise, and how a test device of that name behaves.

    Attributes
    ----------
    name : str
        The name that `devices.profile` holds.
    doc : str
        One line for people.
    default_queue_blocks : bool
        A queue of kind ``default`` is ordered with every other queue of its device, both ways, by row order.
    free_synchronises, alloc_synchronises : bool
        The op waits for all earlier ops of the buffer's device, and the issuing host thread goes on after it.
    blocking_copies : tuple of str
        Directions (see `COPY_DIRECTIONS`) whose issuer waits until the copy is complete. Memory that no
        buffer names counts as pageable host memory; pinned memory is never blocking.
    async_h2d : bool
        A test device's asynchronous copy accepts host sources.
    async_d2d : bool
        ... and other test devices' memory.
    d2d_queue : str
        ``src``: such a copy runs on the source's queue and the destination waits; ``dst``: on the
        destination's.
    events : bool
        The device has events.
    host_buffer : bool
        The device offers pinned host memory.
    pinned_set : bool
        An asynchronous set reads its source when the command runs, not when it is issued.
    """

    name: str
    doc: str = ""
    default_queue_blocks: bool = False
    free_synchronises: bool = False
    alloc_synchronises: bool = False
    blocking_copies: tuple[str, ...] = ()
    async_h2d: bool = True
    async_d2d: bool = False
    d2d_queue: str = "src"
    events: bool = True
    host_buffer: bool = True
    pinned_set: bool = True

    @property
    def declares_edges(self) -> bool:
        """Whether the profile adds any edge."""
        return bool(
            self.default_queue_blocks
            or self.free_synchronises
            or self.alloc_synchronises
            or self.blocking_copies
        )

    def device_data(self) -> str:
        """Return the behaviour of a test device as ``key=value;...``, the form the plugin reads."""
        words = {
            "async_h2d": str(int(self.async_h2d)),
            "async_d2d": str(int(self.async_d2d)),
            "d2d_queue": self.d2d_queue,
            "events": str(int(self.events)),
            "host_buffer": str(int(self.host_buffer)),
            "pinned_set": str(int(self.pinned_set)),
        }
        return ";".join(f"{k}={v}" for k, v in words.items())

    def as_dict(self) -> dict[str, Any]:
        """Return the definition as it stands in ``manifest.profiles``."""
        data = asdict(self)
        del data["name"]
        data["blocking_copies"] = list(self.blocking_copies)
        return data

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, Any], *, where: str = "manifest.json") -> Profile:
        """Return the profile that ``manifest.profiles[name]`` defines.

        Raises
        ------
        InvalidTape
            If a key is unknown or a value has the wrong type.
        """
        place = f"{where}: profile {name!r}"
        if not isinstance(data, Mapping):
            raise InvalidTape("it is not an object", expected="keys of a profile", where=place)
        known = {f.name: f.type for f in fields(cls) if f.name != "name"}
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key not in known:
                raise InvalidTape(f"key {key!r}", expected=", ".join(sorted(known)), where=place)
            if known[key] == "bool" and not isinstance(value, bool):
                raise InvalidTape(f"{key} = {value!r}", expected="true or false", where=place)
            if known[key] == "str" and not isinstance(value, str):
                raise InvalidTape(f"{key} = {value!r}", expected="a string", where=place)
            values[key] = value
        directions = values.get("blocking_copies", ())
        if not isinstance(directions, list | tuple) or any(d not in COPY_DIRECTIONS for d in directions):
            raise InvalidTape(
                f"blocking_copies = {directions!r}",
                expected=f"a list of {', '.join(COPY_DIRECTIONS)}",
                where=place,
            )
        values["blocking_copies"] = tuple(directions)
        if values.get("d2d_queue", "src") not in ("src", "dst"):
            raise InvalidTape(f"d2d_queue = {values['d2d_queue']!r}", expected="src or dst", where=place)
        return cls(name, **values)


BUILTIN: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile("strict", "nothing but what the rows say; the default of litmus files"),
        Profile(
            "cuda-legacy",
            "CUDA with the legacy default stream; freeing memory waits for the device",
            default_queue_blocks=True,
            free_synchronises=True,
        ),
        Profile(
            "cuda-pageable",
            "CUDA with per-thread streams; copies from and to pageable memory block",
            free_synchronises=True,
            blocking_copies=("h2d", "d2h"),
        ),
        Profile("blocking-copies", "every copy blocks its issuer", blocking_copies=COPY_DIRECTIONS),
        Profile("ggml-host", "ggml's CPU backend: its work is the calling thread's"),
        Profile("ggml-gpu", "a real GPU backend of ggml: only what its calls say"),
        Profile("vulkan-like", "test device: host sources are copied asynchronously, other devices' are not"),
        Profile(
            "cuda-like",
            "test device: copies between devices are asynchronous, host sources block",
            async_h2d=False,
            async_d2d=True,
        ),
        Profile("full-async", "test device: every copy is asynchronous", async_d2d=True),
    )
}
"""The built-in profiles by name."""


def find_profile(name: str, defined: Mapping[str, Mapping[str, Any]], *, where: str = "tape") -> Profile:
    """Return the profile of that name: the tape's own definition, else the built-in one.

    Raises
    ------
    InvalidTape
        If neither knows the name, or the tape's definition is malformed.
    """
    if name in defined:
        return Profile.from_dict(name, defined[name], where=where)
    if name in BUILTIN:
        return BUILTIN[name]
    raise InvalidTape(
        f"profile {name!r} is not defined",
        expected=f"a definition in manifest.profiles or one of {', '.join(sorted(BUILTIN))}",
        where=where,
        next_step="define it in the manifest, or use `strict`",
    )
