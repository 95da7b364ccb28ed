"""A real `rtrl serve` on the stub engine, and users who write to it while it is killed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from pathlib import Path

from killsweeps.ledger import Ledger
from killsweeps.processes import Ended, Process
from killsweeps.users import User
from stages.target.endpoint import running_endpoint

READY_S = 90.0
# small segments and often synced, so that every point of the spool is passed within seconds
SMALL = ("--set", "gateway.segment_bytes=16384", "--set", "gateway.fsync_ms=5", "--set", "gateway.port=0")


class DidNotStartError(Exception):
    """`rtrl serve` ended, or was not ready in time. The text says how."""


class Server:
    """`rtrl serve` of one workspace. It can be killed and started again; users find the new address."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._key = ""
        self._url = ""
        self.process: Process | None = None
        self._last: Ended | None = None
        self.said: list[str] = []  # the end of each process's stderr

    def start(self, env: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        """Start it; with `wait`, return when requests are answered.

        Raises:
            DidNotStartError: it ended before that.
        """
        self.process = Process(self.workspace, ["serve", "--json", *SMALL], env)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until requests are answered. Raises DidNotStartError."""
        assert self.process is not None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if not self.process.alive:
                raise DidNotStartError(str(self.ended()))
            endpoint = running_endpoint(self.workspace / "run")
            if endpoint is not None and endpoint.pid == self.process.popen.pid:
                self._key = (self.workspace / "keys" / "default.key").read_text(encoding="utf-8").strip()
                self._url = endpoint.url
                return
            time.sleep(0.02)
        raise DidNotStartError(f"not ready after {READY_S:g} s: {self.process.tail()}")

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def where(self) -> tuple[str, str] | None:
        """Address and key for users; None while it is down."""
        return (self._url, self._key) if self._url and self.alive else None

    def ended(self, timeout: float = 30.0) -> Ended:
        """Wait for the process to end; of one that has ended, how it did."""
        self._url = ""
        if self.process is not None:
            self._last = self.process.ended(timeout)
            self.said.append(" | ".join(self._last.err.strip().splitlines()[-20:]))
            self.process = None
        assert self._last is not None
        return self._last

    def kill(self) -> Ended:
        """SIGKILL, and what it left."""
        assert self.process is not None
        self.process.kill()
        return self.ended()

    def stop(self) -> Ended:
        """SIGTERM, and how it ended."""
        assert self.process is not None
        self.process.terminate()
        return self.ended(60)


class Crowd:
    """Several users at work for the length of a block."""

    def __init__(self, server: Server, ledger: Ledger, *, users: int, seed: int, prefix: str) -> None:
        self._server, self._ledger = server, ledger
        self._before = len(ledger.generations)
        clock = itertools.count(int(time.time()) % 10_000_000)
        self._users = [User(f"{prefix}-{n}", seed, server.where, ledger, clock) for n in range(users)]

    def __enter__(self) -> Crowd:
        for user in self._users:
            user.start()
        return self

    def __exit__(self, *_: object) -> None:
        for user in self._users:
            user.stop()
        for user in self._users:
            user.join(30)

    def wait_for(self, answers: int, timeout: float = 60.0) -> None:
        """Until this many answers were given, the server is dead, or time is up."""
        deadline = time.monotonic() + timeout
        while len(self._ledger.generations) - self._before < answers and time.monotonic() < deadline:
            if not self._server.alive:
                return
            time.sleep(0.02)

    @property
    def refused(self) -> list[str]:
        """Answers a user should never get."""
        return [text for user in self._users for text in user.refused]
