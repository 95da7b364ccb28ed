"""Another date for runs of tests: a small library (`clock.c`), preloaded into their processes.

    clock = compiled(cache)          once for a machine, with its C compiler
    clock.variables(ahead_s)         what a run's environment says

Of what can be had, nothing else agrees with itself on Python 3.11 (docs/bench-build.md, The date). Without
a C compiler (the system's, or the one that PyPI has as `ziglang`) the date stays, and builds say so. Not
for: how far ahead, and what that tells (`runs.py`, `validate.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cursorbench.sandbox.protocol import Sandbox
from cursorbench.tasks.cache import made_once

INSIDE = "/opt/rtrl/clock"
_NAME = "clock.so"
_SOURCE = Path(__file__).with_name("clock.c")
_TICK_NS = 20_000_000  # files get the kernel's coarse time, which is up to a tick behind
_COMPILE_S = 300.0
_ASK = """import os, tempfile, time
with tempfile.TemporaryFile() as file:
    print(time.time(), os.fstat(file.fileno()).st_mtime)"""
_NEAR_S = 3600.0  # the check's own time, generously


@dataclass(frozen=True)
class Clock:
    """What moves the date.

    Attributes:
        folder: of the library, on this machine; None where it cannot be had.
        why_not: for people, "" where it can.
    """

    folder: Path | None
    why_not: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """For who builds."""
        if not self.why_not:
            return ()
        return (f"the date stays in validation, and tests that hang on it stay in tasks: {self.why_not}",)

    @property
    def mounts(self) -> dict[str, Path]:
        """What a sandbox needs of it."""
        return {INSIDE: self.folder} if self.folder else {}

    def variables(self, ahead_s: int) -> dict[str, str]:
        """The environment of a run that begins now, so many seconds ahead of the true date."""
        if not (self.folder and ahead_s):
            return {}
        began = time.time_ns() - _TICK_NS
        return {"LD_PRELOAD": f"{INSIDE}/{_NAME}", "RTRL_CLOCK": f"{ahead_s} {began}"}

    def inside(self, box: Sandbox, ahead_s: int) -> Clock:
        """The same if processes of this sandbox do see that date, else one that says why not."""
        if not self.folder:
            return self
        done = box.exec(["python", "-c", _ASK], timeout_s=60, variables=self.variables(ahead_s))
        try:
            seen = [float(word) for word in done.output.split()] if done.ok else []
        except ValueError:
            seen = []
        wanted = time.time() + ahead_s
        if len(seen) == 2 and all(abs(one - wanted) < _NEAR_S for one in seen):
            return self
        said = done.output.strip().splitlines()
        return Clock(None, f"inside it has no effect: {said[-1][:200] if said else done.ended}")


def compiled(cache: Path) -> Clock:
    """The clock of this machine, from the cache after the first time.

    Raises:
        DependencyDownError: (exit 13) the cache cannot be written.
    """
    compiler = _compiler()
    if not compiler:
        return Clock(None, "there is no C compiler (cc, or `pip install ziglang`)")
    key = hashlib.sha256(_SOURCE.read_bytes() + "\0".join(compiler).encode()).hexdigest()[:32]

    def make(folder: Path) -> None:
        folder.mkdir()
        options = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(folder / _NAME), str(_SOURCE), "-ldl"]
        subprocess.run([*compiler, *options], capture_output=True, text=True, check=True, timeout=_COMPILE_S)

    try:
        return Clock(made_once(cache, "clocks", key, make))
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        said = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
        return Clock(None, f"{compiler[0]} does not compile it: {said[:200]}")
    except subprocess.TimeoutExpired:
        return Clock(None, f"{compiler[0]} did not end in {_COMPILE_S:.0f} s")


def _compiler() -> list[str]:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    return []
