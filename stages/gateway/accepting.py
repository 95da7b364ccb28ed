"""Who may connect: at most so many at a time, of them so many from one address; TLS with a time limit.

Instead of asyncio's own accepting, which takes everybody, and counts nobody before the TLS handshake is done.
When it is full, a connection that waits for a request makes room for a new one: whoever only opens
connections does not keep others out, nor ends those that others keep for their next request. Not for: what
comes over a connection (`protocol.py`).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import cast

from stages.gateway.config import GatewayConfig
from stages.gateway.protocol import GuardedProtocol, Phase
from stages.gateway.taking import Counted

log = logging.getLogger("rtrl.gateway")

HANDSHAKE_S = 10.0
RESERVED = 512  # file descriptors for the engine's connections, spool and store
_AT_ONCE = 64  # connections taken before other work goes on
_GRACE_S = 0.5  # who has just connected may be about to ask
_PAUSE_S = 0.2  # when the system has no descriptor left
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 2\r\n"
    b"content-length: 22\r\nconnection: close\r\n\r\nToo many connections.\r\n"
)


class Acceptor:
    """Takes connections of one listening socket. One event loop only.

    Args:
        factory: makes the protocol of a connection.
        protocols: all protocols that are connected now.
        context: for TLS; may be replaced by a renewed one at any time.
    """

    def __init__(
        self,
        sock: socket.socket,
        factory: Callable[[], GuardedProtocol],
        protocols: Collection[GuardedProtocol],
        config: GatewayConfig,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.context = context
        self._sock, self._factory, self._protocols = sock, factory, protocols
        self._most = room_for(config.max_connections)
        self._most_per_peer = config.max_connections_per_peer
        self._peers: Counter[str] = Counter()
        self._open = 0
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._closed = False
        sock.setblocking(False)
        sock.listen(2048)
        self._resume()

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        self._loop.remove_reader(self._sock)

    async def wait_closed(self) -> None:
        """uvicorn's call."""

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                log.warning("no connection can be taken: %s", error.strerror)
                self._loop.remove_reader(self._sock)
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            connection.setblocking(False)
            peer = peer_of(address)
            if self._admitted(peer):
                self._open += 1
                self._peers[peer] += 1
                task = self._loop.create_task(self._connect(connection, peer))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
            else:
                self._refuse(connection)

    def _admitted(self, peer: str) -> bool:
        """Whether there is room, or has been made."""
        if peer and self._peers[peer] >= self._most_per_peer and not self._make_room(peer):
            return False
        return self._open < self._most or self._make_room("")

    def _make_room(self, peer: str) -> bool:
        """End a connection that waits for a request; of that peer, or "" of any."""
        before = self._loop.time() - _GRACE_S
        waiting = (
            one
            for one in self._protocols
            if one.idle and one.since < before and one.left is not None and (not peer or one.peer == peer)
        )
        found = min(waiting, key=self._standing, default=None)
        if found is None:
            return False
        found.transport.abort()
        found.gone()
        return True

    def _standing(self, one: GuardedProtocol) -> tuple[int, bool, float]:
        """The least goes first: of who has most connections, not one between two requests, the oldest."""
        return -self._peers[one.peer], one.phase is Phase.IDLE and one.cycle is not None, one.since

    def _refuse(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self.context is None:
                connection.send(_BUSY)
            connection.close()

    async def _connect(self, connection: socket.socket, peer: str) -> None:
        protocol = self._factory()
        protocol.peer, protocol.left = peer, lambda: self._leave(peer)
        if connection.family != socket.AF_UNIX:
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.context is None:
                await self._loop.connect_accepted_socket(lambda: protocol, connection)
            else:
                sealed = _Sealed(protocol, self.context)
                await self._loop.connect_accepted_socket(lambda: sealed, connection)
                await sealed.shaken
                if protocol.transport is None:  # it was cut off before that
                    raise ConnectionResetError
        except OSError:  # ssl.SSLError, ConnectionError and TimeoutError are: no TLS, or gone again
            protocol.gone()
            connection.close()
        except BaseException:
            protocol.gone()
            connection.close()
            raise

    def _leave(self, peer: str) -> None:
        self._open -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


class _Sealed(SSLProtocol):
    """TLS of one connection. asyncio's own on any loop: what waits below uvloop's is not told."""

    def __init__(self, protocol: GuardedProtocol, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        self.shaken: asyncio.Future[None] = loop.create_future()  # hands; or the OSError why not
        super().__init__(
            loop,
            protocol,
            context,
            self.shaken,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S,  # type: ignore[arg-type]  # any number
        )
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's call."""
        self._protocol.below = Counted(cast(asyncio.Transport, transport))
        super().connection_made(cast(asyncio.Transport, self._protocol.below))


def peer_of(address: object) -> str:
    """What connections are counted by: an IPv4 address, an IPv6 /64; "" for a Unix socket."""
    if not isinstance(address, tuple) or not address:
        return ""
    host = str(address[0]).partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return host


def room_for(connections: int) -> int:
    """So many connections, or fewer where the system has no descriptors for them; asks it for more first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    return max(1, min(connections, soft - RESERVED, soft // 2) if soft > 2 * RESERVED else soft // 2)
