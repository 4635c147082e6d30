"""Run a program in which chosen calls of the plugin fail (``faults.c``), and count those calls."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["CANNOT_FAIL", "Ended", "Fault", "Injector", "imports", "injected"]

HERE = Path(__file__).parent
_TALLY = struct.Struct("24sQQ")
TIMEOUT_S = 60

CANNOT_FAIL = {
    "work on memory and words only": (
        "free memchr memcmp memcpy memmove memset strchr strcmp strcpy strcspn strlen strncmp "
        "strncpy strnlen strrchr strstr strtoull strtoul "
        "strtol strtod snprintf sprintf vsnprintf strerror sigaddset sigemptyset sigfillset sigismember"
    ),
    "give what the process has anyway": (
        "getenv getpid pthread_self pthread_getspecific clock_gettime __errno_location __tls_get_addr stderr "
        "__libc_single_threaded sched_yield"
    ),
    "fail for wrong arguments only": (
        "pthread_cond_broadcast pthread_cond_destroy pthread_cond_signal pthread_cond_wait "
        "pthread_cond_clockwait pthread_cond_timedwait pthread_mutex_lock pthread_mutex_unlock "
        "pthread_mutex_trylock pthread_once pthread_key_delete pthread_join pthread_sigmask sigpending"
    ),
    "write messages, whose loss is none of the engine's": "fprintf fputc fputs fwrite vfprintf fflush",
    "end the process, and are only called where nothing else is left": "abort",
    "belong to the linked-in C++ runtime, which the plugin does not ask for them": (
        "arc4random getentropy gettext ioctl _dl_find_object"
    ),
}
"""Imports of the plugin that need no injection, by the reason why."""

_NO_FUNCTION = re.compile(
    r"_ITM_|_ZGT|_ZTH|_Unwind_|__gmon_start__|__cxa_(finalize|pure_virtual)|__pthread_key_create"
)


@dataclass(frozen=True)
class Fault:
    """The `first`-th call of `function` fails; `for_ever`: all after it too."""

    function: str
    first: int
    for_ever: bool = False

    def __str__(self) -> str:
        return f"{self.function}:{self.first}{'+' if self.for_ever else ''}"


@dataclass(frozen=True)
class Ended:
    """A run: its exit code, what it wrote, and how often each function was called and failed."""

    code: int
    out: str
    err: str
    calls: dict[str, int]
    failed: dict[str, int]

    @property
    def said(self) -> list[str]:
        """Lines of the plugin."""
        return [line for line in self.err.splitlines() if line.startswith("tapedelay: ")]


@dataclass
class Injector:
    """A compiled ``faults.c``."""

    library: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run(
        self, command: Sequence[str | Path], counts: Path, fault: Fault | None = None, *,
        timeout_s: float = TIMEOUT_S, object_name: str = "libtapedelay_ggml.so", **variables: str,
    ) -> Ended:  # fmt: skip
        """Run `command`; a hang is an error (`subprocess.TimeoutExpired`)."""
        counts.unlink(missing_ok=True)
        env = {
            **self.environment, **variables, "LD_PRELOAD": str(self.library), "FAULTS_OBJECT": object_name,
            "FAULTS_COUNTS": str(counts), "FAULTS": str(fault or ""),
        }  # fmt: skip
        done = subprocess.run(
            [str(word) for word in command], env=env, capture_output=True, text=True, timeout=timeout_s,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        tallies = [
            _TALLY.unpack_from(data, at)
            for data in [counts.read_bytes()]
            for at in range(0, len(data), _TALLY.size)
        ]
        named = [(name.rstrip(b"\0").decode(), calls, failed) for name, calls, failed in tallies]
        return Ended(
            done.returncode, done.stdout, done.stderr,
            {name: calls for name, calls, _ in named if calls},
            {name: failed for name, _, failed in named if failed},
        )  # fmt: skip


def injected() -> set[str]:
    """Return the functions that ``faults.c`` can make fail."""
    text = (HERE / "faults.c").read_text()
    table = text[text.index("#define FUNCTIONS(X)") : text.index("enum function")]
    return set(re.findall(r"X\((\w+)\)", table.partition("\n")[2] + table)) - {"name"}


def imports(library: Path) -> set[str]:
    """Return the functions that a library takes from others, without what compilers add."""
    nm = shutil.which("nm")
    assert nm is not None, "no nm"
    run = subprocess.run([nm, "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    names = {line.split()[-1].partition("@")[0] for line in run.stdout.splitlines()}
    return {name for name in names if not _NO_FUNCTION.match(name)}
