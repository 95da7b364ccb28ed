"""Sandboxes by a Docker engine, for machines without bubblewrap or environments that are images.

A container without network, capabilities or writable root; the working tree, home and /tmp are tmpfs.
Commands are execs of the engine, 50 ms and more each. The image needs `sh`, `tar`, `cat`, `head`, `chmod`
and `kill` in /bin or /usr/bin, and python3 for the escape battery. The SDK is optional:
`pip install rtrl[docker]`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from cursorbench.errors import SandboxError
from cursorbench.sandbox import docker_options, docker_tree, probe
from cursorbench.sandbox.docker_exec import KILLER
from cursorbench.sandbox.docker_options import LABEL
from cursorbench.sandbox.docker_sandbox import DockerSandbox
from cursorbench.sandbox.protocol import Environment, Limits, Sandbox

IMAGES = ("rtrl-sandbox", "python:3.11-slim-bookworm")  # where an environment names none: the first there is
HINT = "start a Docker engine and `pip install rtrl[docker]`, or install bubblewrap"
IMAGE_HINT = "docs/sandbox.md: how to make the image rtrl-sandbox, also without a registry"


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
        self._image = self._usual_image()
        self._sweep()

    def _usual_image(self) -> str:
        """The id of the image for environments that name none; only what is not there is pulled."""
        import docker

        for name in IMAGES:
            with contextlib.suppress(docker.errors.ImageNotFound):
                return str(self._client.images.get(name).id)
        try:
            return str(self._client.images.pull(IMAGES[-1]).id)
        except docker.errors.DockerException as error:
            text = f"the engine has no image {IMAGES[0]} and cannot pull {IMAGES[-1]}: {error}"
            raise SandboxError(text, hint=IMAGE_HINT) from error

    def _sweep(self) -> None:
        """Remove containers of callers on this machine that are no more."""
        import docker

        every = self._client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
        for container in every:
            host, _, pid = container.labels[LABEL].rpartition("/")
            if host == os.uname().nodename and not Path("/proc", pid).exists():
                try:
                    container.remove(force=True)
                except docker.errors.APIError as error:
                    if error.status_code not in (404, 409):  # another caller sweeps too: gone, or going
                        raise

    def made_here(self) -> list[str]:
        """Ids of this process's containers that are there."""
        label = f"{LABEL}={docker_options.label()}"
        found = self._client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return [str(container.id) for container in found]

    def probe(self) -> None:
        """Run the escape battery once on this machine. Raises SandboxError when anything got out."""
        key = probe.state(f"docker {self._client.version()['Version']} {self._image}")
        if not probe.remembered(key):
            probe.run(self.start, "python3")
            probe.remember(key)

    def describe(self) -> dict[str, str]:
        """How trees are made and limits held here, for people. Raises SandboxError when no engine answers."""
        version = self._client.version()["Version"]
        return {"trees": "copies", "limits": f"those of Docker {version}", "image": self._image}

    def start(self, environment: Environment, limits: Limits | None = None) -> Sandbox:
        """A fresh sandbox. Raises SandboxError when it cannot be made."""
        with tempfile.TemporaryFile() as archive:
            docker_tree.pack(environment.root, archive)
            return self.open(environment, limits or Limits(), archive)

    def open(self, environment: Environment, limits: Limits, archive: Any) -> DockerSandbox:
        """A sandbox with the tree of an archive."""
        import docker

        user = docker_options.new_user()
        options = docker_options.options(environment, limits, user)
        try:
            container = self._client.containers.run(environment.image or self._image, **options)
        except docker.errors.DockerException as error:
            raise SandboxError(f"no container could be started: {error}", hint=HINT) from error
        sandbox = DockerSandbox(self.open, container, user, environment, limits)
        try:
            if hidden := docker_options.hidden(environment):  # the engine gives them the image's own mode
                container.exec_run(["chmod", "755", *hidden], user=KILLER)
            sandbox.unpack(archive)
        except BaseException:
            sandbox.kill()
            raise
        return sandbox
