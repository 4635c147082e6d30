"""A backend of another package: whatever it raises is named as its failure, not as one of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...formats.delays.resolved import Delays
from ...formats.errors import ReplayFailed, TapedelayError
from ..outcome import Outcome
from .protocol import Backend, Capabilities, Loaded, Options, Pin

if TYPE_CHECKING:
    from ..program import Program

__all__ = ["Guarded", "words_of"]


def words_of(error: BaseException) -> str:
    """Return an error of another package as text, even if that fails too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


@contextlib.contextmanager
def _blamed(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except TapedelayError:
        raise
    except Exception as error:
        raise ReplayFailed(
            f"backend {name} failed in {what}: {words_of(error)}",
            expected="a result, or an error of this library",
            where=name,
            next_step="report it to the package that brings this backend",
        ) from error


class Guarded:
    """A backend whose errors become `ReplayFailed`.

    Parameters
    ----------
    backend : Backend
        The one of the other package.
    name : str
        Its name.

    Attributes
    ----------
    backend : Backend
        The one of the other package.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend = backend
        self._name = name

    def capabilities(self) -> Capabilities:
        """Return what the backend can do."""
        with _blamed(self._name, "capabilities()"):
            return self.backend.capabilities()

    def available(self) -> str:
        """Return an empty string, or why it cannot run on this machine."""
        with _blamed(self._name, "available()"):
            return self.backend.available()

    def load(self, program: Program, options: Options) -> Loaded:
        """Make a program ready to run."""
        with _blamed(self._name, "load()"):
            return _GuardedLoaded(self.backend.load(program, options), self._name, program.rows)


class _GuardedLoaded:
    def __init__(self, loaded: Loaded, name: str, rows: int) -> None:
        self._loaded = loaded
        self._name = name
        self._rows = rows

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        with _blamed(self._name, "run()"):
            outcome = self._loaded.run(delays, pin=pin)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"a {type(outcome).__name__} where an Outcome is expected")
            for times in (outcome.issue_ns, outcome.start_ns, outcome.end_ns):
                if len(times) != self._rows:
                    raise ValueError(f"{len(times)} times for {self._rows} ops")
            return outcome

    def close(self) -> None:
        with _blamed(self._name, "close()"):
            self._loaded.close()
