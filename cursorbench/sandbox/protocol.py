"""What a sandbox is: commands that a model wrote, run without network and without the host's files.

One sandbox is one working copy of an environment, forked from a prepared one and thrown away. The
backends (`bubblewrap.py`, `docker.py`) do it; harness, builder, graders and trials see only this.
Not here: what is run (`cursorbench/harness/`), what it is worth (`cursorbench/graders/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

Ended = Literal[
    "exited",  # by itself; `status` is its exit status, negative for a signal
    "timeout",  # wall time was over
    "memory",  # killed for memory
    "output",  # wrote more than the limit; what came before is kept
    "sandbox_died",  # infrastructure: no grade can be drawn from it
]


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use, all its processes together unless said.

    Attributes:
        memory: bytes.
        processes: processes and threads alive at once.
        cpu_s: CPU seconds of one command.
        wall_s: seconds of one command, where the caller names no time-out.
        output: bytes kept of one command's output; the command ends when it writes more.
        disk: bytes written over the sandbox's life.
    """

    memory: int = 2 << 30
    processes: int = 256
    cpu_s: float = 600.0
    wall_s: float = 600.0
    output: int = 1 << 20
    disk: int = 1 << 30


@dataclass(frozen=True)
class Environment:
    """What a sandbox is made from; nothing in it is changed by a sandbox.

    Attributes:
        root: folder that becomes the writable working tree, copied on write.
        mounts: further host folders by their place inside, read-only (interpreters, packages).
        variables: the whole environment of commands, besides HOME, PATH, TMPDIR and LANG.
        image: for container backends, the image in place of the host's /usr.
        workdir: where `root` stands inside.
        covered: folders inside that stand empty, whatever `mounts` or the host's /usr have there.
    """

    root: Path
    mounts: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    workdir: str = "/work"
    covered: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """A command that ended. `output` is standard output and error as they came, UTF-8 with replacement."""

    ended: Ended
    status: int
    output: str
    seconds: float
    cut: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.ended == "exited" and self.status == 0


class Process(Protocol):
    """A command in the background; dies with its sandbox."""

    def poll(self) -> Done | None:
        """How it ended, None while it runs."""

    def wait(self, timeout_s: float) -> Done:
        """Wait for it; kills it when the time is over."""

    def kill(self) -> None:
        """End it and what it started."""


class Snapshot(Protocol):
    """The state of a sandbox's files at one moment; forks start from it. Kept until closed."""

    def close(self) -> None:
        """Drop it; forks made from it stand."""


class Sandbox(Protocol):
    """One running sandbox. All paths are relative to the working tree, or absolute inside."""

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

    def spawn(self, command: str | Sequence[str], *, cwd: str = ".") -> Process:
        """Start a command in the background."""

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """A file's bytes. Raises FileNotFoundError, IsADirectoryError, or ValueError when it is larger."""

    def write(self, path: str, content: bytes) -> None:
        """Put a file, making its folders. Raises OSError (disk limit, or a path that cannot be)."""

    def snapshot(self) -> Snapshot:
        """Freeze the files as they are now."""

    def fork(self, snapshot: Snapshot | None = None) -> Sandbox:
        """Another sandbox with the files as they are now, or as they were at `snapshot`."""

    def diff(self) -> str:
        """What changed against the environment's root, a patch that `git apply --binary` takes."""

    def kill(self) -> None:
        """End everything in it and remove it. Safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Backend(Protocol):
    """A way to make sandboxes on this machine."""

    @property
    def name(self) -> str:
        """`bubblewrap` or `docker`; part of the digest under which results are comparable."""

    def probe(self) -> None:
        """Run the escape battery once on this machine. Raises SandboxError when anything got out."""

    def describe(self) -> dict[str, str]:
        """How `trees` are made and `limits` held here, for people. Raises SandboxError as `start`."""

    def start(self, environment: Environment, limits: Limits | None = None) -> Sandbox:
        """A fresh sandbox. Raises SandboxError when it cannot be made: infrastructure, never a grade."""
