"""Tapes of request schedulers, told input by input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.tape import Manifest, Process, Tape

__all__ = ["Told"]


class Told:
    """Builds a tape with one scheduler after the other; events are ``(table, columns)`` in their order."""

    def __init__(self, builder: TapeBuilder | None = None) -> None:
        self.b = builder or TapeBuilder()
        self.scheduler = -1
        self.pools: dict[str, int] = {}

    def begin(
        self, engine: str = "vllm", version: str | None = "0.32.0", *, units: int = 9, **config: Any
    ) -> Told:
        """Begin another scheduler with a pool ``kv`` whose unit 0 is reserved, and a pool ``state``."""
        self.scheduler += 1
        self.b.add(
            "schedulers",
            scheduler=self.scheduler,
            process=0,
            engine=engine,
            engine_version=version,
            config=json.dumps(config),
        )
        for name, reserved, tokens in (("kv", 1, 16), ("state", 0, None)):
            pool = len(self.b.rows("pools"))
            self.pools[name] = pool
            self.b.add(
                "pools",
                pool=pool,
                scheduler=self.scheduler,
                name=name,
                units=units,
                reserved=reserved,
                tokens_per_unit=tokens,
            )
        return self

    def given(self, kind: str, *events: tuple[str, dict[str, Any]], **columns: Any) -> Told:
        """Add an input and what it causes."""
        number = len(self.b.rows("inputs"))
        self.b.add("inputs", input=number, scheduler=self.scheduler, kind=kind, at_ns=number, **columns)
        for seq, (table, row) in enumerate(events):
            where = {} if table == "resources" else {"seq": seq}
            self.b.add(table, input=number, **where, **row)
        return self

    def submit(self, request: int, prompt: int = 3, flags: Sequence[str] = ()) -> Told:
        """Add a request that arrives."""
        self.b.add(
            "requests",
            request=request,
            scheduler=self.scheduler,
            prompt_tokens=prompt,
            flags=list(flags) or None,
            id_rank=request,
        )
        return self.given("submit", request=request)

    def step(self, step: int, *events: tuple[str, dict[str, Any]], **columns: Any) -> Told:
        """Add a step."""
        return self.given("step", *events, step=step, **columns)

    def output(self, step: int, *events: tuple[str, dict[str, Any]]) -> Told:
        """Add the output of a step."""
        return self.given("output", *events, step=step)

    def blocks(
        self, action: str, request: int | None, *units: int, pool: str = "kv"
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return units that change hands."""
        at = self.pools[pool]
        return [("blocks", {"pool": at, "action": action, "unit": u, "request": request}) for u in units]

    def free(self, pool: str, free: int, used: int) -> tuple[str, dict[str, Any]]:
        """Return what a pool's counters say."""
        return ("resources", {"pool": self.pools[pool], "free": free, "used": used})

    def tape(self, *, complete: bool = True) -> Tape:
        """Return the tape."""
        manifest = Manifest(processes=(Process(0, complete=complete),), complete=complete)
        return self.b.build(manifest, name="told.tape")


def decided(
    kind: str, request: int, tokens: int | None = None, computed: int | None = None
) -> tuple[str, dict[str, Any]]:
    """Return a decision."""
    return ("decisions", {"request": request, "kind": kind, "tokens": tokens, "computed_tokens": computed})


def answered(request: int, tokens: int, word: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return an answer that is not the one expected."""
    return ("answers", {"request": request, "tokens": tokens, "word": word})
