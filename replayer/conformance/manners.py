"""Cases: how a backend behaves as a guest: loading, running again, closing, refusing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from ...formats.delays.resolved import BEFORE_START, PLACES, Delays
from ...formats.errors import TapedelayError, Unsupported
from ..backends.protocol import Backend, Capabilities, Options, Pin
from ..program import Program
from .case import Case

__all__ = ["manner_cases"]

_TEXT = "w | kernel | s0 | | A\n1 | record | s0 | | | e\n2 | wait | s1 | | | e\nr | kernel | s1 | A | Y\n"
_OUT_OF_ORDER = (
    "device host host\ndevice gpu gpu\nhost H host\nqueue s0 gpu order=out\n"
    "w | kernel | s0 | | A\nr | kernel | s0 | | B\n"
)
_NONE = Delays.of()


def _cheap(backend: Backend, case: Case) -> str:
    first, second = backend.capabilities(), backend.capabilities()
    if not isinstance(first, Capabilities) or first != second:
        return "capabilities() does not give the same Capabilities each time"
    if not first.name or first.resolution_ns < 1:
        return f"name {first.name!r}, resolution_ns {first.resolution_ns}"
    if first.deterministic and first.real_time:
        return "real_time and deterministic: real time never repeats itself"
    return "" if backend.available() == "" else f"available() says: {backend.available()}"


def _close_twice(backend: Backend, case: Case) -> str:
    loaded = backend.load(Program.from_tape(case.tape), Options())
    loaded.run(_NONE)
    loaded.close()
    loaded.close()
    try:
        loaded.run(_NONE)
    except TapedelayError:
        return ""
    return "a closed program runs on"


def _close_unused(backend: Backend, case: Case) -> str:
    for _ in range(5):
        backend.load(Program.from_tape(case.tape), Options()).close()
    return ""


def _two_at_once(backend: Backend, case: Case) -> str:
    program = Program.from_tape(case.tape)
    first, second = backend.load(program, Options()), backend.load(program, Options())
    try:
        clean = first.run(_NONE).clean and second.run(_NONE).clean and first.run(_NONE).clean
    finally:
        first.close()
        second.close()
    return "" if clean else "two loaded programs disturb each other"


def _many_runs(backend: Backend, case: Case) -> str:
    program = Program.from_tape(case.tape)
    loaded = backend.load(program, Options())
    late = Delays.of([(case.rows["w"], BEFORE_START, 1_000)])
    try:
        totals = set()
        for n in range(30):
            outcome = loaded.run(late if n % 2 else _NONE)
            if not outcome.clean:
                return f"run {n + 1} of a right tape is wrong"
            totals.add((n % 2, outcome.total_ns))
        if backend.capabilities().deterministic and len(totals) != 2:
            return f"30 runs with and without one delay have {len(totals)} lengths"
    finally:
        loaded.close()
    return ""


def _refuses(backend: Backend, program: Program, delays: Delays, pin: Pin | None, what: str) -> str:
    """Return an empty string if a run is refused with `Unsupported`."""
    try:
        loaded = backend.load(program, Options())
        try:
            loaded.run(delays, pin=pin)
        finally:
            loaded.close()
    except Unsupported:
        return ""
    return f"{what} is not among its capabilities, and is not refused either"


def _pin_refused(backend: Backend, case: Case) -> str:
    program = Program.from_tape(case.tape)
    if backend.capabilities().pin:
        return ""
    return _refuses(backend, program, _NONE, program.interleaving(_NONE), "a pinned run")


def _places_refused(backend: Backend, case: Case) -> str:
    program = Program.from_tape(case.tape)
    for place, name in enumerate(PLACES):
        if not getattr(backend.capabilities(), name):
            found = _refuses(backend, program, Delays.of([(0, place, 1_000)]), None, f"a delay {name}")
            if found:
                return found
    return ""


def _order_refused(backend: Backend, case: Case) -> str:
    if backend.capabilities().out_of_order:
        return ""
    return _refuses(backend, Program.from_tape(case.tape), _NONE, None, "a queue that is not in order")


def _too_many_ops(backend: Backend, case: Case) -> str:
    limit = backend.capabilities().max_ops
    if limit is None or limit > 20_000:
        return ""
    rows = "".join(f"{n} | kernel | s0 | | A\n" for n in range(limit + 1))
    tape = Case(case.name, case.promise, rows).tape
    return _refuses(backend, Program.from_tape(tape), _NONE, None, f"a tape of {limit + 1} ops")


def _timing_alone(backend: Backend, case: Case) -> str:
    options, capable = Options(values=False), backend.capabilities().timing_only
    program = Program.from_tape(case.tape)
    with contextlib.suppress(Unsupported):
        loaded = backend.load(program, options)
        try:
            outcome = loaded.run(_NONE)
        finally:
            loaded.close()
        if capable and outcome.judged:
            return "timing_only, but reads were judged"
        return "" if outcome.total_ns > 0 else "a run for timing alone has no times"
    return "timing_only, but a run without values is refused" if capable else ""


def _foreign_delay(backend: Backend, case: Case) -> str:
    loaded = backend.load(Program.from_tape(case.tape), Options())
    try:
        for delays in (
            Delays.of([(99, BEFORE_START, 1)]),
            Delays(np.array([-1], np.int32), np.array([1], np.int8), np.array([1], np.int64)),
        ):
            try:
                loaded.run(delays)
            except TapedelayError:
                continue
            return f"a delay of row {int(delays.row[0])} of 4 is taken"
    finally:
        loaded.close()
    return ""


def _limit(backend: Backend, case: Case) -> str:
    loaded = backend.load(Program.from_tape(case.tape), Options(wrong_limit=2))
    try:
        outcome = loaded.run(
            Delays.of([(0, BEFORE_START, 20 * max(backend.capabilities().resolution_ns, 1000))])
        )
    finally:
        loaded.close()
    if len(outcome.wrong) > 2:
        return f"{len(outcome.wrong)} wrong reads are told, at most 2 were asked for"
    return ""


def _empty(backend: Backend, case: Case) -> str:
    loaded = backend.load(Program.from_tape(case.tape), Options())
    try:
        outcome = loaded.run(_NONE)
    finally:
        loaded.close()
    return (
        ""
        if outcome.clean and outcome.total_ns == 0 and not len(outcome.start_ns)
        else "not an empty outcome"
    )


def manner_cases() -> Iterator[Case]:
    """Yield the cases about manners."""
    values = frozenset({"values"})
    yield Case("manners/capabilities", "What it can do is fixed, and makes sense.", _TEXT, trial=_cheap)
    yield Case(
        "manners/close-twice",
        "Closing twice does nothing; a closed program refuses to run.",
        _TEXT,
        trial=_close_twice,
    )
    yield Case(
        "manners/close-unused", "A program can be closed without having run.", _TEXT, trial=_close_unused
    )
    yield Case("manners/two-at-once", "Two loaded programs are independent.", _TEXT, trial=_two_at_once)
    yield Case(
        "manners/many-runs",
        "A loaded program runs many times; no run leaves anything behind.",
        _TEXT,
        trial=_many_runs,
    )
    yield Case("manners/pin-refused", "A pin that it cannot enforce is refused.", _TEXT, trial=_pin_refused)
    yield Case(
        "manners/places-refused", "A delay where it cannot delay is refused.", _TEXT, trial=_places_refused
    )
    yield Case(
        "manners/order-refused",
        "A queue that is not in order is refused if it has none.",
        _OUT_OF_ORDER,
        trial=_order_refused,
    )
    yield Case("manners/size-refused", "More ops than it can hold are refused.", _TEXT, trial=_too_many_ops)
    yield Case(
        "manners/timing-alone",
        "Values are left out only where it says that it can.",
        _TEXT,
        trial=_timing_alone,
    )
    yield Case(
        "manners/foreign-delay",
        "A delay of a row that the program has not is refused.",
        _TEXT,
        trial=_foreign_delay,
    )
    yield Case("manners/empty", "A tape without ops runs.", "host H\n", trial=_empty)
    yield Case(
        "manners/wrong-limit",
        "No more wrong reads are told than were asked for.",
        "w | kernel | s0 | | A\n" + "".join(f"r{n} | kernel | s1 | A | Y{n}\n" for n in range(8)),
        needs=values,
        trial=_limit,
    )
