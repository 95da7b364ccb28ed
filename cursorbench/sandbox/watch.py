"""What the keeper looks at twenty times a second: memory, and processes where no group counts them.

The kernel's group limits stop a sandbox at memory plus disk; this stops it at memory alone, and says so.
Where groups cannot be had, the processes of the sandbox are found by their PID namespace in /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from cursorbench.sandbox.groups import Group

INTERVAL_S = 0.05
DYING_S = 5.0  # for the kernel to take apart what was killed; then its numbers may be others'
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Watch:
    """The limits of one sandbox. `first` is the host's id of its first process, `outer` bubblewrap's own.

    Neither is ever killed here: the sandbox outlives what ran in it.
    """

    group: Group
    memory: int
    processes: int
    disk: str = ""  # the sandbox's own file system, whose files have a limit of their own
    first: int = 0
    outer: int = 0
    killed: int = 0
    at: float = float("-inf")  # when something was last killed for memory, on the monotonic clock
    doomed: frozenset[int] = frozenset()  # what was killed then

    def look(self) -> None:
        """Kill everything in the sandbox when it is over its limits, and remember when."""
        killed = self.group.killed()
        if killed > self.killed:
            self.killed, self.at = killed, time.monotonic()
        used = self._used()
        if "pids" in self.group.folders and used is not None:
            self._clear(self.group.members() if used > self.memory else [])
            return
        inside = members(self.first)
        if used is None:
            used = sum(map(_resident, inside))
        self._clear(inside if used > self.memory or len(inside) > self.processes else [])

    def _used(self) -> int | None:
        """Memory in no file, and in files without a name: those are on no disk of the sandbox's."""
        used = self.group.memory()
        if used is None or not self.disk:
            return used
        found = os.statvfs(self.disk)
        return used + max(0, self.group.shared() - (found.f_blocks - found.f_bfree) * found.f_frsize)

    def _clear(self, pids: list[int]) -> None:
        """Kill all these; but nothing new while the kernel still takes apart what was killed before.

        The memory is that one's until then, and a command that has begun meanwhile has no part in it.
        """
        if not self.doomed.isdisjoint(pids) and time.monotonic() - self.at < DYING_S:
            return
        self.doomed = frozenset(pids) - {self.first, self.outer}
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.doomed:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        if pids:
            self.at = time.monotonic()


def members(first: int) -> list[int]:
    """Host ids of all processes in the PID namespace of the process `first`."""
    wanted = _namespace(first)
    if not wanted:
        return []
    numbers = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return [pid for pid in numbers if _namespace(pid) == wanted]


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115  # a few microseconds each
    except OSError:
        return ""


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
