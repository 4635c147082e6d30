"""What has happened in a run, and how queues and host threads wait for it.

A node of a command queue has an OpenCL event as soon as its commands are enqueued. A node of a host thread,
and one that is not enqueued yet, is waited for through a user event, its *gate*, that opens when it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ....formats.errors import ReplayFailed

__all__ = ["Aborted", "Nodes", "command_failed"]

POLL_S = 20e-6
ASK_S = 0.05


class Aborted(Exception):
    """The run was given up; the thread ends."""


def command_failed(status: int) -> ReplayFailed:
    """Return the error for a command that ended with a negative status."""
    return ReplayFailed(
        f"a command ended with error {status}", where="opencl", next_step="look at the driver's messages"
    )


class Nodes:
    """State of the nodes of one run; `lock` guards it and every enqueue."""

    def __init__(self, cl: Any, context: Any) -> None:
        self.cl = cl
        self.context = context
        self.lock = threading.Condition(threading.RLock())
        self.aborted = threading.Event()
        self.events: dict[int, Any] = {}
        self.done: set[int] = set()
        # A copy that Python drops before it has ended would be waited for at that point.
        self.keep: list[Any] = []
        self._gates: dict[int, Any] = {}
        self._all_gates: list[Any] = []
        self._listeners: dict[int, list[Callable[[], None]]] = {}

    def wait_list(self, nodes: Iterable[int], any_of: Iterable[int] = ()) -> list[Any]:
        """Return the events that a command has to wait for; the caller holds the lock."""
        found = []
        for node in nodes:
            if node in self.done:
                continue
            event = self.events.get(node)
            found.append(self._gate(node) if event is None else event)
        alternatives = tuple(any_of)
        if alternatives and not any(n in self.done for n in alternatives):
            found.append(self._first_of(alternatives))
        return found

    def happened(self, node: int) -> None:
        """Note that a host thread has done a node."""
        with self.lock:
            self.done.add(node)
            listeners = self._listeners.pop(node, ())
            self.lock.notify_all()
        for listener in listeners:
            listener()

    def enqueued(self, node: int, event: Any) -> None:
        """Note the event of a node; the caller holds the lock."""
        self.events[node] = event
        self.keep.append(event)
        for listener in self._listeners.pop(node, ()):
            self._on_complete(event, listener)
        self.lock.notify_all()

    def wait(self, nodes: Iterable[int], any_of: Iterable[int] = ()) -> None:
        """Block a host thread until nodes are done."""
        for node in nodes:
            self.until(lambda node=node: node in self.done or node in self.events)  # type: ignore[misc]
            if node not in self.done:
                self.settle(self.events[node])
        alternatives = tuple(any_of)
        while alternatives and not any(n in self.done or self._complete(n) for n in alternatives):
            self.pause(POLL_S)

    def until(self, what: Callable[[], bool]) -> None:
        """Block a host thread until something that `lock` guards holds."""
        with self.lock:
            while not what():
                if self.aborted.is_set():
                    raise Aborted
                self.lock.wait(ASK_S)

    def settle(self, event: Any) -> None:
        """Block a host thread until an event is complete; asking keeps it able to be given up."""
        while (status := event.command_execution_status) > self.cl.command_execution_status.COMPLETE:
            self.pause(POLL_S)
        if status < 0:
            raise command_failed(status)
        event.wait()

    def pause(self, seconds: float) -> None:
        """Sleep; end the thread if the run was given up."""
        if seconds > 0:
            if seconds < ASK_S:
                time.sleep(seconds)
            else:
                self.aborted.wait(seconds)
        if self.aborted.is_set():
            raise Aborted

    def abort(self) -> None:
        """Give the run up: threads end, gates open so that the queues drain."""
        self.aborted.set()
        with self.lock:
            gates, self._all_gates = self._all_gates, []
            self._listeners.clear()
            self.lock.notify_all()
        for gate in gates:
            self._open(gate)

    def _complete(self, node: int) -> bool:
        event, complete = self.events.get(node), self.cl.command_execution_status.COMPLETE
        return event is not None and event.command_execution_status <= complete

    def _gate(self, node: int) -> Any:
        gate = self._gates.get(node)
        if gate is None:
            gate = self._gates[node] = self._new_gate()
            self._listeners.setdefault(node, []).append(lambda: self._open(gate))
        return gate

    def _first_of(self, nodes: tuple[int, ...]) -> Any:
        gate = self._new_gate()
        for node in nodes:
            event = self.events.get(node)
            if event is None:
                self._listeners.setdefault(node, []).append(lambda: self._open(gate))
            else:
                self._on_complete(event, lambda: self._open(gate))
        return gate

    def _new_gate(self) -> Any:
        gate = self.cl.UserEvent(self.context)
        self._all_gates.append(gate)
        return gate

    def _on_complete(self, event: Any, then: Callable[[], None]) -> None:
        event.set_callback(self.cl.command_execution_status.COMPLETE, lambda _status: then())

    def _open(self, gate: Any) -> None:
        """Complete a user event; one that is open already stays so."""
        try:
            gate.set_status(self.cl.command_execution_status.COMPLETE)
        except self.cl.Error:
            return
