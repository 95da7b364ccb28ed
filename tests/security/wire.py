"""Requests as nobody's library would send them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from stages.records import Generation
from stages.spool import Spool
from stages.target.endpoint import Endpoint
from tests.stages.serving.conftest import StubWorld

CHAT = "/v1/chat/completions"
PATIENCE_S = 60.0  # a machine that stands still for some seconds is no fault of what is tested


@dataclass
class Site:
    """A gateway that runs as a process of its own. `key` is of no population, `acme` of that."""

    world: StubWorld
    acme: str

    @property
    def key(self) -> str:
        return self.world.key

    @property
    def endpoint(self) -> Endpoint:
        return self.world.endpoint

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.endpoint.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def connect(self, timeout: float = PATIENCE_S) -> socket.socket:
        return socket.create_connection(self.address, timeout)

    def send(self, *pieces: bytes, pause: float = 0.0, timeout: float = PATIENCE_S) -> bytes:
        """Send the pieces and read until the gateway closes, or says nothing for `timeout` seconds."""
        with self.connect(timeout) as sock:
            for piece in pieces:
                with contextlib.suppress(ConnectionError):
                    sock.sendall(piece)
                time.sleep(pause)
            return read(sock)

    def generations(self) -> list[Generation]:
        """What is recorded by now."""
        transport = httpx.HTTPTransport(uds=self.endpoint.admin_socket)
        with httpx.Client(transport=transport, base_url="http://admin", timeout=PATIENCE_S) as client:
            key = {"authorization": f"Bearer {self.endpoint.admin_key}"}
            client.post("/admin/spool/flush", headers=key).raise_for_status()
        spool = Spool.reading(self.world.workspace.spool_dir)
        try:
            return [generation for _, generation, _ in spool.generations(0, 1 << 60)]
        finally:
            spool.close()

    def until(self, true: Callable[[], bool], timeout: float = PATIENCE_S) -> None:
        """Wait for something that the gateway is about to know."""
        end = time.monotonic() + timeout
        while not true():
            assert time.monotonic() < end
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether somebody else is served."""
        return self.world.ask().status_code == 200


def read(sock: socket.socket) -> bytes:
    """What comes until the other side closes, or falls silent for the socket's timeout."""
    found = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        while piece := sock.recv(65536):
            found += piece
    return found


def sometimes(holds: Callable[[], bool]) -> bool:
    """Whether it holds in one of five attempts.

    For what has to happen within parts of a second: a machine that stands still spoils one attempt, a fault
    spoils them all.
    """
    return any(holds() for _ in range(5))


def files(folder: Path) -> Iterator[Path]:
    """Files under a folder in which somebody works meanwhile: they may be gone, see `FileNotFoundError`."""
    for where, _, names in os.walk(folder):
        yield from (Path(where) / name for name in names)


def head(method: str, target: str, *headers: str, close: bool = True) -> bytes:
    """A request's header section."""
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: gateway",
        *headers,
        *(["Connection: close"] if close else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chat(key: str, text: str = "hi", *headers: str, close: bool = True, **fields: Any) -> bytes:
    """A whole chat request."""
    body = json.dumps({"model": "rtrl", "messages": [{"role": "user", "content": text}], **fields}).encode()
    length = f"Content-Length: {len(body)}"
    return head("POST", CHAT, f"Authorization: Bearer {key}", length, *headers, close=close) + body


def statuses(answer: bytes) -> list[int]:
    """Status of each answer in what came over a connection. Bodies hold no status lines."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
