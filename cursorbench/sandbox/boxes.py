"""What one bubblewrap sandbox is made of on the host: folders, mounts, a user, the process.

Everything a sandbox writes (working tree, home, /tmp, /dev/shm) is on one tmpfs whose size is its disk
limit, and the working tree is an overlay of it over the environment's folder. The keeper's own /tmp is
where it all stands; no other process sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursorbench.sandbox import seccomp, syscalls
from cursorbench.sandbox.stage import INSIDE_UID, STAGE, Store
from cursorbench.sandbox.watch import Watch

MARK = "rtrl-sandbox:"  # on the command line of bubblewrap, with the keeper's name
FIRST_UID = 1_879_048_192  # first of the range that systemd leaves to nobody's use
OWN = 3  # processes that are ours: two of bubblewrap, the supervisor
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
PYTHON = "/run/sandbox/python"  # the supervisor's interpreter, where it is not /usr's


@dataclass
class Box:
    """One sandbox's things. `pid` is bubblewrap's, `child` a descriptor of the first process inside."""

    number: int
    uid: int
    folder: str
    upper: int = -1
    control: int = -1
    log: int = -1
    pid: int = 0
    said: bytes = b""
    child: int = -1
    watch: Watch | None = None
    whole: bool = False  # the tree is a copy, not an overlay
    root: str = ""
    layers: list[int] = field(default_factory=list)
    mounted: list[str] = field(default_factory=list)

    def mount(self, source: str, place: str, kind: str, flags: int, data: str = "") -> str:
        """Mount at `place` of this sandbox's folder; unmounted with it."""
        target = f"{self.folder}/{place}"
        Path(target).mkdir(exist_ok=True)
        syscalls.mount(source, target, kind, flags, data)
        self.mounted.append(target)
        return target

    def found_child(self) -> bool:
        """Take the first process inside from what bubblewrap has said so far, if that is enough."""
        try:
            pid = int(json.loads(self.said)["child-pid"])
            self.child = os.pidfd_open(pid)
        except (ValueError, KeyError, OSError):
            return False
        if self.watch is not None:
            self.watch.first, self.watch.outer = pid, self.pid
        return True

    def is_ready(self) -> bool:
        """Whether the supervisor inside has said that it is, or has ended."""
        return _is_readable(self.control)

    def has_ended(self) -> bool:
        """Whether its first process is no more, as where the machine ran out of memory."""
        return _is_readable(self.child)

    def look(self) -> None:
        """Hold it to its limits."""
        if self.watch is not None:
            self.watch.look()


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def prepare(store: Store, number: int, request: dict[str, Any]) -> Box:
    """Make folders, mounts and group, all but the working tree."""
    uid = FIRST_UID + os.getpid() * 60 + number % 60 if os.geteuid() == 0 else INSIDE_UID
    box = Box(number, uid, f"{STAGE}/boxes/{number}")
    Path(box.folder).mkdir()
    try:
        size = f"size={request['disk']},nr_inodes={request['inodes']},mode=0755"
        disk = box.mount("tmpfs", "disk", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, size)
        for name in ("upper", "overlay", "tmp", "shm", "home"):
            Path(disk, name).mkdir(mode=0o755)
            os.chown(Path(disk, name), *_owner(uid))
        Path(disk, "tmp").chmod(0o1777)
        for place, path in enumerate(request["mounts"].values()):
            with store.host(path) as fd:
                _bind(box, fd, f"m{place}")
        work = box.mount(f"{box.folder}/disk", "work", "", syscalls.MS_BIND)
        syscalls.mount("none", work, "", syscalls.MS_SHARED)  # what is mounted there later arrives inside
        memory = request["memory"]
        group = store.groups.make(
            f"{store.name}-{number}", memory + request["disk"], request["processes"] + OWN
        )
        box.watch = Watch(group, memory, request["processes"] + OWN, disk)
        box.upper = os.open(f"{disk}/upper", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        remove(box)
        raise
    return box


def _owner(uid: int) -> tuple[int, int]:
    return (uid, uid)


def _bind(box: Box, fd: int, place: str) -> None:
    target = Path(box.folder, place)
    if Path(f"/proc/self/fd/{fd}").is_dir():
        target.mkdir()
    else:
        target.touch()
    syscalls.mount(f"/proc/self/fd/{fd}", str(target), "", syscalls.MS_BIND | syscalls.MS_REC)
    box.mounted.append(str(target))


def arguments(
    store: Store, box: Box, request: dict[str, Any], control: int, information: int, filter_fd: int
) -> list[str]:
    """The command line of bubblewrap."""
    result = [request["bwrap"], "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    result += ["--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox"]
    result += ["--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)]
    for name in SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            result += ["--symlink", str(path.readlink()), f"/{name}"]
        elif path.is_dir():
            result += ["--ro-bind", f"/{name}", f"/{name}"]
    result += ["--ro-bind", f"{STAGE}/etc", "/etc", "--proc", "/proc", "--dev", "/dev"]
    disk = f"{box.folder}/disk"
    result += ["--bind", f"{disk}/shm", "/dev/shm", "--bind", f"{disk}/tmp", "/tmp"]
    result += ["--dir", "/var", "--symlink", "../tmp", "/var/tmp", "--bind", f"{disk}/home", "/home/sandbox"]
    for place, inside in enumerate(request["mounts"]):
        result += ["--ro-bind", f"{box.folder}/m{place}", inside]
    for inside in request["covered"]:
        result += ["--tmpfs", inside, "--remount-ro", inside]
    result += ["--bind", f"{box.folder}/work", request["workdir"]]
    result += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    result += ["--info-fd", str(information), "--seccomp", str(filter_fd), "--", request["python"]]
    words = (str(control), str(request["processes"]), MARK + store.name)
    return [*result, "-I", "-S", "-c", store.supervisor, *words]


def launch(store: Store, box: Box, request: dict[str, Any]) -> int:
    """Start bubblewrap. Returns the descriptor on which it tells its child; its end means that it failed."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    information, told = os.pipe()
    filters = os.memfd_create("filter")
    os.write(filters, seccomp.program())
    os.lseek(filters, 0, os.SEEK_SET)
    box.log = os.memfd_create("log")
    line = arguments(store, box, request, theirs.fileno(), told, filters)
    box.pid = os.fork()
    if not box.pid:
        _become(box, line, [theirs.fileno(), told, filters], box.log)
    for fd in (told, filters):
        os.close(fd)
    theirs.close()
    box.control = ours.detach()
    return information


def _become(box: Box, line: list[str], kept: list[int], log: int) -> None:
    """In the child: the group and the user of the sandbox, then bubblewrap."""
    try:
        uid, keeper = box.uid, os.getppid()
        if box.watch is not None:
            box.watch.group.join()
        nothing = os.open("/dev/null", os.O_RDONLY)
        for place, fd in enumerate((nothing, log, log)):
            os.dup2(fd, place)
        for fd in kept:
            os.set_inheritable(fd, True)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)
        os.execve(line[0], line, {"LD_LIBRARY_PATH": f"{PYTHON}/lib"})
    except OSError as error:
        os.write(2, str(error).encode())
    finally:
        os._exit(127)


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def complaint(box: Box) -> str:
    """What bubblewrap wrote before it ended."""
    return os.pread(box.log, 2000, 0).decode("utf-8", "replace").strip()


def remove(box: Box) -> None:
    """End every process of a sandbox, then take its mounts and folders away."""
    if box.child >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(box.child, signal.SIGKILL)
    if box.pid:
        for child in [] if box.child >= 0 else _children(box.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(box.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(box.pid, 0)
    if box.watch is not None:
        box.watch.group.remove()
    for fd in (box.child, box.upper, box.control, box.log):
        if fd >= 0:
            os.close(fd)
    for target in reversed(box.mounted):
        with contextlib.suppress(OSError):
            syscalls.unmount(target)
    shutil.rmtree(box.folder, ignore_errors=True)
