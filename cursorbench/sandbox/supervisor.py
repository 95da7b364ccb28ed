"""The first process inside a sandbox: starts commands, opens files for the caller, reaps what is left over.

Runs as the text of this file by `python -I -S -c`, with nothing but the standard library's built-in parts,
so that a sandbox starts in milliseconds; nothing imports it. It is process 1 of its namespace, where no
signal of the others reaches it, and not dumpable, so that they can neither trace it nor read its memory.
It holds no secret and no right that a command has not: who took it over could only lie about the exit
statuses of this one sandbox.

A request is one packet of fields parted by NUL, first the operation, with descriptors beside it; the answer
goes to the last of them (the status channel), so that requests need no order:

    run      cwd, CPU seconds, count of arguments, arguments, variables [stdin, output, status] -> wait status
    kill     id (what `run` said on the status channel first)
    read     path                                            [status] -> errno, the file's descriptor
    write    path                                            [status] -> errno, the file's descriptor
    clear    (kills everything but this process)             [status] -> 0
"""

# pathlib and contextlib take longer to import than the rest takes to start:
# ruff: noqa: PTH103, PTH112, PTH116, PTH120, PTH123, PTH208, SIM105
from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the module without its enumerations: 2 ms less
import _socket as socket
import ctypes
import os
import resource
import select
import stat
import struct
import sys

SCM = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
PACKET = 1 << 18
NONBLOCKING = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def receive(control: socket.socket) -> tuple[bytes, list[int]]:
    data, ancillary, _, _ = control.recvmsg(PACKET, 256, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == SCM:
            fds.extend(struct.unpack(f"{len(content) // 4}i", content))
    return data, fds


def run(fields: list[bytes], fds: list[int], running: dict[int, int], score: int) -> None:
    stdin, output, status = fds
    cwd, cpu_s, count = fields[0], int(fields[1]), int(fields[2])
    arguments, variables = fields[3 : 3 + count], fields[3 + count :]
    environment = dict(item.split(b"=", 1) for item in variables if item)
    actions = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in enumerate((stdin, output, output))]
    try:
        os.chdir(cwd)
        program = located(arguments[0], environment.get(b"PATH", b""))
        usual = os.pread(score, 16, 0)
        os.pwrite(score, b"1000", 0)  # out of memory the kernel takes commands, and not this process
        try:
            pid = os.posix_spawn(program, arguments, environment, file_actions=actions, setsid=True)
        finally:
            os.pwrite(score, usual, 0)
    except OSError as error:
        os.write(output, b"sandbox: %s: %s\n" % (arguments[0][:200], os.strerror(error.errno or 5).encode()))
        os.write(status, struct.pack("ii", 0, (126 if error.errno != 2 else 127) << 8))
        os.close(status)
    else:
        try:
            resource.prlimit(pid, resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        except OSError:
            pass  # it has ended already
        os.write(status, struct.pack("i", pid))
        running[pid] = status
    finally:
        os.chdir("/")
        os.close(stdin)
        os.close(output)


def located(program: bytes, path: bytes) -> bytes:
    """A program by the command's own PATH: the one that posix_spawnp asks is the supervisor's."""
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        place = (folder or b".") + b"/" + program
        if os.access(place, os.X_OK) and not os.path.isdir(place):
            return place
    raise FileNotFoundError(2, "not on the PATH")


def parents() -> dict[int, tuple[int, int]]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    rest = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if rest[0] != b"Z" or int(rest[17]) > 1:  # the first of its threads may have ended, and not it
                found[int(name)] = (int(rest[1]), int(rest[3]))  # parent, session
    return found


def end(first: int) -> None:
    """Kill a command with all that descends from it or shares its session, until nothing is found."""
    for _ in range(50):
        found = parents()
        doomed = {pid for pid, (_, session) in found.items() if first in (pid, session)}
        more = set(doomed)
        while more:
            more = {pid for pid, (parent, _) in found.items() if parent in more} - doomed
            doomed |= more
        doomed.discard(1)
        if not doomed:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in doomed:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass


def reap(running: dict[int, int]) -> None:
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        status = running.pop(pid, None)
        if status is not None:
            try:
                os.write(status, struct.pack("i", ended))
            except OSError:
                pass  # nobody waits any more
            os.close(status)


def opened(path: bytes, flags: int) -> int:
    """A regular file's descriptor; never a device, a pipe, or a file of /proc (this process's rights)."""
    fd = os.open(path, flags | NONBLOCKING, 0o644)
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        os.close(fd)
        raise IsADirectoryError(21, "is a directory")
    if not stat.S_ISREG(found.st_mode) or found.st_dev == os.stat("/proc").st_dev:
        os.close(fd)
        raise PermissionError(1, "not a regular file")
    return fd


def hand_over(path: bytes, writing: bool, status: int) -> None:
    number = 0
    fds: list[int] = []
    try:
        if writing:
            folder = os.path.dirname(path)
            if folder:
                os.makedirs(folder, exist_ok=True)
            fds.append(opened(path, os.O_WRONLY | os.O_CREAT))
            os.ftruncate(fds[0], 0)
        else:
            fds.append(opened(path, os.O_RDONLY))
    except OSError as error:
        number = error.errno or 5
    channel = socket.socket(fileno=status)
    rights = [(*SCM, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    try:
        channel.sendmsg([struct.pack("i", number)], rights)
    except OSError:
        pass  # nobody waits any more
    channel.close()
    for fd in fds:
        os.close(fd)


def handle(data: bytes, fds: list[int], running: dict[int, int], score: int) -> None:
    operation, *fields = data.split(b"\0")
    if operation == b"run":
        run(fields, fds, running, score)
    elif operation in (b"read", b"write"):
        hand_over(fields[0], operation == b"write", fds[0])
    elif operation == b"kill":
        if int(fields[0]) in running:
            end(int(fields[0]))
    elif operation == b"clear":
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.write(fds[0], struct.pack("i", 0))
        os.close(fds[0])


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    processes = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))  # of this user namespace
    files = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.set_inheritable(control.fileno(), False)
    for name in os.listdir("/proc/self/fd"):  # what bubblewrap has left open
        if int(name) > 2 and int(name) != control.fileno():
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
    score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)  # afterwards it is root's
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody inside reads or writes this process
    os.umask(0o022)
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(awake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(awake, select.POLLIN)
    control.send(b"ready")
    while True:
        for fd, _ in poll.poll():
            if fd == awake:
                os.read(awake, 4096)
                continue
            data, fds = receive(control)
            if not data:
                return
            handle(data, fds, running, score)
        reap(running)


if __name__ == "__main__":
    main()
