"""Load the plugin into the ggml of a Python package, right after that package is imported, and start the
recording of a request scheduler right after the module that has it.

Stands alone: it runs inside the recorded program, on whatever Python that is, with nothing but the standard
library. It never raises into the program; what it could not do it says once, on stderr and in a small file in
the spool, from which ``record`` tells the user.
"""

# Old interpreters may run this: no syntax newer than Python 3.8.
from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ENGINES",
    "SCHEDULERS",
    "STARTED",
    "install",
    "load_plugin",
    "start_recorder",
    "uninstall",
]

ENGINES = ("xllamacpp", "llama_cpp")
"""Packages that bring a ggml along."""
SCHEDULERS = {
    "vllm.v1.core.sched.scheduler": "tapedelay.recorder.engines.vllm.recording",
    "deepinfer._C": "tapedelay.recorder.engines.deepinfer.hooks",
    "transformers.generation.continuous_batching": "tapedelay.recorder.engines.transformers.hook",
}
"""Modules that bring a request scheduler along, and whose function ``start(module)`` hooks it."""
STARTED = "python-hook"
"""An empty file in the spool: some Python installed the import hook."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds an engine's package as Python would and adds one step after its import."""

    finds_engines = True

    def __init__(self) -> None:
        self.busy = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: Any = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if (fullname not in ENGINES and fullname not in SCHEDULERS) or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Wraps a package's loader."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self.inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # The program must find the loader that it would have found without us.
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        self.inner.exec_module(module)
        _imported(module.__name__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


_FINDER = _Finder()
_NEEDED = ("TAPEDELAY_PLUGIN", "TAPEDELAY_SPOOL")
_at_start: dict[str, str] = {}
"""The environment when the hook was installed: a program may clear it before it imports an engine."""


def install() -> None:
    """Install the import hook, if a recording was asked for; load into engines that are imported already."""
    if not (os.environ.get("TAPEDELAY_PLUGIN") or os.environ.get("TAPEDELAY_SPOOL")):
        return
    _at_start.update({name: os.environ[name] for name in _NEEDED if name in os.environ})
    if not any(
        getattr(finder, "finds_engines", False) for finder in sys.meta_path
    ):  # or another copy of this
        sys.meta_path.insert(0, _FINDER)
    with contextlib.suppress(KeyError, OSError):
        open(os.path.join(os.environ["TAPEDELAY_SPOOL"], STARTED), "a").close()
    for name in (*ENGINES, *SCHEDULERS):
        if name in sys.modules:
            _imported(name)


def uninstall() -> None:
    """Remove the import hook."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _imported(name: str) -> None:
    module = sys.modules[name]
    if name in SCHEDULERS:
        start_recorder(module)
    elif os.environ.get("TAPEDELAY_PLUGIN") or "TAPEDELAY_PLUGIN" in _at_start:
        load_plugin(module)


def start_recorder(module: Any) -> bool:
    """Hook the request scheduler that `module` has; return whether it is hooked."""
    name = module.__name__
    package = name.split(".")[0]
    removed = "TAPEDELAY_SPOOL" in _at_start and not os.environ.get("TAPEDELAY_SPOOL")
    try:
        importlib.import_module(SCHEDULERS[name]).start(module)
        if not removed:
            return True
        fault = "the program removed TAPEDELAY_SPOOL from its environment"
    except ImportError as e:
        fault = f"{e}; install tapedelay in its Python, {sys.executable}"
    except Exception as e:
        fault = f"{type(e).__name__}: {e}"
    text = f"{package} was imported, but its request scheduler is not recorded ({fault})"
    with contextlib.suppress(Exception):
        sys.stderr.write(f"tapedelay: {text}\n")
    spool = os.environ.get("TAPEDELAY_SPOOL") or _at_start.get("TAPEDELAY_SPOOL")
    if spool:
        path = os.path.join(spool, f"refused-requests-{os.getpid()}.txt")
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as f:
            f.write(text[:400].replace("\n", " ") + "\n")
    return False


def load_plugin(module: Any) -> bool:
    """Load the plugin into the ggml that `module` uses; return whether it is there."""
    name = module.__name__
    removed = [n for n in _NEEDED if n in _at_start and not os.environ.get(n)]
    try:
        if removed:  # the plugin reads them, too
            fault = f"the program removed {' and '.join(removed)} from its environment"
        else:
            fault = _load(_library(module), os.environ["TAPEDELAY_PLUGIN"])
    except (KeyError, AttributeError):
        fault = "its modules are not those that this version knows"
    except Exception as e:
        fault = str(e) or type(e).__name__
    if fault:
        with contextlib.suppress(Exception):  # it may be closed
            sys.stderr.write(f"tapedelay: {name} was imported, but the plugin is not in it ({fault})\n")
    _report(name, str(getattr(module, "__version__", "")), fault)
    return not fault


def _library(module: Any) -> Any:
    """Return the library through which this package reaches ggml.

    xllamacpp is one extension module with ggml inside. llama_cpp holds several libraries, and only the copy
    of ggml behind ``libllama`` works: loading into another one records nothing while all answers are right.
    """
    import ctypes

    if module.__name__ == "llama_cpp":
        inner = sys.modules["llama_cpp.llama_cpp"]
        return inner._lib
    return ctypes.CDLL(sys.modules[module.__name__ + ".xllamacpp"].__file__)


def _load(library: Any, plugin: str) -> str:
    import ctypes

    try:
        load = library.ggml_backend_load
        find = library.ggml_backend_reg_by_name
    except AttributeError:
        return "its library does not export ggml_backend_load"
    for function in (load, find):
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p]
    if find(b"TAPE"):  # GGML_BACKEND_PATH was honoured, or this is the second package on one ggml
        return ""
    if not load(os.fsencode(plugin)):
        return "ggml_backend_load refused it"
    return ""


def _report(name: str, version: str, fault: str) -> None:
    spool = os.environ.get("TAPEDELAY_SPOOL") or _at_start.get("TAPEDELAY_SPOOL")
    if not spool:
        return
    try:
        path = os.path.join(spool, f"hook-{os.getpid()}-{name}.json")
        with open(path, "w") as f:
            json.dump({"package": name, "version": version, "fault": fault}, f)
    except OSError:
        pass
