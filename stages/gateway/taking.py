"""What of its answers a client has not taken yet, counted where it waits: in the connection, below TLS too.

An answer is handed over as it is made, so who reads slowly holds neither the engine nor one of the places of
requests that may be answered. Between two looks it can be told whether a client has taken anything, how much
waits for it, and who has to be cut off where that is too much of all together. Not here: deadlines
(`protocol.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from uvicorn.protocols.http.flow_control import FlowControl

T = TypeVar("T")


class Counted:
    """A transport over a socket that knows how much of what it was given has been taken."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.given = 0
        self._transport = transport

    @property
    def taken(self) -> int:
        """Bytes, over TLS as they were sealed."""
        return self.given - self._transport.get_write_buffer_size()

    def unsent(self, above: asyncio.Transport | Counted) -> int:
        """Bytes that have not, with those in `above`, which is TLS or this."""
        size = self._transport.get_write_buffer_size()
        return size if above is self else size + above.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """As the transport's."""
        self.given += len(data)
        self._transport.write(data)

    def reset(self) -> None:
        """Close at once; the kernel forgets what nobody takes."""
        descriptor = self._transport.get_extra_info("socket").fileno()
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _force_close(self, _: object) -> None:  # asyncio's TLS calls it, and uvloop has none
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Flow(FlowControl):
    """uvicorn's flow control, by which requests wait and answers do not."""

    async def drain(self) -> None:
        """uvicorn's call before each piece of an answer."""

    async def taken(self) -> None:
        """Wait until little is left of what the client has not taken."""
        await super().drain()


def too_much(waiting: Iterable[tuple[int, T]], most: int) -> list[T]:
    """Of (bytes, whose) those with most bytes, so many that `most` bytes or less are left of the others."""
    largest_first = sorted(waiting, key=lambda each: -each[0])
    total, found = sum(size for size, _ in largest_first), []
    for size, whose in largest_first:
        if total <= most:
            break
        found.append(whose)
        total -= size
    return found
