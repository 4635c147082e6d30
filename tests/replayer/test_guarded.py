"""A backend of another package that fails: its failure is named as its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tapedelay.formats.delays import Delays
from tapedelay.formats.errors import ReplayFailed, Unsupported
from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.guarded import Guarded
from tapedelay.replayer.backends.protocol import Loaded, Options, Pin
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

TAPE: Tape = parse("1 | host | H | | M0 |\n2 | kernel | q | M0 | |\n", name="x").tape("buggy")


class _Broken:
    def __init__(self, loaded: Loaded, how: str) -> None:
        self._loaded = loaded
        self._how = how

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        outcome = self._loaded.run(delays, pin=pin)
        if self._how == "run":
            raise RuntimeError("the device fell off")
        if self._how == "refuse":
            raise Unsupported("not on a Sunday")
        if self._how == "short":
            return replace(outcome, end_ns=outcome.end_ns[:-1])
        return 7 if self._how == "number" else outcome  # type: ignore[return-value]

    def close(self) -> None:
        self._loaded.close()
        if self._how == "close":
            raise OSError("already gone")


class _Backend(VirtualBackend):
    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def load(self, program: Program, options: Options) -> Loaded:  # type: ignore[override]
        if self._how == "load":
            raise KeyError("no kernel")
        return _Broken(super().load(program, options), self._how)


def once(how: str) -> Outcome:
    loaded = Guarded(_Backend(how), "acme").load(Program.from_tape(TAPE), Options())
    try:
        return loaded.run(Delays.of())
    finally:
        loaded.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("load", "in load.*KeyError"),
        ("run", "in run.*fell off"),
        ("short", "1 times for 2 ops"),
        ("number", "a int where an Outcome"),
        ("close", "in close.*already gone"),
    ],
)
def test_a_failure_names_the_backend(how: str, words: str) -> None:
    with pytest.raises(ReplayFailed, match=f"backend acme failed.*{words}|{words}") as caught:
        once(how)
    assert "acme" in caught.value.found


def test_its_refusals_and_results_pass_through() -> None:
    with pytest.raises(Unsupported, match="Sunday"):
        once("refuse")
    assert once("").clean
