"""The gateway's listeners: uvicorn with a bound on headers, public and admin in one event loop.

Not for: starting the engine, or writing `run/serve.json` (`stages/serve.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stages.errors import UsageError
from stages.gateway.config import GatewayConfig
from stages.gateway.http import App

# Beyond what the application checks and answers with 431: here the connection is cut, so that a
# client that never stops sending headers does not fill the memory.
_HEADER_SLACK = 4
_MAX_HEADERS = 500


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself collects headers without end."""

    limit = 32 * 1024 * _HEADER_SLACK

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.access_log = False  # also where the root logger has handlers

    def on_message_begin(self) -> None:
        """A new request on this connection."""
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limit or len(self.headers) > _MAX_HEADERS:
            self.transport.abort()


class Listener:
    """One uvicorn server inside a running event loop; leaves signals to its owner."""

    def __init__(self, app: App, sockets: list[socket.socket], config: GatewayConfig) -> None:
        protocol = type("Protocol", (BoundedProtocol,), {"limit": config.max_header_bytes * _HEADER_SLACK})
        settings = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            loop="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=2048,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(config.shutdown_timeout_s),
        )
        self._sockets = sockets
        self._server = _Server(settings)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections. Returns when it does."""
        self._task = asyncio.create_task(self._server.serve(sockets=self._sockets))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the listener stopped while it started")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Accept no more; wait for requests in flight, at most `shutdown_timeout_s`."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals belong to the process, not to one of its two listeners."""
        yield


def calm_collector() -> None:
    """Keep Python's garbage collector from stopping requests: what the start made is never looked at
    again, and young objects are collected less often. For the process that serves, once it has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def bind_tcp(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError (exit 2) when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="is another gateway running? `--set gateway.port=0` takes a free port",
        ) from error
    sock.set_inheritable(False)
    return sock


def bind_unix(path: Path) -> socket.socket:
    """A Unix socket that only this user can connect to; a stale one is replaced.

    Raises UsageError (exit 2) when the path is too long for the kernel or cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise UsageError(
            f"cannot make the admin socket {path}: {error.strerror or error}",
            hint="set gateway.admin_port to use a loopback port instead",
        ) from error
    path.chmod(0o600)
    return sock
