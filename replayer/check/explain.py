"""Findings in words: what two ops are, and which edge nothing provides."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...formats.plain import NULL, flat, ids, optional, words
from ...formats.tape import Tape
from .findings import OpView
from .ranges import READS, WRITES, Buffers

__all__ = ["Views", "phrase", "signature", "signed", "story"]

_NOUNS = {
    "host": "host code",
    "kernel": "kernel",
    "compute": "compute",
    "copy": "copy",
    "memset": "fill",
    "rdma": "network transfer",
    "coll": "collective",
    "free": "free",
    "alloc": "allocation",
    "destroy": "destruction",
    "semwait": "semaphore wait",
    "semsig": "semaphore signal",
    "wait": "wait",
    "wait_any": "wait for any",
    "record": "event record",
    "sync": "synchronisation",
}
_DIGITS = re.compile(r"\d+")


class Views:
    """Makes `OpView`s of rows; the columns that only messages need are read on first use."""

    def __init__(self, tape: Tape, buffers: Buffers) -> None:
        self._tape = tape
        self._buffers = buffers
        self._read = False
        self.sorts: list[str] = []
        self._sort_of: dict[tuple[str | None, int, int, str | None], int] = {}
        self._sort_ids: dict[str, int] = {}

    def _load(self) -> None:
        tape = self._tape
        ops = flat(tape.table("ops"))
        self._op = ids(ops, "op")
        self._kind = words(ops, "kind")
        self._name = words(ops, "name")
        self._label = words(ops, "label")
        self._queue = ids(ops, "queue")
        self._step = optional(ops, "step")
        self._split = optional(ops, "split")
        self._set = ids(ops, "access_set")
        queues = flat(tape.table("queues"))
        self._queue_name = words(queues, "name")
        self._queue_device = ids(queues, "device")
        devices = flat(tape.table("devices"))
        self._device_name = words(devices, "name")
        self._device_kind = words(devices, "kind")
        accesses = flat(tape.table("accesses"))
        self._access_mode = words(accesses, "mode")
        self._access_name = words(accesses, "name")
        self._access_buffer = ids(accesses, "buffer")
        self._sets: dict[int, list[int]] = {}
        for row, key in enumerate(ids(accesses, "set")):
            self._sets.setdefault(key, []).append(row)
        self._read = True

    def _what(self, access: int) -> str:
        name = self._access_name[access]
        if name:
            return name
        buffer = self._access_buffer[access]
        return "" if buffer == NULL else self._buffers.name[self._buffers.root[buffer]] or ""

    def sort(self, row: int, access: int = NULL) -> int:
        """Return which of `sorts`, what a signature says of an op and its access, these are."""
        if not self._read:
            self._load()
        tensor = self._what(access) if access != NULL else ""
        key = (self._kind[row], self._queue[row], access, None if tensor else self._name[row])
        known = self._sort_of.get(key)
        if known is None:
            queue = self._queue[row]
            text = _sort(
                self._kind[row] or "",
                self._queue_name[queue] or f"queue {queue}",
                (self._access_mode[access] or "") if access != NULL else "",
                tensor or self._name[row] or "",
            )
            known = self._sort_ids.setdefault(text, len(self.sorts))
            if known == len(self.sorts):
                self.sorts.append(text)
            self._sort_of[key] = known
        return known

    def of(self, row: int, access: int = NULL) -> OpView:
        """Return the view of an op, with the access (a row of `accesses`) that the finding is about."""
        if not self._read:
            self._load()
        reads = writes = ""
        mode = self._access_mode[access] if access != NULL else None
        touched = self._sets.get(self._set[row], [])
        for other in ([access] if access != NULL else []) + touched:
            if not reads and self._access_mode[other] in READS:
                reads = self._what(other)
            if not writes and self._access_mode[other] in WRITES:
                writes = self._what(other)
        name = self._name[row]
        if self._kind[row] == "copy" and name and not any(self._access_name[o] for o in touched):
            # engines name a copy after the tensor that moves
            reads, writes = (name, writes) if reads else ("", name)
        queue = self._queue[row]
        device = self._queue_device[queue]
        return OpView(
            op=self._op[row],
            label=self._label[row] or f"#{self._op[row]}",
            kind=self._kind[row] or "",
            name=self._name[row] or "",
            queue=self._queue_name[queue] or f"queue {queue}",
            device=self._device_name[device] or f"device {device}",
            device_kind=self._device_kind[device] or "",
            step=self._step[row],
            split=self._split[row],
            mode=mode or "",
            tensor=self._what(access) if access != NULL else "",
            reads=reads,
            writes=writes,
        )


def phrase(op: OpView) -> str:
    """Return an op as a noun phrase: ``the copy of `X` on TAPE0``, ``the CPU compute that writes `Y```."""
    noun = _NOUNS.get(op.kind, op.kind)
    host = op.device_kind == "host"
    if op.kind == "copy" and (op.reads or op.writes):
        words_of = f"of `{op.reads}`" if op.reads else f"into `{op.writes}`"
        if op.mode in WRITES and op.reads and op.tensor and op.tensor != op.reads:
            words_of += f" into `{op.tensor}`"
        return f"the {noun} {words_of} on {op.queue}"
    verb = ""
    if op.tensor:
        verb = {"read": "reads", "update": "updates", "reduce": "reduces into"}.get(op.mode, "writes")
        verb = f" that {verb} `{op.tensor}`"
    if host and op.kind in ("compute", "kernel"):
        return f"the CPU {noun}{verb}"
    return f"the {noun} on {op.queue}{verb}"


def story(kind: str, fault: str, ops: Sequence[OpView], what: str) -> str:
    """Return what is missing, in one sentence."""
    if kind == "race":
        return f"nothing orders {phrase(ops[0])} before {phrase(ops[1])}"
    if kind == "deadlock":
        if len(ops) == 1 and ops[0].kind == "semwait":
            return f"{phrase(ops[0])} waits for a signal that never comes"
        return "these ops wait for each other: " + ", ".join(f"{phrase(o)} ({o.label})" for o in ops)
    first, second = phrase(ops[0]), phrase(ops[1])
    if fault == "double-free":
        return f"`{what}` is freed twice: by {first} and by {second}"
    if fault == "use-before-alloc":
        use, alloc = (
            (ops[1], ops[0]) if ops[0].kind == "alloc" and ops[1].kind != "alloc" else (ops[0], ops[1])
        )
        return f"{phrase(use)} touches `{what}`, and nothing orders it after {phrase(alloc)} that begins it"
    ends = ("free", "destroy")
    use, end = (ops[1], ops[0]) if ops[0].kind in ends and ops[1].kind not in ends else (ops[0], ops[1])
    if fault in ("free-in-flight", "destroy-pending"):
        return f"nothing orders {phrase(use)} before {phrase(end)} that ends `{what}`"
    return f"{phrase(use)} uses `{what}` after {phrase(end)} that ended it"


def signature(kind: str, fault: str, ops: Sequence[OpView], what: str) -> str:
    """Return what the same finding has in common with itself in another run.

    Numbers inside of op and tensor names count for nothing: layer 3 and layer 4 are one kind of finding. So
    are the ids; queue, device and buffer names are kept.
    """
    return signed(kind, fault, what, [_sort(o.kind, o.queue, o.mode, o.tensor or o.name) for o in ops])


def signed(kind: str, fault: str, what: str, sorts: Sequence[str]) -> str:
    """Return the signature of a finding about ops of these sorts, see `Views.sort`."""
    return " | ".join([kind, fault, what, *sorts])


def _sort(kind: str, queue: str, mode: str, name: str) -> str:
    return f"{kind} {queue} {mode} {_DIGITS.sub('#', name)}".replace("  ", " ").strip()
