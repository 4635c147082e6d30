"""What debugging switches add to the contract of a tape, device by device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..plain import flat, words
from ..schema import OP_KINDS
from ..switches import DIRECTIONS, SWITCHES, Effect, family
from ..tape import Tape

__all__ = ["Added", "added_by_switches", "weakened_by_switches"]

_KIND = {k: 1 << i for i, k in enumerate(OP_KINDS)}
_DIRECTION = {d: 1 << i for i, d in enumerate(DIRECTIONS)}


@dataclass
class Added:
    """What switches add on one device; sets of op kinds are bits in the order of `OP_KINDS`.

    Attributes
    ----------
    blocks : int
        Kinds whose issuer goes on after the op.
    block_copies : int
        Directions of copies whose issuer does, bits in the order of `DIRECTIONS`.
    drains : int
        Kinds whose issuer goes on after what the op's queue held before it.
    in_order : int
        Kinds that run in row order on a queue that is not in order.
    launch_in_order : int
        Kinds that run in row order among the parts of one op.
    collective_waits : bool
        The issuer of a wait for the record right behind a collective waits for it too.
    """

    blocks: int = 0
    block_copies: int = 0
    drains: int = 0
    in_order: int = 0
    launch_in_order: int = 0
    collective_waits: bool = False

    def __bool__(self) -> bool:
        """Whether anything is added."""
        return self != Added()

    def add(self, effect: Effect) -> None:
        """Add an effect."""
        kinds = sum(_KIND[k] for k in effect.kinds)
        if effect.rule == "blocks" and effect.directions:
            self.block_copies |= sum(_DIRECTION[d] for d in effect.directions)
        elif effect.rule == "collective_waits_block":
            self.collective_waits = True
        else:
            setattr(self, effect.rule, getattr(self, effect.rule) | kinds)


def added_by_switches(tape: Tape, suppose: Mapping[str, str] | None = None) -> list[Added]:
    """Return what the switches of a tape add on each of its devices.

    A switch counts where ``manifest.switches`` says its state: what is not said may be either. It counts on
    devices of the backends that it concerns. A test device that plays such a backend does not read the
    backend's switches.

    Parameters
    ----------
    tape : Tape
        The tape.
    suppose : mapping of str to str, optional
        States that hold instead, also on test devices that play the backend.
    """
    devices = flat(tape.table("devices"))
    columns = (words(devices, c) for c in ("name", "kind", "profile"))
    supposed = dict(suppose or {})
    said = {**tape.manifest.switches, **supposed}
    found: dict[tuple[str, str, str], Added] = {}
    out = []
    for device in zip(*columns, strict=True):
        name, kind, profile = (str(w or "") for w in device)
        key = (name, kind, profile)
        if key not in found:
            backend, played = family(*key)
            found[key] = Added()
            for effect in _effects(backend, supposed if played else said):
                found[key].add(effect)
            if kind == "test":
                for effect in _effects("test", said):
                    found[key].add(effect)
        out.append(found[key])
    return out


def weakened_by_switches(tape: Tape) -> Iterator[tuple[str, str]]:
    """Yield the switches that were on and take away from what a tape says, and what."""
    said = {s.name: s for s in SWITCHES if s.weakens and tape.manifest.switches.get(s.name) == "on"}
    if not said:
        return
    devices = flat(tape.table("devices"))
    columns = [words(devices, c) for c in ("name", "kind", "profile")]
    here = {b for b, played in (family(*map(str, d)) for d in zip(*columns, strict=True)) if not played}
    for switch in said.values():
        if here & set(switch.backends):
            yield switch.name, switch.weakens


def _effects(backend: str, state: Mapping[str, str]) -> Iterator[Effect]:
    for switch in SWITCHES:
        if backend in switch.backends and switch.name in state:
            for effect in switch.effects.get(state[switch.name], ()):
                if all(state.get(n) == s for n, s in effect.needs):
                    yield effect
