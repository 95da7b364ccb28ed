"""The time of day of all processes of a chaos run, which can be made to jump.

A preloaded library (`clock.c`, built here with the system's C compiler) adds an offset to what libc says
the time of day is. Monotonic clocks stay as they are, as when somebody sets a machine's clock.
"""

from __future__ import annotations

import mmap
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """An offset in seconds, shared by all processes started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self._library = _built(folder)

    @property
    def works(self) -> bool:
        """False without a C compiler."""
        return self._library is not None

    @property
    def environment(self) -> dict[str, str]:
        """For the processes whose clock it shall be."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Move every process's time of day by `seconds` from the true one."""
        self._map[:8] = seconds.to_bytes(8, "little", signed=True)


def _built(folder: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False)
    return library if done.returncode == 0 else None
