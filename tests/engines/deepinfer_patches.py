"""Repairs of our own for DeepInfer's scheduler: with one of them, its kind of finding must be gone.

The scheduler is one header, and the only object with its functions is that of ``pybind_scheduler.cpp``: this
one is compiled again and linked with the others as they are.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["PATCHES", "patched"]

_DROPPED_BY_PROMPT_STEP = """                ignored_seqs.push_back(seq);
                waiting.pop_front();
                continue;
            }
            if (!seq->schedule.schedulable) {
"""
_DROPPED_BY_DECODE_STEP = """            if ((*it)->is_finished()) {
"""
_HEAD_WAITS = """                auto can_allocate = _can_allocate_with_state(seq->get_num_blocks());
                if (can_allocate == AllocStatus::LATER) {
                    break;
                }"""

PATCHES: dict[str, tuple[tuple[str, str], ...]] = {
    # A request that was aborted in the queue may own units: those of a prompt between two chunks.
    "abort": (
        (
            _DROPPED_BY_PROMPT_STEP,
            "                if (!seq->cache.block_table.empty()) {\n"
            "                    free_seq_nolock(*seq);\n"
            "                }\n" + _DROPPED_BY_PROMPT_STEP,
        ),
        (
            _DROPPED_BY_DECODE_STEP,
            _DROPPED_BY_DECODE_STEP + "                if (!(*it)->cache.block_table.empty()) {\n"
            "                    free_seq_nolock(**it);\n"
            "                }\n",
        ),
    ),
    # The head of the queue waits for units that one behind it owns: that one goes first.
    "preempted": (
        (
            _HEAD_WAITS,
            _HEAD_WAITS.replace(
                "                    break;\n",
                "                    auto owns = [](const auto &other) {\n"
                "                        return !other->is_finished() && other->schedule.schedulable &&\n"
                "                               !other->cache.block_table.empty();\n"
                "                    };\n"
                "                    auto owner = std::find_if(waiting.begin(), waiting.end(), owns);\n"
                "                    if (owner == waiting.end()) {\n"
                "                        break;\n"
                "                    }\n"
                "                    auto first = *owner;\n"
                "                    waiting.erase(owner);\n"
                "                    waiting.push_front(std::move(first));\n"
                "                    continue;\n",
            ),
        ),
    ),
    # Nothing runs: what fills the cache are prompts that wait for their next chunk.
    "watermark": (
        (
            "get_gpu_cache_usage() <= GPU_CACHE_PREFILL_WATERMARK)",
            "running.empty() || get_gpu_cache_usage() <= GPU_CACHE_PREFILL_WATERMARK)",
        ),
    ),
}


def patched(names: tuple[str, ...], built: Path, timeout_s: float = 900) -> Path:
    """Return a folder for the path of Python with a build that has these patches.

    Parameters
    ----------
    names : tuple of str
        Of `PATCHES`.
    built : Path
        What ``make engine-deepinfer`` left.
    """
    source = built / "source"
    header = (source / "csrc" / "engine" / "scheduler.hpp").read_text()
    for name in names:
        for old, new in PATCHES[name]:
            assert header.count(old) == 1, f"the patch {name!r} does not fit"
            header = header.replace(old, new)
    digest = hashlib.sha256(header.encode()).hexdigest()[:16]
    made = built / "patched" / f"{'-'.join(names)}-{digest}"
    if made.is_dir():
        return made
    made.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        work = Path(scratch)
        shutil.copytree(source / "csrc", work / "csrc")
        (work / "csrc" / "engine" / "scheduler.hpp").write_text(header)
        objects = built / "objects"
        commands = subprocess.run(
            [_ninja(), "-C", str(objects), "-t", "commands"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        compile_it = next(c for c in commands if c.endswith("/pybind_scheduler.cpp"))
        link_it = next(c for c in commands if " -shared " in c)
        old_object = _after(compile_it, "-o")
        package = work / "package" / "deepinfer"
        shutil.copytree(
            built / "package" / "deepinfer", package, ignore=shutil.ignore_patterns("__pycache__")
        )
        module = _after(link_it, "-o")
        new_object = work / "scheduler.o"
        compile_it = compile_it.replace(f"{old_object}.d", f"{new_object}.d").replace(
            f"-o {old_object}", f"-o {new_object}"
        )
        compile_it = compile_it.replace(f"-I{source}/csrc", f"-I{work}/csrc")
        compile_it = compile_it.replace(f"-c {source}/csrc", f"-c {work}/csrc")
        link_it = link_it.replace(module, str(package / Path(module).name)).replace(
            old_object, str(new_object)
        )
        for command in (compile_it, link_it):
            subprocess.run(["sh", "-c", command], cwd=objects, check=True, timeout=timeout_s)
        new_object.unlink()
        (work / "package").rename(made)
    return made


def _ninja() -> str:
    beside = Path(sys.executable).parent / "ninja"
    return str(beside) if beside.is_file() else "ninja"


def _after(command: str, option: str) -> str:
    words = shlex.split(command)
    return words[words.index(option) + 1]
