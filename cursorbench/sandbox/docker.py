"""Sandboxes by a Docker engine, for machines without bubblewrap or environments that are images.

A container without network, capabilities or writable root; the working tree, home and /tmp are tmpfs of the
disk limit. Commands are execs of the engine, 50 ms and more each. The image needs `sh`, `tar`, `cat`,
`head` and `kill` in /bin or /usr/bin. The SDK is optional: `pip install rtrl[docker]`.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Self

from cursorbench.errors import SandboxError
from cursorbench.sandbox import changes, docker_exec, docker_tree, patch, probe
from cursorbench.sandbox.background import BackgroundProcess, line_of, variables_of
from cursorbench.sandbox.docker_exec import Exec
from cursorbench.sandbox.protocol import Done, Environment, Limits, Process, Sandbox, Snapshot

IMAGE = "python:3.11-slim-bookworm"  # where an environment names none
USER = "1000:1000"
LABEL = "rtrl-sandbox"
HINT = "start a Docker engine and `pip install rtrl[docker]`, or install bubblewrap"
_COPY_S = 300.0
_READ = '[ -d "$1" ] && exit 21; [ -e "$1" ] || exit 2; [ -f "$1" ] || exit 1; exec head -c "$2" -- "$1"'
_WRITE = 'case "$1" in */*) mkdir -p -- "${1%/*}" || exit 5;; esac; exec cat > "$1"'


def engine() -> Any:
    """The SDK's client of the engine that the environment names. Raises SandboxError without one."""
    try:
        import docker
    except ImportError as error:
        raise SandboxError("the Docker SDK is not installed", hint=HINT) from error
    try:
        client = docker.from_env()
        client.ping()
    except docker.errors.DockerException as error:
        raise SandboxError(f"no Docker engine answers: {error}", hint=HINT) from error
    return client


class Docker:
    """The container backend. Raises SandboxError when no engine answers."""

    name = "docker"

    def __init__(self) -> None:
        self._client = engine()
        self._sweep()

    def _sweep(self) -> None:
        """Remove containers of callers on this machine that are no more."""
        for container in self._client.containers.list(all=True, filters={"label": LABEL}):
            host, _, pid = container.labels[LABEL].rpartition("/")
            if host == os.uname().nodename and not Path("/proc", pid).exists():
                container.remove(force=True)

    def probe(self) -> None:
        """Run the escape battery once on this machine. Raises SandboxError when anything got out."""
        key = probe.state(f"docker {self._client.version()['Version']}")
        if not probe.remembered(key):
            probe.run(self.start, "python3")
            probe.remember(key)

    def describe(self) -> dict[str, str]:
        """How trees are made and limits held here, for people. Raises SandboxError when no engine answers."""
        return {"trees": "images", "limits": f"those of Docker {self._client.version()['Version']}"}

    def start(self, environment: Environment, limits: Limits | None = None) -> Sandbox:
        """A fresh sandbox. Raises SandboxError when it cannot be made."""
        with tempfile.TemporaryFile() as archive:
            docker_tree.pack(environment.root, archive)
            return self.open(environment, limits or Limits(), archive)

    def open(self, environment: Environment, limits: Limits, archive: Any) -> DockerSandbox:
        """A sandbox with the tree of an archive."""
        import docker

        size = f"size={limits.disk},uid=1000,gid=1000"
        mounts = {str(path): {"bind": inside, "mode": "ro"} for inside, path in environment.mounts.items()}
        try:
            container = self._client.containers.run(
                environment.image or IMAGE,
                entrypoint=["/bin/sh", "-c", "while :; do sleep 3600; done"],
                detach=True,
                init=True,  # reaps what commands leave behind
                network_mode="none",
                read_only=True,
                tmpfs={
                    environment.workdir: f"rw,exec,nosuid,nodev,mode=755,{size}",
                    "/tmp": f"rw,exec,nosuid,nodev,mode=1777,{size}",
                    "/home/sandbox": f"rw,exec,nosuid,nodev,mode=755,{size}",
                },
                volumes=mounts,
                user=USER,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                mem_limit=limits.memory + limits.disk,
                memswap_limit=limits.memory + limits.disk,
                pids_limit=limits.processes + 4,
                ulimits=[docker.types.Ulimit(name="core", soft=0, hard=0)],
                ipc_mode="private",
                hostname="sandbox",
                labels={LABEL: f"{os.uname().nodename}/{os.getpid()}"},
            )
        except docker.errors.DockerException as error:
            raise SandboxError(f"no container could be started: {error}", hint=HINT) from error
        sandbox = DockerSandbox(self, self._client, container, environment, limits)
        try:
            sandbox.unpack(archive)
        except BaseException:
            sandbox.kill()
            raise
        return sandbox


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
        self, backend: Docker, client: Any, container: Any, environment: Environment, limits: Limits
    ) -> None:
        self._backend = backend
        self._client = client
        self._container = container
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
        keep = self._limits.output if limit is None else limit
        place = self._path(cwd)
        return Exec(self._client.api, self._container.id, line, place, given, stdin, keep, sink)

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
        except docker.errors.DockerException as error:  # the engine or the container is gone
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
        if done.ended == "output":
            raise ValueError(f"the tree is larger than {limit} bytes")
        if done.status not in (0, 1):  # 1: a file changed while it was read
            raise SandboxError(f"the tree could not be copied out of the container: {done.output[:300]}")

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
            return self._backend.open(self._environment, self._limits, snapshot.archive)
        with self._packed() as archive:
            return self._backend.open(self._environment, self._limits, archive)

    def diff(self) -> str:
        """What changed against the environment's root. Raises ValueError for more than a patch can hold."""
        with self._packed() as archive:
            return patch.make(docker_tree.changes(self._environment.root, archive), self._environment.root)

    def kill(self) -> None:
        """End everything in it and remove it. Safe to call twice."""
        import docker

        if self._alive:
            self._alive = False
            with contextlib.suppress(docker.errors.NotFound):
                self._container.remove(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
