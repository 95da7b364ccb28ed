"""What one bubblewrap sandbox is made of on the host: folders, mounts, a user, the process.

Everything a sandbox writes (working tree, home, /tmp, /dev/shm) is on one tmpfs whose size is its disk
limit, and the working tree is an overlay of it over the environment's folder. The keeper's own /tmp is
where it all stands; no other process sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cursorbench.sandbox import changes, layers, seccomp, syscalls, tree

STAGE = "/tmp"
INSIDE_UID = 1000
FIRST_UID = 1_879_048_192  # first of the range that systemd leaves to nobody's use
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
PYTHON = "/run/sandbox/python"  # the supervisor's interpreter, where it is not /usr's
SUPERVISOR = Path(__file__).with_name("supervisor.py")


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
    overlay: bool = True
    layers: list[int] = field(default_factory=list)
    mounted: list[str] = field(default_factory=list)

    def mount(self, source: str, place: str, kind: str, flags: int, data: str = "") -> str:
        """Mount at `place` of this sandbox's folder; unmounted with it."""
        target = f"{self.folder}/{place}"
        Path(target).mkdir(exist_ok=True)
        syscalls.mount(source, target, kind, flags, data)
        self.mounted.append(target)
        return target


class Store:
    """What sandboxes of one keeper share: frozen layers, and maps of owners."""

    def __init__(self, hidden: int) -> None:
        self._hidden = hidden
        self._maps: dict[tuple[int, int, int], int] = {}
        self._users: dict[int, int] = {}

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

    def freeze(self, box: Box, number: int) -> None:
        """Copy what a sandbox changed, and what it was forked from, as layer `number`."""
        Path(self.layer(number)).mkdir()
        with tree.folder(self.layer(number)) as target:
            merge = layers.Merge(target, 0 if os.geteuid() == 0 else None)
            for layer in reversed(box.layers):
                with tree.folder(self.layer(layer)) as source:
                    merge.add(source)
            merge.add(box.upper)

    def changes(self, box: Box, out: BinaryIO) -> None:
        """Send what a sandbox changed against its environment."""
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(tree.folder(f"{box.folder}/lower"))
            opened = [stack.enter_context(tree.folder(self.layer(layer))) for layer in reversed(box.layers)]
            changes.write(changes.collect(root, [*opened, box.upper]), out)

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
    hidden = os.open(STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    syscalls.mount("tmpfs", STAGE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=0755")
    os.umask(0o022)
    for name in ("boxes", "layers", "etc"):
        Path(STAGE, name).mkdir()
    _make_etc(Path(STAGE, "etc"))
    return Store(hidden)


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


def prepare(store: Store, number: int, request: dict[str, Any]) -> Box:
    """Make folders and mounts."""
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
        box.layers = request["layers"]
        with store.host(request["root"]) as fd:
            _overlay(store, box, fd)
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


def _overlay(store: Store, box: Box, root: int) -> None:
    found = os.fstat(root)
    Path(box.folder, "disk/upper").chmod(found.st_mode & 0o777 | 0o700)
    lowers = []
    for place, layer in enumerate(box.layers):
        fd = os.open(store.layer(layer), os.O_RDONLY | os.O_DIRECTORY)
        lowers.append(_lower(store, box, fd, f"layer{place}", (0, 0)))
        os.close(fd)
    lowers.append(_lower(store, box, root, "lower", (found.st_uid, found.st_gid)))
    disk = f"{box.folder}/disk"
    options = f"lowerdir={':'.join(lowers)},upperdir={disk}/upper,workdir={disk}/overlay"
    if os.geteuid():
        options += ",userxattr"
    box.mount("overlay", "work", "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)


def _lower(store: Store, box: Box, fd: int, place: str, owner: tuple[int, int]) -> str:
    target = f"{box.folder}/{place}"
    Path(target).mkdir()
    if os.geteuid() == 0:
        syscalls.bind_mapped(fd, target, store.owners(*owner, box.uid))
    else:
        syscalls.mount(f"/proc/self/fd/{fd}", target, "", syscalls.MS_BIND)
    box.mounted.append(target)
    return target


def arguments(box: Box, request: dict[str, Any], control: int, information: int, filter_fd: int) -> list[str]:
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
    result += ["--bind", f"{box.folder}/work", request["workdir"]]
    result += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    result += ["--info-fd", str(information), "--seccomp", str(filter_fd), "--", request["python"]]
    return [*result, "-I", "-S", "-c", SUPERVISOR.read_text(encoding="utf-8"), str(control)]


def launch(box: Box, request: dict[str, Any]) -> int:
    """Start bubblewrap. Returns the descriptor on which it tells its child; its end means that it failed."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    information, told = os.pipe()
    filters = os.memfd_create("filter")
    os.write(filters, seccomp.program())
    os.lseek(filters, 0, os.SEEK_SET)
    box.log = os.memfd_create("log")
    line = arguments(box, request, theirs.fileno(), told, filters)
    box.pid = os.fork()
    if not box.pid:
        _become(box.uid, line, [theirs.fileno(), told, filters], box.log)
    for fd in (told, filters):
        os.close(fd)
    theirs.close()
    box.control = ours.detach()
    return information


def _become(uid: int, line: list[str], kept: list[int], log: int) -> None:
    """In the child: the user of the sandbox, then bubblewrap."""
    try:
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
        os.execve(line[0], line, {"LD_LIBRARY_PATH": f"{PYTHON}/lib"})
    except OSError as error:
        os.write(2, str(error).encode())
    finally:
        os._exit(127)


def child_of(said: bytes) -> int | None:
    """A descriptor of the first process inside, from what bubblewrap said of it."""
    try:
        return os.pidfd_open(int(json.loads(said)["child-pid"]))
    except (ValueError, KeyError, OSError):
        return None


def complaint(box: Box) -> str:
    """What bubblewrap wrote before it ended."""
    return os.pread(box.log, 2000, 0).decode("utf-8", "replace").strip()


def remove(box: Box) -> None:
    """End every process of a sandbox, then take its mounts and folders away."""
    if box.child >= 0:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(box.child, signal.SIGKILL)
    if box.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(box.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(box.pid, 0)
    for fd in (box.child, box.upper, box.control, box.log):
        if fd >= 0:
            os.close(fd)
    for target in reversed(box.mounted):
        with contextlib.suppress(OSError):
            syscalls.unmount(target)
    shutil.rmtree(box.folder, ignore_errors=True)
