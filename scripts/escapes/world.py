"""What an escape would reach: things on this machine that a sandbox must not touch, and attempts on them.

Everything carries one random secret. An attempt has succeeded when the secret is in what it printed, when it
printed ESCAPED, or when something outside was touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cursorbench.sandbox.link import supervisor_python
from cursorbench.sandbox.protocol import Backend, Environment, Limits

ESCAPED = "ESCAPED"
PYTHON = "PYTHON-INSIDE"  # in commands, for the interpreter that the backend has
LIMITS = Limits(memory=256 << 20, processes=64, cpu_s=20, wall_s=30, output=1 << 16, disk=32 << 20)
_IPC_CREAT, _IPC_RMID = 0o1000, 0
_ADD_KEY, _KEYCTL = {"x86_64": (248, 250)}.get(os.uname().machine, (217, 219))
_SESSION_KEYRING, _KEYCTL_UNLINK = -3, 9
_HEAD = """
import ctypes, fcntl, json, mmap, os, signal, socket, struct, subprocess, sys, time
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
try:
    pass
"""
_TAIL = """
except BaseException as error:
    print(f"{type(error).__name__}: {error}")
"""


@dataclass(frozen=True)
class Result:
    """How one attempt went; `control` says whether it succeeds without a sandbox, None when not tried."""

    name: str
    group: str
    succeeded: bool
    stopped_by: str
    control: bool | None = None


@dataclass(frozen=True)
class Attempt:
    """One attempt. `run` returns whether it succeeded, and what stopped it."""

    name: str
    group: str
    run: Callable[[World], tuple[bool, str]]
    control: Callable[[World], bool] | None = None

    def make(self, world: World) -> Result:
        """Try it without a sandbox where that does no harm, then within one."""
        control = None if self.control is None else self.control(world)
        world.mend()
        succeeded, stopped_by = self.run(world)
        world.mend()
        return Result(self.name, self.group, succeeded, stopped_by, control)


@dataclass
class World:
    """The machine's side. `folder` is open to everybody; only the sandbox keeps a command out of it."""

    backend: Backend
    python: str
    folder: Path
    secret: str
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    unix: socket.socket
    shared: int = -1
    key: int = -1
    victim: subprocess.Popen[bytes] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def canary(self) -> Path:
        """A file with the secret."""
        return self.folder / "canary"

    @property
    def environment(self) -> Environment:
        """A small tree."""
        return Environment(self.folder / "tree")

    def given(self) -> dict[str, Any]:
        """What an attempt may know of the machine: everything but the secret."""
        assert self.victim is not None
        return {
            "canary": str(self.canary),
            "folder": str(self.folder),
            "victim": self.victim.pid,
            "port": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": self.abstract.getsockname().decode(),
            "unix": self.unix.getsockname(),
            "address": host_address(),
            "shared": self.shared,
            "home": str(Path.home()),
            "core_pattern": Path("/proc/sys/kernel/core_pattern").read_text("utf-8"),
        }

    def end_victim(self) -> None:
        """The process that attempts aim at is no more."""
        if self.victim is not None:
            self.victim.kill()
            self.victim.wait()

    def mend(self) -> None:
        """Put everything back as it was before an attempt."""
        for _ in self.touched():
            pass
        self.canary.unlink(missing_ok=True)
        self.canary.write_text(self.secret, encoding="utf-8")
        self.canary.chmod(0o666)
        if self.victim is None or self.victim.poll() is not None:
            self.victim = subprocess.Popen(["sleep", "600"], env={"SECRET": self.secret, "PATH": os.defpath})
        for path in (self.folder / "made", self.folder / "made-2"):
            path.unlink(missing_ok=True)

    def touched(self) -> Iterator[str]:
        """What outside shows that something got out."""
        for listener in (self.tcp, self.abstract, self.unix):
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                yield "a connection"
        with contextlib.suppress(BlockingIOError):
            self.udp.recv(100)
            yield "a datagram"
        with contextlib.suppress(OSError):
            if self.canary.read_text("utf-8") != self.secret:
                yield "a changed file"
        if not self.canary.exists():
            yield "a deleted file"
        if (self.folder / "made").exists() or (self.folder / "made-2").exists():
            yield "a new file"
        if self.victim is not None and self.victim.poll() is not None:
            yield "a killed process"
        if self.victim is not None and _state(self.victim.pid) in "Tt":
            self.victim.send_signal(signal.SIGCONT)
            yield "a stopped process"

    def judge(self, output: str) -> bool:
        """Whether an attempt that printed this has succeeded."""
        return self.secret in output or ESCAPED in output or any(list(self.touched()))

    def inside(self, code: str, limits: Limits = LIMITS) -> tuple[bool, str]:
        """Run Python in a fresh sandbox; whether it escaped, and the last line it printed."""
        with self.backend.start(self.environment, limits) as sandbox:
            line = [self.python, "-I", "-c", script(code), json.dumps(self.given())]
            done = sandbox.exec(line, timeout_s=20)
        said = (done.output.strip() or done.ended).splitlines()[-1][:120]
        return self.judge(done.output), said

    def outside(self, code: str) -> bool:
        """Run the same Python without a sandbox."""
        line = [sys.executable, "-I", "-c", script(code), json.dumps(self.given())]
        variables = {**os.environ, "RTRL_SECRET": self.secret}
        done = subprocess.run(line, capture_output=True, timeout=60, check=False, env=variables)
        return self.judge(done.stdout.decode("utf-8", "replace"))


def script(code: str) -> str:
    """A whole program of an attempt's lines."""
    return _HEAD + "".join(f"    {line}\n" for line in code.strip().splitlines()) + _TAIL


def attempt(name: str, group: str, wall: str, code: str, *, control: bool = True) -> Attempt:
    """An attempt that is Python, the same inside and outside; `wall` names what should stop it."""

    def run(world: World) -> tuple[bool, str]:
        succeeded, said = world.inside(code)
        return succeeded, f"{wall} ({said})"

    def without(world: World) -> bool:
        return world.outside(code)

    return Attempt(name, group, run, without if control else None)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def host_address() -> str:
    """An address of this machine that is not its loopback's, else the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def make(start: Callable[[], Backend]) -> Iterator[World]:
    """The canaries, then a backend of `start`, which so could inherit what there is to inherit."""
    secret = secrets.token_hex(16)
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        prefix = f"rtrl-sandbox-{os.getpid()}-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        folder.chmod(0o777)
        (folder / "tree").mkdir()
        (folder / "tree" / "file.txt").write_text("text\n", encoding="utf-8")
        os.environ["RTRL_SECRET"] = secret
        stack.callback(os.environ.pop, "RTRL_SECRET")
        descriptor = os.open(folder, os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        stack.callback(os.close, descriptor)
        shm = Path("/dev/shm", f"rtrl-canary-{os.getpid()}")
        shm.write_text(secret, encoding="utf-8")
        stack.callback(shm.unlink)
        tcp = stack.enter_context(socket.create_server(("", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        abstract.bind(f"\0rtrl-{secrets.token_hex(8)}")
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        for listener in (abstract, unix):
            listener.listen()
        for listener in (tcp, udp, abstract, unix):
            listener.setblocking(False)
        shared = libc.shmget(0x72746C, 4096, _IPC_CREAT | 0o666)
        libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(libc.shmat(shared, None, 0), secret.encode(), len(secret))
        stack.callback(libc.shmctl, shared, _IPC_RMID, None)
        key = libc.syscall(_ADD_KEY, b"user", b"rtrl-canary", secret.encode(), len(secret), _SESSION_KEYRING)
        stack.callback(libc.syscall, _KEYCTL, _KEYCTL_UNLINK, key, _SESSION_KEYRING)
        backend = start()
        python = supervisor_python()[0] if backend.name == "bubblewrap" else "python3"
        world = World(backend, python, folder, secret, tcp, udp, abstract, unix, shared, key)
        world.mend()
        stack.callback(world.end_victim)
        yield world
