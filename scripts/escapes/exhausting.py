"""Attempts to use the host up, or to outlive what started them. Succeeded means: not stopped at the limit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import psutil

from cursorbench.sandbox.protocol import Done, Limits, Sandbox
from escapes.world import LIMITS, PYTHON, Attempt, World

Judge = Callable[[Sandbox, Done], bool]
SOON_S = 3.0


def _python(code: str) -> list[str]:
    return [PYTHON, "-I", "-c", code]


def _peak(stop: threading.Event, seen: dict[str, int]) -> None:
    """The most processes at once on the machine, and the least free memory."""
    seen |= {"processes": 0, "free": psutil.virtual_memory().available}
    while not stop.wait(0.05):
        seen["processes"] = max(seen["processes"], len(psutil.pids()))
        seen["free"] = min(seen["free"], psutil.virtual_memory().available)


def _flood(
    name: str,
    wall: str,
    command: list[str],
    judge: Callable[[Done, dict[str, int]], bool],
    limits: Limits = LIMITS,
    timeout_s: float = SOON_S,
) -> Attempt:
    """A command that takes what it gets; `judge` says of its end and the machine's worst moment if it won."""

    def run(world: World) -> tuple[bool, str]:
        before = {"processes": len(psutil.pids()), "free": psutil.virtual_memory().available}
        stop, seen = threading.Event(), dict[str, int]()
        watcher = threading.Thread(target=_peak, args=(stop, seen))
        with world.backend.start(world.environment, limits) as sandbox:
            watcher.start()
            inside = [world.python if word == PYTHON else word for word in command]
            done = sandbox.exec(inside, timeout_s=timeout_s)
            stop.set()
            watcher.join()
            alive = sandbox.exec("echo alive", timeout_s=10)
        used = {"processes": seen["processes"] - before["processes"], "memory": before["free"] - seen["free"]}
        won = judge(done, used) or alive.output != "alive\n"
        said = (done.output.strip() or "-").splitlines()[-1][:80]
        return won, f"{wall} ({done.ended}, status {done.status}: {said})"

    return Attempt(name, "limits", run)


def _outlives(name: str, code: str, wall: str) -> Attempt:
    """A job that must be gone with its sandbox; it writes its mark into its command line."""

    def run(world: World) -> tuple[bool, str]:
        mark = f"rtrl-mark-{os.urandom(8).hex()}"
        with world.backend.start(world.environment, LIMITS) as sandbox:
            sandbox.exec(["/bin/sh", "-c", code.replace("MARK", mark)], timeout_s=1.0)
            running = _marked(mark)
        left = _marked(mark)
        if not running and "ended" not in wall:
            raise AssertionError(f"{name}: the job never ran")
        return bool(left), f"{wall} ({running} ran, {left} left)"

    return Attempt(name, "limits", run)


def _marked(mark: str) -> int:
    found = 0
    for process in psutil.process_iter():
        try:
            found += mark in " ".join(process.cmdline())
        except psutil.Error:
            continue
    return found


def _timeout(name: str, code: str) -> Attempt:
    """A command that does not want to end at its time-out."""

    def run(world: World) -> tuple[bool, str]:
        with world.backend.start(world.environment, LIMITS) as sandbox:
            started = time.monotonic()
            done = sandbox.exec(code, timeout_s=0.5)
            took = time.monotonic() - started
        return took > 5 or done.ended != "timeout", f"SIGKILL after {took:.1f} s ({done.ended})"

    return Attempt(name, "limits", run)


_LIMITED = """
import resource
for name in ("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_CPU"):
    try:
        resource.prlimit(1, getattr(resource, name), (0, 0))
        print("limited")
    except OSError as error:
        print(error)
"""
_LEADER = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
_BOMB = (
    "import os, time\nwhile True:\n    try:\n        os.fork() or os.setsid()\n"
    "    except OSError:\n        time.sleep(0.01)"
)
_THREADS = (
    "import threading, time\nn = 0\ntry:\n    while True:\n"
    "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); n += 1\n"
    "except RuntimeError as error:\n    print(n, error, flush=True)"
)
_MEMORY = "x = []\nwhile True: x.append(bytearray(8 << 20))"
_FORKED = (
    "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
    "        x = bytearray(64 << 20); time.sleep(30); os._exit(0)\ntime.sleep(30)"
)
_INODES = (
    "import os\ntry:\n    for i in range(10**7): open(f'/tmp/{i}', 'w').close()\n"
    "except OSError as error: print(i, error)"
)
_FILES = (
    "import os\nfds = []\ntry:\n    while True: fds.append(os.open('/dev/null', 0))\n"
    "except OSError as error: print(len(fds), error)"
)
_NAMELESS = "import os\nfile = os.memfd_create('x')\nwhile True: os.write(file, bytes(65536))"
_SOCKETS = (
    "import socket\nkept = []\nwhile True:\n"
    "    ours, theirs = socket.socketpair(); ours.setblocking(False); kept.append((ours, theirs))\n"
    "    try:\n        while True: ours.send(bytes(65536))\n    except BlockingIOError: pass"
)
_TCP = (
    "import socket\nserver = socket.create_server(('127.0.0.1', 0)); kept, sent = [server], 0\n"
    "for _ in range(100):\n"
    "    ours = socket.create_connection(server.getsockname()); kept += [ours, server.accept()[0]]\n"
    "    ours.setblocking(False)\n"
    "    try:\n        while sent < 400 << 20: sent += ours.send(bytes(65536))\n"
    "    except BlockingIOError: pass\n"
    "print(sent >> 20, 'MiB')"
)
_SEGMENTS = (
    "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nwhile True:\n"
    "    place = ctypes.c_void_p(libc.shmat(libc.shmget(0, 64 << 20, 0o1600), None, 0))\n"
    "    ctypes.memset(place, 1, 64 << 20); libc.shmdt(place)"
)
_SENT = (
    "import os, socket\nkept = []\nwhile True:\n"
    "    file = os.memfd_create('x'); os.write(file, bytes(32 << 20)); kept.append(socket.socketpair())\n"
    "    socket.send_fds(kept[-1][0], [b'x'], [file]); os.close(file)"
)
_SPARED = "open('/proc/self/oom_score_adj', 'w').write('0')\n" + _SOCKETS
_TWO = "sh -c 'while :; do :; done' & while :; do :; done"


def _was_killed(done: Done, used: dict[str, int]) -> bool:
    return done.ended != "memory" or used["memory"] > LIMITS.memory + LIMITS.disk + (256 << 20)


def _blamed(world: World) -> tuple[bool, str]:
    """Take so much that the sandbox itself dies. It may; what may not be is that this is nobody's doing."""
    with world.backend.start(world.environment, LIMITS) as sandbox:
        done = sandbox.exec([world.python, "-I", "-c", _SPARED], timeout_s=20)
        after = sandbox.exec("true")
    won = done.ended != "memory" or after.ended == "sandbox_died"
    return won, f"a death after a kill for memory is the command's ({done.ended}, then {after.ended})"


ATTEMPTS: list[Attempt] = [
    _flood(
        "memory in files without names",
        "limit of memory",
        _python(_NAMELESS),
        lambda done, used: done.ended != "memory",
        timeout_s=20,
    ),
    *(
        _flood(
            name, "limit of memory", _python(code), lambda done, used: done.ended != "memory", timeout_s=20
        )
        for name, code in (
            ("memory in System V's segments that nobody has attached", _SEGMENTS),
            ("memory in files without names on their way through sockets", _SENT),
        )
    ),
    _flood(
        "memory in sockets",
        "limit of memory, commands go first",
        _python(_SOCKETS),
        lambda done, used: done.ended != "memory",
        timeout_s=20,
    ),
    _flood(
        "memory in TCP's buffers",
        "limit of memory, or one of its own",
        _python(_TCP),
        lambda done, used: done.ended != "memory" and (not done.ok or int(done.output.split()[0]) > 128),
        timeout_s=20,
    ),
    Attempt("a sandbox that dies of what a command took", "limits", _blamed),
    _flood(
        "stop and kill the supervisor",
        "process 1 of its namespace",
        ["/bin/sh", "-c", "kill -STOP 1; kill -KILL 1; kill -SEGV 1; sleep 0.2"],
        lambda done, used: done.ended != "exited",
    ),
    _flood(
        "limits for the supervisor",
        "seccomp",
        _python(_LIMITED),
        lambda done, used: "limited" in done.output,
    ),
    _flood(
        "a command whose first thread has ended",
        "looks dead and is killed",
        _python(_LEADER),
        lambda done, used: done.ended != "timeout",
    ),
    _flood(
        "fork bomb",
        "limit of processes",
        _python(_BOMB),
        lambda done, used: done.ended != "timeout" or used["processes"] > LIMITS.processes + 100,
    ),
    _flood(
        "threads without end",
        "limit of processes",
        _python(_THREADS),
        lambda done, used: "can't start new thread" not in done.output or int(done.output.split()[0]) > 64,
    ),
    _flood("memory without end", "limit of memory", _python(_MEMORY), _was_killed, timeout_s=20),
    _flood("memory by many processes", "limit of memory", _python(_FORKED), _was_killed, timeout_s=20),
    _flood(
        "disk without end",
        "file system of the limit's size",
        ["/bin/sh", "-c", "dd if=/dev/zero of=/work/flood bs=1M count=100000 2>&1; rm /work/flood"],
        lambda done, used: "No space left" not in done.output or used["memory"] > LIMITS.disk + (256 << 20),
    ),
    _flood(
        "/dev/shm without end",
        "the same file system",
        ["/bin/sh", "-c", "dd if=/dev/zero of=/dev/shm/flood bs=1M count=100000 2>&1; rm /dev/shm/flood"],
        lambda done, used: "No space left" not in done.output,
    ),
    _flood(
        "files without end",
        "limit of inodes",
        _python(_INODES),
        lambda done, used: "No space left" not in done.output,
        timeout_s=20,
    ),
    _flood(
        "open files without end",
        "limit of descriptors",
        _python(_FILES),
        lambda done, used: "Too many open files" not in done.output,
    ),
    _flood(
        "output without end",
        "limit of output",
        ["/usr/bin/yes"],
        lambda done, used: done.ended != "output" or len(done.output) > LIMITS.output,
    ),
    _flood(
        "output from the background",
        "the pipe ends with its command",
        ["/bin/sh", "-c", "yes & sleep 0.2; echo done"],
        lambda done, used: len(done.output) > LIMITS.output,
    ),
    _flood(
        "CPU time of many processes",
        "limit of CPU seconds",
        ["/bin/sh", "-c", _TWO],
        lambda done, used: done.ended != "timeout" or done.seconds > 15,
        limits=replace(LIMITS, cpu_s=1),
        timeout_s=20,
    ),
    _timeout("ignore SIGTERM at the time-out", "trap '' TERM INT HUP; while :; do sleep 1; done"),
    _timeout("a new session at the time-out", "setsid sh -c 'while :; do sleep 1; done' & wait"),
    _outlives("daemon", "setsid sh -c 'sleep 600; : MARK' >/dev/null 2>&1 & sleep 0.2", "PID namespace"),
    _outlives(
        "daemon forked twice",
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 600; : MARK' </dev/null >/dev/null 2>&1 &) ; sleep 0.2",
        "PID namespace",
    ),
]
