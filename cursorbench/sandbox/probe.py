"""A short escape battery, run before a backend is first used on a machine since it started.

Each attempt is made inside a sandbox; what counts is what is seen outside (a listening socket, a file, a
process), and for what has no outside, that the call failed. What a hole would let through does no harm: a
parameter is written as it was, no such file system is mounted, the process that may be killed is our own.
The full battery is `scripts/escape.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cursorbench.errors import SandboxError
from cursorbench.files import write_whole
from cursorbench.sandbox.protocol import Environment, Limits, Sandbox

LIMITS = Limits(memory=256 << 20, processes=32, wall_s=30.0, disk=16 << 20)
_HEAD = """
import ctypes, json, os, socket, sys
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
out = []
PATTERN = "/proc/sys/kernel/core_pattern"
def attempt(name, function):
    try:
        if function():
            out.append(name)
    except (OSError, ValueError, AttributeError):
        pass
def put(path, text):
    with open(path, "w") as file:
        file.write(text)
    return True
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
        client.sendall(given["secret"].encode())
    return True
"""
_ATTEMPTS = """
attempt("reading a file of the host", lambda: given["secret"] in open(given["canary"]).read())
attempt("writing a file of the host", lambda: put(given["canary"], "x"))
attempt("the host's /proc", lambda: given["secret"] in open(f"/proc/{given['victim']}/environ").read())
attempt("signal to a process of the host", lambda: os.kill(given["victim"], 9) is None)
attempt("TCP to the host", lambda: connect(socket.AF_INET, ("127.0.0.1", given["port"])))
attempt("abstract socket of the host", lambda: connect(socket.AF_UNIX, given["abstract"]))
attempt("AF_VSOCK", lambda: socket.socket(40, socket.SOCK_STREAM).close() is None)
attempt("core_pattern", lambda: put(PATTERN, open(PATTERN).read()))
attempt("sysrq", lambda: put("/proc/sysrq-trigger", "h"))
attempt("mount", lambda: libc.mount(b"x", b"/tmp", b"none-such", 0, None) == 0 or ctypes.get_errno() != 1)
attempt("user namespace", lambda: libc.unshare(0x10000000) == 0)
attempt("supervisor's memory", lambda: open("/proc/1/mem", "r+b") is not None)
attempt("ptrace", lambda: libc.ptrace(16, 1, 0, 0) == 0)
attempt("device", lambda: os.mknod("/tmp/device", 0o20600, os.makedev(1, 1)) is None)
attempt("the caller's environment", lambda: given["secret"] in str(os.environ))
attempt("inherited descriptors", lambda: set(os.listdir("/proc/self/fd")) - {"0", "1", "2", "3"} or None)
attempt("capabilities", lambda: "CapEff:\\t0000000000000000" not in open("/proc/self/status").read())
print(json.dumps(out))
"""


@dataclass(frozen=True)
class _Outside:
    given: dict[str, object]
    canary: Path
    victim: subprocess.Popen[bytes]
    listeners: tuple[socket.socket, socket.socket]

    def reached(self) -> Iterator[str]:
        """What outside shows that something got out."""
        if self.canary.read_text("utf-8") != self.given["secret"]:
            yield "a file of the host was changed"
        if self.victim.poll():  # it ends by itself, with 0, where all this took a minute
            yield "a process of the host was killed"
        for listener in self.listeners:
            if self._came_in(listener):
                yield f"a connection reached the host ({listener.family.name})"

    def _came_in(self, listener: socket.socket) -> bool:
        """Whether an attempt's own connection did: others may look for a server that had this port before."""
        secret = str(self.given["secret"]).encode()
        with contextlib.suppress(BlockingIOError):
            while True:
                with listener.accept()[0] as client, contextlib.suppress(OSError):
                    client.setblocking(False)
                    if client.recv(len(secret)) == secret:
                        return True
        return False


@contextlib.contextmanager
def _outside() -> Iterator[_Outside]:
    secret = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        prefix = f"rtrl-sandbox-{os.getpid()}-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        folder.chmod(0o755)
        canary = folder / "canary"
        canary.write_text(secret, encoding="utf-8")
        canary.chmod(0o666)
        (folder / "tree").mkdir()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(f"\0{secret}")
        unix.listen()
        for listener in (tcp, unix):
            listener.setblocking(False)
        victim = subprocess.Popen(["sleep", "60"], env={"SECRET": secret, "PATH": os.defpath})
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        given = {
            "secret": secret,
            "canary": str(canary),
            "victim": victim.pid,
            "port": tcp.getsockname()[1],
            "abstract": f"\0{secret}",
        }
        yield _Outside(given, canary, victim, (tcp, unix))


def run(start: Callable[[Environment, Limits], Sandbox], python: str) -> None:
    """Make every attempt in a sandbox of `start`, whose interpreter inside is `python`.

    Raises SandboxError that names what got out, or says that the battery did not run.
    """
    with _outside() as outside:
        environment = Environment(outside.canary.parent / "tree")
        with start(environment, LIMITS) as sandbox:
            done = sandbox.exec([python, "-I", "-c", _HEAD + _ATTEMPTS, json.dumps(outside.given)])
        try:
            got_out = json.loads(done.output.splitlines()[-1])
        except (ValueError, IndexError) as error:
            text = f"the escape battery did not run in the sandbox: {done.ended}, {done.output[-300:]}"
            raise SandboxError(text, hint="python scripts/escape.py shows each attempt") from error
        got_out += outside.reached()
    if got_out:
        raise SandboxError(
            f"the sandbox does not hold on this machine: {', '.join(got_out)}",
            hint="nothing is run without a sandbox; see docs/sandbox.md",
        )


_NOWHERE = (OSError, RuntimeError)  # the second: neither $HOME nor the system names a home


def cache() -> Path:
    """The file that remembers that the battery was passed, in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "rtrl", "sandbox-probe.json")


def state(version: str) -> str:
    """What the result depends on: this start of the machine, the user, bubblewrap, and this package."""
    total = hashlib.sha256(f"{os.getuid()} {version}".encode())
    total.update(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def remembered(key: str) -> bool:
    """Whether the battery was passed in this state."""
    try:
        return bool(json.loads(cache().read_text("utf-8"))["passed"] == key)
    except (*_NOWHERE, ValueError, KeyError, TypeError):
        return False


def remember(key: str) -> None:
    """Note that it was; where that cannot be written, the next process runs it again."""
    with contextlib.suppress(*_NOWHERE):
        path = cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"passed": key}).encode(), durable=False)
