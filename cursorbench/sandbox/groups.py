"""Control groups: limits on all processes of a sandbox together, where this machine lets us make them.

Version 2 where memory and processes can be delegated, else version 1's hierarchies, else none; then the
keeper looks at /proc at the same intervals (`watch.py`). Folders bear the keeper's name, so that the next
keeper finds what one that was killed has left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "rtrl-sandbox-"
_WANTED = {"memory": "memory", "pids": "pids", "cpu": "cpuacct"}  # ours: version 1's
TCP = 64 << 20  # bytes in TCP's buffers, which version 1 counts apart, and has no limit for by itself
_TRIES = 2000  # of removing a group, a millisecond apart; counted, as a machine that stands still tries none


@dataclass
class Groups:
    """Where groups can be made. `places` has a folder for each of memory, pids and cpu that can be had."""

    version: int = 0
    places: dict[str, Path] = field(default_factory=dict)

    def make(self, name: str, memory: int, processes: int) -> Group:
        """A group with these limits in bytes and processes; without any where groups cannot be had."""
        group = Group(self.version, {kind: place / f"{PREFIX}{name}" for kind, place in self.places.items()})
        for folder in set(group.folders.values()):
            folder.mkdir(exist_ok=True)
        if self.version == 2:
            group.set("memory", "memory.max", memory)
            group.set("memory", "memory.swap.max", 0, needed=False)
            group.set("pids", "pids.max", processes)
        elif self.version == 1:
            group.set("memory", "memory.limit_in_bytes", memory)
            group.set("memory", "memory.memsw.limit_in_bytes", memory, needed=False)
            group.set("memory", "memory.kmem.tcp.limit_in_bytes", TCP, needed=False)
            group.set("pids", "pids.max", processes)
        return group

    def left_over(self) -> list[tuple[str, Group]]:
        """Groups of keepers, by the keeper's name (`pid-start`)."""
        found: dict[str, dict[str, Path]] = {}
        for kind, place in self.places.items():
            top = next(folder for folder in (place, *place.parents) if folder.parent in (MOUNT, MOUNT.parent))
            for folder, names, _ in os.walk(top):  # unlike rglob goes on where others' groups end meanwhile
                for name in names:
                    if name.startswith(PREFIX):
                        found.setdefault(name.removeprefix(PREFIX), {})[kind] = Path(folder, name)
        return [(name.rpartition("-")[0], Group(self.version, folders)) for name, folders in found.items()]


@dataclass
class Group:
    """The folders of one sandbox's group."""

    version: int
    folders: dict[str, Path]

    def set(self, kind: str, name: str, value: int, *, needed: bool = True) -> None:
        """Write a limit. Raises OSError when it is refused, unless it is not needed."""
        if kind in self.folders:
            with contextlib.nullcontext() if needed else contextlib.suppress(OSError):
                (self.folders[kind] / name).write_text(str(value), encoding="ascii")

    def join(self) -> None:
        """Put the calling process into it."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text("0", encoding="ascii")

    def members(self) -> list[int]:
        """Process ids in it; not those that another PID namespace alone can name, which are told as 0."""
        for folder in self.folders.values():
            with contextlib.suppress(OSError):
                numbers = (folder / "cgroup.procs").read_text("ascii").split()
                return [int(number) for number in numbers if number != "0"]
        return []

    def memory(self) -> int | None:
        """Bytes of memory that are in no file; None where that is not known."""
        return self._number("memory.stat", "anon" if self.version == 2 else "total_rss")

    def shared(self) -> int:
        """Bytes in files that are in memory: a tmpfs, and what has no name (`memfd_create`)."""
        return self._number("memory.stat", "shmem" if self.version == 2 else "total_shmem") or 0

    def killed(self) -> int:
        """How often the kernel killed for memory in it."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return self._number(name, "oom_kill") or 0

    def _number(self, name: str, word: str) -> int | None:
        if "memory" not in self.folders:
            return None
        with contextlib.suppress(OSError):
            for line in (self.folders["memory"] / name).read_text("ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == word:
                    return int(value)
        return None

    def cpu_file(self) -> Path | None:
        """The file that tells the CPU time used: nanoseconds, or version 2's `cpu.stat`."""
        if "cpu" not in self.folders:
            return None
        return self.folders["cpu"] / ("cpu.stat" if self.version == 2 else "cpuacct.usage")

    def remove(self) -> None:
        """Kill what is in it and remove it; waits for the kernel to let go."""
        for folder in set(self.folders.values()):
            for _ in range(_TRIES):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY:
                        break
                    for pid in self.members():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    time.sleep(0.001)
                else:
                    break


def own() -> dict[str, Path]:
    """This process's groups: by controller for version 1, under "" for version 2."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = Path(path.lstrip("/"))
    return found


def detect() -> Groups:
    """What can be had here; tries it by making a group and removing it."""
    try:
        mine = own()
    except OSError:
        return Groups()
    return _second(mine) or _first(mine)


def _second(mine: dict[str, Path]) -> Groups | None:
    if "" not in mine or not (MOUNT / "cgroup.controllers").exists():
        return None
    place = MOUNT / mine[""]
    for candidate in (place, *place.parents):
        if not candidate.is_relative_to(MOUNT):
            break
        with contextlib.suppress(OSError):
            (candidate / "cgroup.subtree_control").write_text("+memory +pids +cpu", encoding="ascii")
        if _try(candidate, ("memory.max", "pids.max", "cpu.stat")):
            return Groups(2, dict.fromkeys(("memory", "pids", "cpu"), candidate))
    return None


def _first(mine: dict[str, Path]) -> Groups:
    files = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpuacct.usage"}
    places = {}
    for kind, controller in _WANTED.items():
        for path in (mine.get(controller), Path()):
            if path is not None and _try(MOUNT / controller / path, (files[kind],)):
                places[kind] = MOUNT / controller / path
                break
    return Groups(1, places) if places else Groups()


def _try(place: Path, files: tuple[str, ...]) -> bool:
    folder = place / f"rtrl-try-{os.getpid()}"
    try:
        folder.mkdir(exist_ok=True)  # a namesake that was killed here is no reason to go without
    except OSError:
        return False
    try:
        return all(os.access(folder / name, os.R_OK) for name in files)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
