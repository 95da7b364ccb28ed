"""Tells a service manager how it goes: systemd's readiness protocol (sd_notify(3)).

A message is one datagram of `NAME=value` lines to the Unix socket in NOTIFY_SOCKET; systemd documents
exactly that for programs that want no library for it. (The two small libraries on PyPI send no
MONOTONIC_USEC and no EXTEND_TIMEOUT_USEC, and swallow every error.) Without NOTIFY_SOCKET all calls do
nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import MutableMapping

from stages.gateway import logs


class Notifier:
    """One service manager, or none.

    Args:
        address: of its socket; `@...` is an abstract one; "" for no manager.
        watchdog_s: it wants a sign of life that often; 0 for none.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """As the manager said. The variables are removed: the engine is not to speak to it."""
        address = environ.pop("NOTIFY_SOCKET", "")
        microseconds = environ.pop("WATCHDOG_USEC", "0")
        pid = environ.pop("WATCHDOG_PID", "")
        ours = pid in ("", str(os.getpid())) and microseconds.isdigit()
        return cls(address, int(microseconds) / 1e6 if ours else 0.0)

    def ready(self, status: str) -> None:
        """It serves (also: again, after `reloading`)."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self, status: str) -> None:
        """What is served changes; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", f"STATUS={status}")

    def stopping(self, status: str, within_s: float) -> None:
        """It ends, and may take so long for it."""
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(within_s * 1e6)}", f"STATUS={status}")

    def starting(self, status: str, within_s: float) -> None:
        """It starts, and may take so long for it."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(within_s * 1e6)}", f"STATUS={status}")

    def status(self, text: str) -> None:
        """One line for people who ask the manager."""
        self._send(f"STATUS={text}")

    async def keep_alive(self) -> None:
        """Send signs of life, twice as often as wanted, until cancelled: the event loop turns."""
        while self.watchdog_s:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        message = "\n".join(line.replace("\n", " ") for line in lines).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(message, self._address)
        except OSError as error:  # a manager that is gone or busy is no reason not to serve
            logs.event("notify_failed", error=error.strerror or type(error).__name__)
