"""Where the keeper makes sandboxes: its own mount namespace, the layers, the maps of owners.

The keeper's /tmp is a file system of its own, which no other process sees; the host's stays reachable by
a descriptor. What one sandbox is made of is in `boxes.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from cursorbench.sandbox import groups, syscalls

STAGE = "/tmp"
INSIDE_UID = 1000
SUPERVISOR = Path(__file__).with_name("supervisor.py")


def started(pid: int) -> int:
    """When a process began, in the kernel's ticks; 0 when there is none."""
    try:
        # bytes: a name that the kernel has cut may end within a character
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


class Store:
    """What sandboxes of one keeper share: frozen layers, and maps of owners."""

    def __init__(self, hidden: int, supervisor: str) -> None:
        self.supervisor = supervisor
        self.overlays, self.why_not = True, ""
        self.groups = groups.detect()
        self.name = f"{os.getpid()}-{started(os.getpid())}"
        self._hidden = hidden
        self._maps: dict[tuple[int, int, int], int] = {}
        self._users: dict[int, int] = {}
        self.workers: set[int] = set()

    @contextlib.contextmanager
    def host(self, path: str) -> Iterator[int]:
        """A descriptor of a folder or file of the host, by its real path; also below the host's own /tmp."""
        inside = path.removeprefix(f"{STAGE}/")
        fd = os.open(inside, os.O_PATH | os.O_CLOEXEC, dir_fd=None if inside == path else self._hidden)
        try:
            yield fd
        finally:
            os.close(fd)

    def layer(self, number: int) -> str:
        """The folder of a frozen layer."""
        return f"{STAGE}/layers/{number}"

    def use(self, numbers: list[int], change: int) -> None:
        """Count users of layers up or down; one without any is removed."""
        for number in numbers:
            self._users[number] = self._users.get(number, 0) + change
            if not self._users[number]:
                del self._users[number]
                shutil.rmtree(self.layer(number), ignore_errors=True)

    def owners(self, owner: int, group: int, uid: int) -> int:
        """A user namespace in which files of `owner` and `group` belong to `uid`."""
        key = (owner, group, uid)
        if key not in self._maps:
            self._maps[key] = _user_namespace(*key)
        return self._maps[key]


def _user_namespace(owner: int, group: int, uid: int) -> int:
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(told, b".")
            signal.pause()
        finally:
            os._exit(1)
    os.close(told)
    try:
        if not os.read(ready, 1):
            raise OSError("no user namespace can be made")
        Path(f"/proc/{pid}/uid_map").write_text(f"{owner} {uid} 1\n", encoding="ascii")
        Path(f"/proc/{pid}/gid_map").write_text(f"{group} {uid} 1\n", encoding="ascii")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def enter() -> Store:
    """Leave the host's mounts for a copy of one's own, with an empty /tmp; the host's stays in the store."""
    if os.geteuid():
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{INSIDE_UID} {uid} 1\n", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{INSIDE_UID} {gid} 1\n", encoding="ascii")
    else:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
    supervisor = SUPERVISOR.read_text(encoding="utf-8")  # it may stand below the /tmp that is left here
    hidden = os.open(STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.mount("tmpfs", STAGE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=0755")
    os.umask(0o022)
    for name in ("boxes", "layers", "etc"):
        Path(STAGE, name).mkdir()
    _make_etc(Path(STAGE, "etc"))
    return Store(hidden, supervisor)


def _make_etc(etc: Path) -> None:
    user = f"sandbox:x:{INSIDE_UID}:{INSIDE_UID}:sandbox:/home/sandbox:/bin/sh\n"
    texts = {
        "passwd": f"root:x:0:0:root:/:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"root:x:0:\nsandbox:x:{INSIDE_UID}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "hostname": "sandbox\n",
    }
    for name, text in texts.items():
        (etc / name).write_text(text, encoding="ascii")
    for name in ("ld.so.cache", "ld.so.conf", "localtime", "mime.types"):
        with contextlib.suppress(OSError):
            shutil.copyfile(Path("/etc", name), etc / name)
    for name in ("alternatives", "ld.so.conf.d"):
        with contextlib.suppress(OSError):
            shutil.copytree(Path("/etc", name), etc / name, symlinks=True)
