"""Sandboxes on this machine by bubblewrap; what they protect against is in docs/sandbox.md.

A keeper process (`keeper.py`) makes and removes them; commands go straight to the supervisor inside
(`supervisor.py`). Both end with this process, however it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import shutil
import socket
import subprocess
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cursorbench.errors import SandboxError
from cursorbench.sandbox import changes, patch, probe
from cursorbench.sandbox.background import BackgroundProcess, line_of, variables_of
from cursorbench.sandbox.boxes import PYTHON
from cursorbench.sandbox.channel import LARGEST_REQUEST, Channel, Command
from cursorbench.sandbox.cover import packages, to_cover
from cursorbench.sandbox.link import HINT, START_S, KeeperLink, close, supervisor_python
from cursorbench.sandbox.protocol import Done, Environment, Limits, Process, Sandbox, Snapshot

_passed: set[str] = set()  # states in which this process knows that the battery is passed


class Bubblewrap:
    """The local backend. Raises SandboxError when there is no bwrap.

    `overlay=False` copies every tree, as is done anyway where no overlay can be mounted.
    """

    name = "bubblewrap"

    def __init__(self, bwrap: str = "", *, overlay: bool = True) -> None:
        self._overlay = overlay
        self._bwrap = bwrap or shutil.which("bwrap") or ""
        if not self._bwrap:
            raise SandboxError("bubblewrap is not installed", hint=HINT)
        self._lock = threading.Lock()
        self._link: KeeperLink | None = None

    def link(self) -> KeeperLink:
        """The keeper; after a fork of the caller a new one, and when it was killed: its sandboxes are gone,
        those to come need not be."""
        with self._lock:
            if self._link is not None and self._link.owner == os.getpid() and not self._link.alive():
                close(self._link)
                self._link = None
            if self._link is None or self._link.owner != os.getpid():
                self._link = KeeperLink()
                weakref.finalize(self, close, self._link)
                atexit.register(close, self._link)
            return self._link

    def close(self) -> None:
        """End all sandboxes of this backend."""
        with self._lock:
            if self._link is not None:
                close(self._link)
                self._link = None

    def probe(self) -> None:
        """Run the escape battery once on this machine. Raises SandboxError when anything got out."""
        version = subprocess.run([self._bwrap, "--version"], capture_output=True, text=True, check=False)
        key = probe.state(f"{self._bwrap} {version.stdout}")
        if key not in _passed and not probe.remembered(key):
            probe.run(self.start, supervisor_python()[0])
            probe.remember(key)
        _passed.add(key)

    def describe(self) -> dict[str, str]:
        """How trees are made and limits held here, for people. Raises SandboxError as `start`."""
        answer, _ = self.link().ask({"op": "describe"})
        return {
            "trees": answer["trees"] if self._overlay else "copies (asked for)",
            "limits": answer["limits"],
        }

    def start(self, environment: Environment, limits: Limits | None = None) -> Sandbox:
        """A fresh sandbox. Raises SandboxError when it cannot be made."""
        return self.open(environment, limits or Limits(), [])

    def open(self, environment: Environment, limits: Limits, layers: list[int]) -> BubblewrapSandbox:
        """A sandbox over the environment and frozen layers of this backend, the uppermost first."""
        python, prefix = supervisor_python()
        mounts, covered = dict(environment.mounts), to_cover(environment, system=True)
        if prefix:
            mounts[PYTHON] = Path(prefix)
            covered += [f"{PYTHON}/{path}" for path in packages(Path(prefix))]
        request = {
            "op": "start",
            "bwrap": self._bwrap,
            "python": python,
            "root": _real(environment.root),
            "mounts": {inside: _real(path) for inside, path in mounts.items()},
            "covered": covered,
            "workdir": environment.workdir,
            "layers": layers,
            "overlay": self._overlay,
            "memory": limits.memory,
            "processes": limits.processes,
            "disk": limits.disk,
            "inodes": max(10_000, limits.disk >> 12),
        }
        link = self.link()
        answer, received = link.ask(request)
        return BubblewrapSandbox(self, link, environment, limits, answer, received)


def _real(path: Path) -> str:
    try:
        return str(path.resolve(strict=True))
    except OSError as error:
        raise SandboxError(f"the environment has no {path}: {error.strerror}") from error


class BubblewrapSnapshot:
    """A frozen layer in the keeper."""

    def __init__(self, link: KeeperLink, layer: int) -> None:
        self._link = link
        self.layer = layer

    def close(self) -> None:
        """Drop it; forks made from it stand."""
        if self.layer:
            self._link.ask({"op": "drop", "layer": self.layer})
            self.layer = 0


class BubblewrapSandbox:
    """One running sandbox."""

    def __init__(
        self,
        backend: Bubblewrap,
        link: KeeperLink,
        environment: Environment,
        limits: Limits,
        answer: Mapping[str, Any],
        fds: list[int],
    ) -> None:
        self._backend = backend
        self._link = link
        self._environment = environment
        self._limits = limits
        self._number: int = answer["box"]
        self._channel = Channel(socket.socket(fileno=fds[0]), self._memory_at, fds[1] if fds[1:] else -1)
        self._alive = True
        self._channel.control.settimeout(START_S)
        try:
            ready = self._channel.control.recv(64)
        except OSError as error:
            ready = str(error).encode()
        self._channel.control.settimeout(None)
        if ready != b"ready":
            raise SandboxError(f"the sandbox did not start: {self._end() or ready.decode()}", hint=HINT)

    def _memory_at(self) -> float:
        """When something in it was last killed for memory, on the monotonic clock."""
        try:
            answer, _ = self._link.ask({"op": "look", "box": self._number})
        except SandboxError:
            return float("-inf")
        return float(answer["memory_at"])

    def _path(self, path: str) -> str:
        return os.path.join(self._environment.workdir, path)  # noqa: PTH118  # a place inside

    def _command(
        self,
        command: str | Sequence[str],
        cwd: str,
        variables: Mapping[str, str] | None,
        stdin: bytes,
    ) -> Command | str:
        line, given = line_of(command), variables_of(self._environment, variables)
        cpu_s = math.ceil(self._limits.cpu_s)
        texts = [
            self._path(cwd),
            str(cpu_s),
            str(len(line)),
            *line,
            *(f"{key}={value}" for key, value in given.items()),
        ]
        parts = [b"run", *(text.encode("utf-8", "surrogateescape") for text in texts)]
        if any(b"\0" in part for part in parts):
            return "sandbox: a NUL byte in the command"
        if sum(map(len, parts)) + len(parts) > LARGEST_REQUEST:
            return "sandbox: the command is too long"
        return Command(self._channel, parts, stdin, self._limits.output, self._limits.cpu_s)

    def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        cwd: str = ".",
        variables: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Done:
        """Run a command to its end; a text goes to `sh -c`. Never raises for what the command did."""
        if not self._alive:
            return Done("sandbox_died", -1, "", 0.0)
        running = self._command(command, cwd, variables, stdin)
        if isinstance(running, str):
            return Done("exited", 126, running, 0.0)
        return running.wait(self._limits.wall_s if timeout_s is None else timeout_s)

    def spawn(self, command: str | Sequence[str], *, cwd: str = ".") -> Process:
        """Start a command in the background."""
        running = self._command(command, cwd, None, b"")
        if isinstance(running, str):
            raise ValueError(running)
        return BackgroundProcess(running, self._limits.wall_s)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """A file's bytes."""
        fd = self._channel.file(b"read", self._path(path))
        with os.fdopen(fd, "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"{path} is larger than {limit} bytes")
        return content

    def write(self, path: str, content: bytes) -> None:
        """Put a file, making its folders."""
        fd = self._channel.file(b"write", self._path(path))
        with os.fdopen(fd, "wb") as file:
            file.write(content)

    def snapshot(self) -> Snapshot:
        """Freeze the files as they are now."""
        answer, _ = self._link.ask({"op": "snapshot", "box": self._number})
        if "too_large" in answer:
            self._link.ask({"op": "drop", "layer": answer["layer"]})
            raise ValueError(answer["too_large"])
        return BubblewrapSnapshot(self._link, answer["layer"])

    def fork(self, snapshot: Snapshot | None = None) -> Sandbox:
        """Another sandbox with the files as they are now, or as they were at `snapshot`."""
        own = snapshot is None
        frozen = self.snapshot() if snapshot is None else snapshot
        assert isinstance(frozen, BubblewrapSnapshot)
        try:
            return self._backend.open(self._environment, self._limits, [frozen.layer])
        finally:
            if own:
                frozen.close()

    def diff(self) -> str:
        """What changed against the environment's root. Raises ValueError for more than a patch can hold."""
        source, out = os.pipe()
        try:
            self._link.ask({"op": "changes", "box": self._number}, (out,))
        finally:
            os.close(out)
            reader = os.fdopen(source, "rb")
        with reader:
            try:
                found = changes.read(reader)
            except OSError as error:
                raise SandboxError(f"what the sandbox changed cannot be read: {error}") from error
        return patch.make(found, self._environment.root)

    def kill(self) -> None:
        """End everything in it and remove it. Safe to call twice."""
        if self._alive:
            self._end()

    def _end(self) -> str:
        """What bubblewrap has written is returned."""
        self._alive = False
        self._channel.close()
        with contextlib.suppress(SandboxError):
            return str(self._link.ask({"op": "kill", "box": self._number})[0].get("said", ""))
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
