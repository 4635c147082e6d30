"""Tapes as tests: a marker and a fixture for pytest.

::

    @pytest.mark.tapedelay("race.litmus", plan="first copy of M0 on vk0 +3ms")
    def test_upload_is_waited_for() -> None: ...

replays the tape with the plan on each backend that can run here, one test each, before the body runs. The
test fails unless every read saw what it sees in the reference order; with ``expect="wrong"`` it fails unless
one did not: the negative control. The fixture `tape_replay` does the same as a call.

The fixture `tapedelay_engine` runs a real engine instead: on synchronous devices, and under a plan::

    def test_uploads_are_waited_for(tapedelay_engine) -> None:
        tapedelay_engine("generate.py:tokens", plan="uploads.delays", env={"PYTHONPATH": "engines/new"})

The test fails unless the function, or the command, gives the same both times.

pytest loads this module at every start, so it imports nothing of the library until a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .engine_runs import EngineRuns
    from .replay.results import Replay

__all__ = ["Case", "EngineTest", "TapeReplay", "tape_replay", "tapedelay_engine"]

MARKER = "tapedelay"
_BACKEND = "tapedelay_backend"
_EXPECT = {
    "clean": ("clean",),
    "wrong": ("confirmed", "wrong"),
    "deadlock": ("deadlock",),
}
_RESULT: pytest.StashKey[Any] = pytest.StashKey()

Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class Case:
    """What a marker asks for.

    Attributes
    ----------
    tape : str or Path
        A tape or litmus file (``x.litmus:fixed`` for its other variant), relative to the test file, else to
        the root folder of the tests.
    plan : str, Path, or several
        Delays: a plan file, found as the tape is, or an expression. None: no delays.
    backends : str or several, optional
        Names; one that cannot run here is skipped, with the reason. None: all that can.
    expect : str
        ``clean``; ``wrong``: a read must see something else than in the reference order; ``deadlock``.
    repeat : int
        Runs; seeds of the plan count up.
    pin : bool
        Enforce the interleaving that the plan has in virtual time, where a backend runs in real time.
    ops, steps : (int or None, int or None), optional
        A window, the last one not included.
    compact : bool
        Scale real memory down; virtual time has none.
    timeout_s : float, optional
        In real time: give up when no op ends for so long.
    """

    tape: str | Path
    plan: str | Path | Sequence[str | Path] | None = None
    backends: str | Iterable[str] | None = None
    expect: str = "clean"
    repeat: int = 1
    pin: bool = False
    ops: Range | None = None
    steps: Range | None = None
    compact: bool = False
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tape, str | os.PathLike) or not str(self.tape):
            raise ValueError(f"tape {self.tape!r}: expected the name of a file")
        if self.expect not in _EXPECT:
            raise ValueError(f"expect {self.expect!r}: expected one of {', '.join(_EXPECT)}")

    @property
    def plans(self) -> list[str | Path]:
        """The plans as a list."""
        if self.plan is None:
            return []
        return [self.plan] if isinstance(self.plan, str | os.PathLike) else list(self.plan)

    @property
    def names(self) -> list[str] | None:
        """The backends asked for, None for all that can run."""
        if self.backends is None:
            return None
        return [self.backends] if isinstance(self.backends, str) else list(self.backends)


class TapeReplay:
    """What the fixture `tape_replay` gives: a call replays a tape, and the test fails if it must.

    Attributes
    ----------
    backend : str
        The backend of this test: of a marked test the one of its turn, else ``virtual``.
    """

    def __init__(self, item: pytest.Item, backend: str) -> None:
        self._item = item
        self.backend = backend

    @property
    def result(self) -> Replay:
        """The last result of this test; of a marked test it is there before the body runs."""
        found: Replay = self._item.stash[_RESULT]
        return found

    def __call__(self, tape: str | Path, *, backend: str | None = None, **asked: Any) -> Replay:
        """Replay a tape; the other arguments are those of the marker.

        Raises
        ------
        Failed
            By `pytest.fail`: the result is not what was expected, with the explanation.
        """
        return _run(self._item, Case(tape, **asked), backend or self.backend)


@pytest.fixture
def tape_replay(request: pytest.FixtureRequest) -> TapeReplay:
    """Replay a tape with a plan; the test fails unless every read saw what it should."""
    item = request.node
    return TapeReplay(item, _backend_of(item) or "virtual")


class EngineTest:
    """What the fixture `tapedelay_engine` gives: a call runs an engine, and the test fails if it must.

    Tapes, outputs and values lie in the test's `tmp_path`, one folder per call.
    """

    def __init__(self, item: pytest.Item, folder: Path) -> None:
        self._item = item
        self._folder = folder
        self._calls = 0
        self._result: EngineRuns | None = None

    @property
    def result(self) -> EngineRuns:
        """The last result of this test; it is there also where the call failed the test."""
        if self._result is None:
            raise AttributeError("no engine has run yet")
        return self._result

    def __call__(
        self,
        program: str | Callable[..., Any] | Sequence[str],
        *,
        plan: str | Path | Sequence[str | Path],
        expect: str = "equal",
        baseline: str | Path | None = None,
        **asked: Any,
    ) -> EngineRuns:
        """Run a program on synchronous devices and under a plan.

        Parameters
        ----------
        program, plan : see `tapedelay.replayer.engine_runs.run_engine_twice`
            Files are found as a marker's are. The other arguments are those of that function, too.
        expect : str
            ``equal``; or ``wrong``, the negative control: every run must give another value.
        baseline : str or Path, optional
            Findings of ``check`` that are known: the text of a failure leaves them out.

        Raises
        ------
        Failed
            By `pytest.fail`: the result is not what was expected, with the finding of ``check``.
        """
        __tracebackhide__ = True
        from ..formats.errors import TapedelayError
        from .engine_runs import explain, run_engine_twice

        if expect not in ("equal", "wrong"):
            pytest.fail(f"expect {expect!r}: expected equal or wrong", pytrace=False)
        self._calls += 1
        item, folder = self._item, self._folder / f"engine-{self._calls}"
        plans = [plan] if isinstance(plan, str | os.PathLike) else plan
        if isinstance(program, str) and ".py:" in program:
            file, colon, name = program.rpartition(":")
            program = f"{_found(item, file)}{colon}{name}"
        failure = []
        try:
            result = self._result = run_engine_twice(
                program,
                plan=[_found(item, p) for p in plans],
                **{"every": expect == "wrong", "folder": folder, **asked},
            )
            all_wrong = result.verdict == "differs" and len(result.wrong) == len(result.runs)
            if not (all_wrong if expect == "wrong" else result.verdict == "equal"):
                known = None if baseline is None else _found(item, baseline)
                failure = [f"expected: {expect}; got: {result.verdict}", *explain(result, known)]
        except (TapedelayError, TypeError) as e:
            failure = [e.text() if isinstance(e, TapedelayError) else str(e)]
        if failure:  # told here: inside of `except` pytest would print the reason twice
            pytest.fail("\n".join(failure), pytrace=False)
        return result


@pytest.fixture
def tapedelay_engine(request: pytest.FixtureRequest, tmp_path: Path) -> EngineTest:
    """Run an engine on synchronous devices and under a plan; the test fails unless it gives the same."""
    return EngineTest(request.node, tmp_path)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that strict markers accept it."""
    known = [f.name for f in fields(Case)]
    config.addinivalue_line(
        "markers",
        f"{MARKER}({', '.join(known)}): replay a tape with delays on each backend that can run here",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per backend of a marked function."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    case = _case(marker, metafunc.definition)
    if _BACKEND not in metafunc.fixturenames:
        metafunc.fixturenames.append(_BACKEND)
    metafunc.parametrize(_BACKEND, _backends(case.names))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a marker where it would do nothing."""
    for item in items:
        if item.get_closest_marker(MARKER) is not None and _backend_of(item) is None:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker {MARKER} works on functions and methods of plain classes only"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Replay the tape of a marked test before its body runs."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is not None:
        _run(pyfuncitem, _case(marker, pyfuncitem), _backend_of(pyfuncitem) or "virtual")


def _case(marker: pytest.Mark, item: pytest.Item) -> Case:
    try:
        return Case(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as e:
        wrong = str(e).replace("Case.__init__()", f"marker {MARKER}")
    pytest.fail(f"{item.nodeid}: {wrong}", pytrace=False)


def _backend_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(_BACKEND)


def _backends(names: list[str] | None) -> list[Any]:
    """Return the parameters: backends that can run, and those asked for that cannot as skipped ones."""
    from ..formats.errors import TapedelayError, UsageError
    from .backends.registry import backends_present, find_backend

    if names is None:
        return list(backends_present())
    found: list[Any] = []
    for name in names:
        refused = None
        try:
            find_backend(name)
        except TapedelayError as e:
            refused = e
        if refused is None:
            found.append(name)
        elif refused.exit_code == UsageError.exit_code:  # there is no such backend anywhere
            pytest.fail(refused.text(), pytrace=False)
        else:
            found.append(pytest.param(name, marks=pytest.mark.skip(reason=refused.found)))
    return found


def _run(item: pytest.Item, case: Case, backend: str) -> Replay:
    from ..formats.errors import TapedelayError, Unsupported
    from .backends.protocol import Options
    from .backends.registry import find_backend
    from .replay import replay

    __tracebackhide__ = True
    tape = _found(item, case.tape)
    plans = [_found(item, p) for p in case.plans]
    result, refused = None, None
    options = Options(
        compact=case.compact, timeout_s=Options.timeout_s if case.timeout_s is None else case.timeout_s
    )
    try:
        chosen = find_backend(backend)
        able = chosen.capabilities()
        result = replay(
            tape,
            backend=chosen,
            delays=plans or None,
            pin=case.pin and (able.pin or able.real_time),  # in virtual time the order is the same every time
            ops=case.ops,
            steps=case.steps,
            repeat=case.repeat,
            options=options,
        )
    except TapedelayError as e:
        refused = e
    if result is None:  # told here: inside of `except` pytest would print the reason twice
        assert refused is not None
        if isinstance(refused, Unsupported) and case.names is None:
            pytest.skip(refused.found)
        pytest.fail(refused.text(), pytrace=False)
    item.stash[_RESULT] = result
    if result.verdict not in _EXPECT[case.expect]:
        pytest.fail(_explained(item, case, result, tape, plans), pytrace=False)
    return result


def _found(item: pytest.Item, name: str | Path) -> str:
    """Return the path of a file that lies beside the test or in the root folder; else the name as it is."""
    text = str(name)
    bare = text
    for ending in (":buggy", ":fixed", "+"):
        bare = bare.removesuffix(ending)
    for folder in (item.path.parent, item.config.rootpath):
        try:
            if (folder / bare).exists():
                return str(folder / text)
        except (OSError, ValueError):  # an expression that can be no name
            break
    return text


def _explained(item: pytest.Item, case: Case, result: Replay, tape: str, plans: list[str]) -> str:
    from ..formats.shown import printable
    from .replay.render import render_replay

    expected = {
        "clean": "every read sees what it sees in the reference order",
        "wrong": "a read sees something else than in the reference order",
        "deadlock": "ops wait for each other for ever",
    }
    lines = [f"expected: {expected[case.expect]}; got: {result.verdict}", ""]
    lines += map(printable, render_replay(result))
    return "\n".join([*lines, "", f"to see it again: {_command(item, case, result, tape, plans)}"])


def _command(item: pytest.Item, case: Case, result: Replay, tape: str, plans: list[str]) -> str:
    from ..formats.shown import quoted

    here = item.config.invocation_params.dir

    def shown(text: str) -> str:
        return quoted(os.path.relpath(text, here)) if os.path.isabs(text) else quoted(text)

    words = ["tapedelay replay", shown(tape), f"--backend {result.backend}"]
    words += [f"--delays {shown(p)}" for p in plans]
    words += ["--pin"] * (case.pin and result.pinned) + [f"--repeat {case.repeat}"] * (case.repeat != 1)
    if result.backend != "virtual":
        words += ["--compact"] * case.compact
        if case.timeout_s is not None:
            words.append(f"--timeout {case.timeout_s:.12g}")
    for option, ends in (("--ops", case.ops), ("--steps", case.steps)):
        if ends is not None:
            words.append(f"{option} {':'.join('' if e is None else str(e) for e in ends)}")
    return " ".join(words)
