"""What every backend's sandboxes have alike: a command in the background, its variables, how it is said.

Not here: how a backend runs a command.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from cursorbench.sandbox.protocol import Done, Ended, Environment

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Running(Protocol):
    """A command of a backend that has begun."""

    def wait(self, timeout_s: float) -> Done:
        """Take its output to its end; kills it when the time is over."""

    def kill(self, reason: Ended) -> None:
        """End it and what it started."""


class BackgroundProcess:
    """A spawned command; a thread takes its output, so that it never waits for a reader."""

    def __init__(self, command: Running, limit_s: float) -> None:
        self._command = command
        self._done: Done | None = None
        self._thread = threading.Thread(target=self._run, args=(limit_s,), daemon=True)
        self._thread.start()

    def _run(self, limit_s: float) -> None:
        self._done = self._command.wait(limit_s)

    def poll(self) -> Done | None:
        """How it ended, None while it runs."""
        return self._done

    def wait(self, timeout_s: float) -> Done:
        """Wait for it; kills it when the time is over."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._command.kill("timeout")
            self._thread.join()
        assert self._done is not None
        return self._done

    def kill(self) -> None:
        """End it and what it started."""
        self._command.kill("exited")


def line_of(command: str | Sequence[str]) -> list[str]:
    """The command as a list; a text goes to `sh -c`."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def variables_of(environment: Environment, more: Mapping[str, str] | None) -> dict[str, str]:
    """The whole environment of a command."""
    usual = {"HOME": "/home/sandbox", "PATH": PATH, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
    return {**usual, **environment.variables, **(more or {})}
