"""One sandbox of a Docker engine: a running container, its files, its snapshots.

Not here: what the container is started with (`docker_options.py`), how one command runs (`docker_exec.py`).
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self

from cursorbench.errors import SandboxError
from cursorbench.sandbox import changes, docker_exec, docker_tree, patch
from cursorbench.sandbox.background import BackgroundProcess, line_of, variables_of
from cursorbench.sandbox.docker_exec import Container, Exec
from cursorbench.sandbox.protocol import Done, Environment, Limits, Process, Sandbox, Snapshot

_COPY_S = 300.0
_READ = '[ -d "$1" ] && exit 21; [ -e "$1" ] || exit 2; [ -f "$1" ] || exit 1; exec head -c "$2" -- "$1"'
_WRITE = (
    'case "$1" in */*) mkdir -p -- "${1%/*}" || exit 5;; esac; '
    '[ ! -e "$1" ] || [ -f "$1" ] || { echo "not a regular file"; exit 1; }; exec cat > "$1"'
)
Open = Callable[[Environment, Limits, Any], Sandbox]


class DockerSnapshot:
    """An archive of the tree, in a temporary file that has no name."""

    def __init__(self, archive: Any) -> None:
        self.archive = archive

    def close(self) -> None:
        """Drop it; forks made from it stand."""
        self.archive.close()


class DockerSandbox:
    """One running container."""

    def __init__(
        self, opened: Open, container: Any, user: str, environment: Environment, limits: Limits
    ) -> None:
        self._open = opened
        self._container = container
        self._running = Container(container.client.api, container.id, user, limits.cpu_s)
        self._environment = environment
        self._limits = limits
        self._alive = True

    def _path(self, path: str) -> str:
        return str(PurePosixPath(self._environment.workdir, path))

    def _start(
        self,
        line: Sequence[str],
        *,
        cwd: str = ".",
        variables: Mapping[str, str] | None = None,
        stdin: bytes | Any = b"",
        limit: int | None = None,
        sink: Any = None,
    ) -> Exec:
        given = variables_of(self._environment, variables)
        return Exec(
            self._running,
            line,
            cwd=self._path(cwd),
            variables=given,
            stdin=stdin,
            limit=self._limits.output if limit is None else limit,
            sink=sink,
        )

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
        import docker

        try:
            running = self._start(line_of(command), cwd=cwd, variables=variables, stdin=stdin)
            return running.wait(self._limits.wall_s if timeout_s is None else timeout_s)
        except (docker.errors.DockerException, OSError) as error:  # the engine or the container is gone
            return Done("sandbox_died", -1, str(error)[:300], 0.0)

    def spawn(self, command: str | Sequence[str], *, cwd: str = ".") -> Process:
        """Start a command in the background."""
        return BackgroundProcess(self._start(line_of(command), cwd=cwd), self._limits.wall_s)

    def read(self, path: str, limit: int = 1 << 20) -> bytes:
        """A file's bytes; the container's own `head` opens it, with a command's rights."""
        with io.BytesIO() as sink:
            line = ["/bin/sh", "-c", _READ, "sh", self._path(path), str(limit + 1)]
            done = self._start(line, limit=limit + 1, sink=sink).wait(docker_exec.SHORT_S)
            content = sink.getvalue()
        if done.status == 2:
            raise FileNotFoundError(2, "No such file or directory", path)
        if done.status == 21:
            raise IsADirectoryError(21, "Is a directory", path)
        if not done.ok:
            raise PermissionError(13, f"cannot be read: {done.output[:200]}", path)
        if len(content) > limit:
            raise ValueError(f"{path} is larger than {limit} bytes")
        return content

    def write(self, path: str, content: bytes) -> None:
        """Put a file, making its folders."""
        line = ["/bin/sh", "-c", _WRITE, "sh", self._path(path)]
        done = self._start(line, stdin=content).wait(docker_exec.SHORT_S)
        if not done.ok:
            raise OSError(5, f"cannot be written: {done.output[:200]}", path)

    def unpack(self, archive: Any) -> None:
        """Fill the working tree. Raises SandboxError when the container cannot."""
        archive.seek(0)
        done = self._start(["tar", "-x", "-f", "-"], stdin=archive).wait(_COPY_S)
        if not done.ok:
            raise SandboxError(f"the tree could not be copied into the container: {done.output[:300]}")

    @contextlib.contextmanager
    def _packed(self) -> Iterator[Any]:
        with tempfile.TemporaryFile() as archive:
            self._pack(archive)
            yield archive

    def _pack(self, archive: Any) -> None:
        limit = self._limits.disk + changes.LARGEST
        line = ["tar", "-c", "-f", "-", "."]
        done = self._start(line, limit=limit, sink=archive).wait(_COPY_S)
        if done.ended == "sandbox_died":
            raise SandboxError(f"the tree could not be copied out of the container: {done.output[:300]}")
        if done.ended == "output":
            raise ValueError(f"the tree is larger than {limit} bytes")
        if done.ended == "timeout" or done.status not in (0, 1):  # 1: a file changed while it was read
            raise ValueError(f"the tree cannot be read: {done.output[:300]}")

    def snapshot(self) -> Snapshot:
        """Freeze the files as they are now."""
        archive = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the snapshot
        try:
            self._pack(archive)
        except BaseException:
            archive.close()
            raise
        return DockerSnapshot(archive)

    def fork(self, snapshot: Snapshot | None = None) -> Sandbox:
        """Another sandbox with the files as they are now, or as they were at `snapshot`."""
        if isinstance(snapshot, DockerSnapshot):
            return self._open(self._environment, self._limits, snapshot.archive)
        with self._packed() as archive:
            return self._open(self._environment, self._limits, archive)

    def diff(self) -> str:
        """What changed against the environment's root. Raises ValueError for more than a patch can hold."""
        with self._packed() as archive:
            return patch.make(docker_tree.changes(self._environment.root, archive), self._environment.root)

    def kill(self) -> None:
        """End everything in it and remove it. Safe to call twice."""
        import docker

        if self._alive:
            self._alive = False
            self._running.killed = True
            with contextlib.suppress(docker.errors.NotFound):
                self._container.remove(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
