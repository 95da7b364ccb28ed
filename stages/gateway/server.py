"""The gateway's listeners: uvicorn with bounds (`protocol.py`, `accepting.py`), in one event loop.

Not for: starting the engine, or writing `run/serve.json` (`stages/serve.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import stat
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import uvicorn

from stages.errors import UsageError
from stages.gateway.accepting import Acceptor
from stages.gateway.config import GatewayConfig
from stages.gateway.http import App, Receive, Scope, Send
from stages.gateway.protocol import GuardedProtocol
from stages.gateway.taking import too_much
from stages.gateway.tls import Certificate

log = logging.getLogger("rtrl.gateway")

THREADS = 128
_LOOK_S = 0.5  # between two looks at the connections' deadlines
_GONE_S = 0.01  # between two looks whether they are gone


class Listener:
    """One uvicorn server inside a running event loop; leaves signals to its owner.

    Args:
        certificate: None for plain HTTP.
    """

    def __init__(
        self,
        app: App,
        sockets: list[socket.socket],
        config: GatewayConfig,
        certificate: Certificate | None = None,
    ) -> None:
        settings = uvicorn.Config(
            _Quiet(app),
            http=GuardedProtocol,
            ws="none",
            loop="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a line for each thing that is no HTTP
        self._sockets = sockets
        self._server = _Server(settings, config, certificate)
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
        self._server.end()
        if self._task is not None:
            await self._task

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on."""
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)


class _Quiet:
    """An application whose failures are told by type and place: a message may quote what users wrote."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001  # uvicorn would log the message
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s in the application\n%s", type(error).__name__, where)


class _Server(uvicorn.Server):
    def __init__(
        self, settings: uvicorn.Config, config: GatewayConfig, certificate: Certificate | None
    ) -> None:
        super().__init__(settings)
        self._limits, self._certificate = config, certificate
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Begin to shut down."""
        self.should_exit = True
        self._ending.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals belong to the process, not to one of its two listeners."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, with accepting of our own."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise RuntimeError("the application did not start")
        context = self._certificate.context if self._certificate else None
        self._acceptors = [
            Acceptor(sock, self._protocol, self.server_state.connections, self._limits, context)  # type: ignore[arg-type]
            for sock in sockets or ()
        ]
        self.servers = cast(list[Any], self._acceptors)
        self._looking = asyncio.create_task(self._look())
        self.started = True

    def _protocol(self) -> GuardedProtocol:
        loop = asyncio.get_running_loop()
        made = GuardedProtocol(self.config, self.server_state, self.lifespan.state, loop)
        made.limits = self._limits
        return made

    async def _look(self) -> None:
        """Deadlines of connections, and a renewed certificate."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(_LOOK_S)
            now = loop.time()
            stood = now - began - _LOOK_S
            connections = [cast(GuardedProtocol, each) for each in self.server_state.connections]
            for connection in connections:
                connection.look(now, stood)
            self._cut(connections)
            if self._certificate is not None:
                await self._certificate.follow()
                for acceptor in self._acceptors:
                    acceptor.context = self._certificate.context

    def _cut(self, connections: list[GuardedProtocol]) -> None:
        """Those off for whom most waits, when too much does."""
        waiting = [(each.unsent, each) for each in connections if each.transport is not None]
        slowest = too_much(waiting, self._limits.max_unread_bytes)
        for connection in slowest:
            connection.reset()
        if slowest:
            log.warning("%d clients that did not take their answers are cut off", len(slowest))

    async def main_loop(self) -> None:
        """uvicorn's looks ten times a second whether it is to end."""
        self.server_state.default_headers = list(self.config.encoded_headers)
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, by time-outs that need not be whole seconds."""
        state = self.server_state
        try:
            for acceptor in self._acceptors:
                acceptor.close()
            for sock in sockets or ():
                sock.close()
            for connection in list(state.connections):
                connection.shutdown()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.shutdown_timeout_s):
                    while state.connections or state.tasks:
                        await asyncio.sleep(_GONE_S)
            if state.tasks:
                log.error("%d requests were not answered in time", len(state.tasks))
            for task in state.tasks:
                task.cancel()
            await self.lifespan.shutdown()
        finally:
            self._looking.cancel()


def serving_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Failures that nobody waits for are told by type and place: asyncio would quote the exception.

    And threads for all who wait in one at a time: asyncio's own are six on two cores, and engines that start
    or stop hold one each, so that events and new users would wait for those.
    """
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="rtrl"))

    def told(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        where = "".join(traceback.format_tb(error.__traceback__)) if error else ""
        log.error("%s in the event loop\n%s", type(error).__name__ if error else "failure", where)

    loop.set_exception_handler(told)


def calm_collector() -> None:
    """Keep Python's garbage collector from stopping requests: what the start made is never looked at
    again, and what has lasted seldom. Young objects are, often: 20,000 at a time take 4 ms in which nobody
    is answered. For the process that serves, once it has started."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 50, 600)


def bind_tcp(host: str, port: int) -> socket.socket:
    """A listening socket. Raises UsageError (exit 2) when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        hint = "gateway.host is an address of this machine, gateway.port one that you may listen on"
        if error.errno == errno.EADDRINUSE:
            hint = "is another gateway running? `--set gateway.port=0` takes a free port"
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint) from error
    sock.set_inheritable(False)
    return sock


def bind_unix(path: Path) -> socket.socket:
    """A Unix socket that only this user can connect to; a stale one is replaced.

    Raises UsageError (exit 2) when the path is too long for the kernel or cannot be made.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(
                f"{path} is there, and is no socket", hint="name another gateway.admin_socket, or remove it"
            )
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)  # from its first instant on
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise UsageError(
            f"cannot make the admin socket {path}: {error.strerror or error}",
            hint="set gateway.admin_port to use a loopback port instead",
        ) from error
    finally:
        os.umask(umask)
    return sock
