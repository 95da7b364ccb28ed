"""What of its answers a client has not taken yet, counted where it waits: in the connection.

An answer is handed over as it is made, so who reads slowly holds neither the engine nor one of the places of
requests that may be answered. Between two looks it can be told whether a client has taken anything, how much
waits for it, and who has to be cut off where that is too much of all together. Not here: deadlines
(`protocol.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from uvicorn.protocols.http.flow_control import FlowControl

T = TypeVar("T")


class Counted:
    """A transport that knows how much it was given. `given` - `get_write_buffer_size()` has been taken."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.given = 0
        self._transport = transport

    def write(self, data: bytes) -> None:
        """As the transport's."""
        self.given += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Flow(FlowControl):
    """uvicorn's flow control, by which requests wait and answers do not.

    Over TLS they do: what waits below the TLS layer is not counted, so little is handed to it at a time.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._waits = bool(transport.get_extra_info("sslcontext"))

    async def drain(self) -> None:
        """uvicorn's call before each piece of an answer."""
        if self._waits:
            await super().drain()

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
