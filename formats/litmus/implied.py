"""What the rows of a litmus file imply where the header says nothing."""

from __future__ import annotations

import re

from ..notation import NAME, Spot, integer, shown, split
from .lines import File, RowText
from .scene import Scene, auto_name, target_of

__all__ = ["DEFAULT_BUFFER_BYTES", "imply_buffers", "imply_queues", "imply_syncs"]

DEFAULT_BUFFER_BYTES = 4096
"""Size of an implied buffer that is nowhere given a range."""

_HOST_LETTERS = ("H", "T")
_DEFAULT_ISSUER = "H"
_SYNC_KINDS = {
    "record": "event",
    "wait": "event",
    "wait_any": "event",
    "destroy": "event",
    "semsig": "semaphore",
    "semwait": "semaphore",
    "coll": "collective",
}


def imply_queues(file: File, scene: Scene) -> None:
    """Add the queues that the rows name, unless the header declares any; then only look them up."""
    queues = scene.queues
    for row in file.rows:
        names = [row.queue]
        if row.thread not in (None, "?"):
            names.append(str(row.thread))
        elif row.thread is None and not queues.declared and not row.queue.startswith(_HOST_LETTERS):
            names.append(_DEFAULT_ISSUER)
        for name in names:
            if queues.declared or name.startswith("."):
                queues.get(row.spot, name)
            elif queues.find(row.spot, name) is None:
                _imply_queue(scene, row.spot, name)
    if not queues.declared:
        issuer = queues.find(Spot(file.name, 0), _DEFAULT_ISSUER)
        for ident, columns in enumerate(queues.rows):
            scene.issuers[ident] = ident if columns["kind"] == "host_thread" else issuer


def _imply_queue(scene: Scene, spot: Spot, name: str) -> None:
    host = name.startswith(_HOST_LETTERS)
    devices = scene.devices
    if host:
        device = scene.host_device(0)
        if device is None:
            raise spot.error("a host thread without a host device", "a line `device NAME host`")
    elif devices.declared:
        device = next((int(r["device"]) for r in devices.rows if r["kind"] != "host"), 0)
    else:
        device = scene.device(spot, "device", 0)
    scene.queues.add(
        name,
        device=device,
        kind="host_thread" if host else "queue",
        in_order=True,
        clock="host",
        clock_error_ns=None,
        process=0,
    )


def imply_syncs(file: File, scene: Scene) -> None:
    """Add the events, semaphores and collectives that the rows name, unless the header declares any."""
    syncs = scene.syncs
    for row in file.rows:
        kind = _SYNC_KINDS.get(row.kind)
        if kind is None or not row.target:
            continue
        for name in split(row.spot, row.target, ",") if row.kind == "wait_any" else [row.target]:
            if syncs.declared or name.startswith("."):
                syncs.get(row.spot, name)
                continue
            known = syncs.find(row.spot, name)
            if known is None:
                if not re.fullmatch(NAME, name):
                    raise row.spot.error(f"sync {shown(name)}", "a name")
                syncs.add(name, kind=kind, device=None, process=0)
            elif row.kind != "destroy" and syncs.rows[known]["kind"] != kind:
                raise row.spot.error(
                    f"`{row.kind}` of {shown(name)}, which is of kind {syncs.rows[known]['kind']} above",
                    "one name for one thing",
                )


def imply_buffers(file: File, scene: Scene) -> None:
    """Add the buffers that the rows name and do not make themselves.

    The size is the greatest end of a range of it in the file. Its memory is where the first row runs that
    touches it: the host for a host thread, else the queue's device.
    """
    made: set[str] = set()
    for row in file.rows:
        new, ref = target_of(row)
        if new is not None:
            made.add(new)
        elif ref is not None and ref.begin is not None and row.kind == "alloc":
            made.add(auto_name(ref))
    lists = dict(scene.lists)
    sizes: dict[str, int] = {}
    homes: dict[str, tuple[int, bool]] = {}
    for row in file.rows:
        arg = integer(row.spot, row.values["arg"], "arg") if row.values.get("arg") else 0
        last = _last_unit(row, lists)
        refs = [(a.ref, True) for a in row.accesses or ()]
        target = target_of(row)[1]
        if target is not None:
            refs.append((target, False))
        for ref, touches in refs:
            if ref.name in made or ref.name == "?":
                continue
            if ref.name.startswith("."):
                raise row.spot.error(f"buffer {ref.name}", "a name, or a `buffer` line in the header")
            end = ref.end + ref.end_per_arg * arg + (ref.unit_bytes or 0) * last
            sizes[ref.name] = max(sizes.get(ref.name, 0), end)
            if touches and ref.name not in homes:
                queue = scene.queues.get(row.spot, row.queue)
                homes[ref.name] = (int(scene.queues.rows[queue]["device"]), scene.is_host(queue))
    for name, end in sizes.items():
        device, host = homes.get(name, (0, True))
        if end >= 1 << 63:
            raise Spot(file.name, 1).error(f"buffer {name} of {end} bytes", "64 bits")
        scene.buffer_spots.append((Spot(file.name, 1), {}))
        scene.buffers.append(
            {
                "buffer": len(scene.buffers),
                "device": device,
                "name": name,
                "bytes": end or DEFAULT_BUFFER_BYTES,
                "kind": "host" if host else "device",
                "parent": None,
                "parent_offset": None,
                "generation": 0,
                "shared_key": None,
            }
        )


def _last_unit(row: RowText, lists: dict[int, tuple[int, ...]]) -> int:
    text, ident = row.values.get("units"), row.values.get("list")
    if text is not None:
        return max(integer(row.spot, u, "unit") for u in text.split(","))
    if ident is not None:
        return max(lists.get(integer(row.spot, ident, "list"), (0,)), default=0)
    return 0
