"""A port of the loopback that is free, and stays so until whoever asked for it listens there.

Not here: what is asked of an engine at its port (`port.py`).
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from stages.errors import DependencyDownError

HOST = "127.0.0.1"


class HeldPort(int):
    """A port's number. As long as this object lives `free_port` gives the port to nobody else on the machine.

    It is bound here too, and not listened on: a server that sets SO_REUSEADDR, as vLLM and uvicorn do, binds
    it all the same, as often as it is started. (`getaddrinfo` wants the plain `int`.)
    """

    _bound: socket.socket

    @classmethod
    def of(cls, bound: socket.socket) -> HeldPort:
        """The port that `bound` is bound to, without SO_REUSEADDR so far."""
        made = cls(bound.getsockname()[1])
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made._bound = bound
        return made

    def __del__(self) -> None:
        self._bound.close()


def free_port() -> HeldPort:
    """A loopback port nobody uses at this moment, and that no outgoing connection will take: keep it.

    The engine binds it seconds later, and again when it is started anew. The kernel gives ports of its own
    range to outgoing connections, so one below that range is taken, where there is one.
    """
    lowest = first_ephemeral_port()
    for _ in range(100):
        port = secrets.choice(range(lowest // 2, lowest)) if lowest >= 4096 else 0
        probe = socket.socket()
        try:
            probe.bind((HOST, port))
            return HeldPort.of(probe)
        except OSError:
            probe.close()
    raise DependencyDownError("no free port was found", hint="set engine.port to a free port")


def first_ephemeral_port() -> int:
    """Where the kernel's range for outgoing connections begins; 0 where it does not tell."""
    try:
        told = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return int(told.split()[0])
    except (OSError, ValueError, IndexError):
        return 0
