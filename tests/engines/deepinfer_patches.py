"""Repairs of our own for DeepInfer's scheduler: with one of them, its kind of finding must be gone.

The scheduler is one header, and the only object with its functions is that of ``pybind_scheduler.cpp``: this
one is compiled again, once with every repair, and linked with the others as they are. ``DEEPINFER_REPAIRED``
names the repairs that a process has.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["REPAIRS", "SWITCH", "patched"]

SWITCH = "DEEPINFER_REPAIRED"

_SWITCH = """
inline bool repaired(const char *name) {
    static const char *names = std::getenv("DEEPINFER_REPAIRED");
    return names != nullptr && std::strstr(names, name) != nullptr;
}

struct Scheduler {
"""

_DROPPED_BY_PROMPT_STEP = """                ignored_seqs.push_back(seq);
                waiting.pop_front();
                continue;
            }
            if (!seq->schedule.schedulable) {
"""
_DROPPED_BY_DECODE_STEP = """            if ((*it)->is_finished()) {
"""
_NEXT_OF_QUEUE = """        while (!waiting.empty()) {
            auto &seq = waiting.front();
"""
_WATERMARK = "bool want = (get_gpu_cache_usage() <= GPU_CACHE_PREFILL_WATERMARK)"

REPAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    # A request that was aborted in the queue may own units: those of a prompt between two chunks.
    "abort": (
        (
            _DROPPED_BY_PROMPT_STEP,
            """                if (repaired("abort") && !seq->cache.block_table.empty()) {
                    free_seq_nolock(*seq);
                }
"""
            + _DROPPED_BY_PROMPT_STEP,
        ),
        (
            _DROPPED_BY_DECODE_STEP,
            _DROPPED_BY_DECODE_STEP
            + """                if (repaired("abort") && !(*it)->cache.block_table.empty()) {
                    free_seq_nolock(**it);
                }
""",
        ),
    ),
    # The head of the queue waits for units that one behind it owns: that one goes first.
    "preempted": (
        (
            _NEXT_OF_QUEUE,
            """        while (!waiting.empty()) {
            if (repaired("preempted") && waiting.front()->cache.block_table.empty()) {
                auto owns = [](const auto &other) {
                    bool may_run = !other->is_finished() && other->schedule.schedulable;
                    return may_run && !other->cache.block_table.empty();
                };
                auto owner = std::find_if(waiting.begin(), waiting.end(), owns);
                if (owner != waiting.end()) {
                    auto first = *owner;
                    waiting.erase(owner);
                    waiting.push_front(std::move(first));
                }
            }
            auto &seq = waiting.front();
""",
        ),
    ),
    # Nothing runs: what fills the cache are prompts that wait for their next chunk.
    "watermark": (
        (
            _WATERMARK,
            _WATERMARK.replace("(get", '((repaired("watermark") && running.empty()) || get'),
        ),
    ),
}


def patched(built: Path, timeout_s: float = 900) -> Path:
    """Return a folder for the path of Python with a build that has the repairs.

    Parameters
    ----------
    built : Path
        What ``make engine-deepinfer`` left.
    timeout_s : float
        For the compiler.
    """
    source = built / "source"
    header = (source / "csrc" / "engine" / "scheduler.hpp").read_text()
    replaced = [("\nstruct Scheduler {\n", _SWITCH)]
    for old, new in replaced + [pair for pairs in REPAIRS.values() for pair in pairs]:
        assert header.count(old) == 1, f"a repair does not fit:\n{old}"
        header = header.replace(old, new)
    made = built / "patched" / hashlib.sha256(header.encode()).hexdigest()[:16]
    if made.is_dir():
        return made
    made.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        work = Path(scratch)
        shutil.copytree(source / "csrc", work / "csrc")
        (work / "csrc" / "engine" / "scheduler.hpp").write_text(header)
        package = work / "package" / "deepinfer"
        shutil.copytree(
            built / "package" / "deepinfer", package, ignore=shutil.ignore_patterns("__pycache__")
        )
        for command in _commands(built / "objects", source, work, package):
            subprocess.run(["sh", "-c", command], cwd=built / "objects", check=True, timeout=timeout_s)
        (work / "package").rename(made)
    return made


def _commands(objects: Path, source: Path, work: Path, package: Path) -> tuple[str, str]:
    """Return the build's own commands for this object and for linking, with other places."""
    every = subprocess.run(
        [_ninja(), "-C", str(objects), "-t", "commands"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    compiling = next(c for c in every if c.endswith("/pybind_scheduler.cpp"))
    linking = next(c for c in every if " -shared " in c)
    old, new = _output(compiling), str(work / "scheduler.o")
    module = _output(linking)
    for option in ("-I", "-c "):
        compiling = compiling.replace(f"{option}{source}/csrc", f"{option}{work}/csrc")
    compiling = compiling.replace(f"-o {old}", f"-o {new}").replace(f"-MF {old}", f"-MF {new}")
    return compiling, linking.replace(module, str(package / Path(module).name)).replace(old, new)


def _ninja() -> str:
    beside = Path(sys.executable).parent / "ninja"
    return str(beside) if beside.is_file() else "ninja"


def _output(command: str) -> str:
    words = shlex.split(command)
    return words[words.index("-o") + 1]
