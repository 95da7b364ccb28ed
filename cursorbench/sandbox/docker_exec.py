"""One command in a container, by the engine's exec: its streams, its end, its limits of time and size.

The engine cannot kill an exec, so the command first tells its process id (a line that is written before
any of the model's code runs), and is killed by its process group from inside.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cursorbench.sandbox.protocol import Done, Ended

SHORT_S = 60.0
GRACE_S = 10.0
_CHUNK = 1 << 16
_TELL = 'echo "$$"; exec "$@"'
_STDERR = 2


class Exec:
    """A started command. `sink` takes standard output as bytes instead of the text that is kept."""

    def __init__(
        self,
        api: Any,
        container: str,
        line: Sequence[str],
        cwd: str,
        variables: Mapping[str, str],
        stdin: bytes | Any,
        limit: int,
        sink: Any = None,
    ) -> None:
        self._api, self._container, self._limit, self._sink = api, container, limit, sink
        self._started = time.monotonic()
        self._ended: Ended | None = None
        self._head = b""
        self._kept = bytearray()
        self._size = 0
        full = ["/bin/sh", "-c", _TELL, "sh", *line]
        options = {"stdin": True, "workdir": cwd, "environment": dict(variables)}
        self._id = api.exec_create(container, full, **options)["Id"]
        stream = api.exec_start(self._id, socket=True)
        self._socket = getattr(stream, "_sock", stream)
        self._stream = stream
        self._sender = threading.Thread(target=self._send, args=(stdin,), daemon=True)
        self._sender.start()

    def _send(self, stdin: bytes | Any) -> None:
        with contextlib.suppress(OSError):
            if isinstance(stdin, bytes):
                self._socket.sendall(stdin)
            else:
                while part := stdin.read(_CHUNK):
                    self._socket.sendall(part)
            self._socket.shutdown(1)  # its end of input

    def wait(self, timeout_s: float) -> Done:
        """Read until it ends; kill it at the time-out or when it writes too much."""
        until = self._started + timeout_s
        while True:
            left = until - time.monotonic()
            if left <= 0:
                if self._ended is not None:
                    break
                self.kill("timeout")
                until = time.monotonic() + GRACE_S
                continue
            self._socket.settimeout(left)
            try:
                frame = self._frame()
            except TimeoutError:
                continue
            except OSError:
                break
            if frame is None:
                break
            if not self._take(*frame) and self._ended is None:
                self.kill("output")
                until = time.monotonic() + GRACE_S
        self._stream.close()
        return self._done()

    def _frame(self) -> tuple[int, bytes] | None:
        header = self._exactly(8)
        if len(header) < 8:
            return None
        kind, size = struct.unpack(">BxxxL", header)
        return kind, self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        """So many bytes; what a time-out interrupted is not lost, it is begun anew with a longer one."""
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except TimeoutError:
                if not parts:
                    raise
                self._socket.settimeout(GRACE_S)
                continue
            if not part:
                break
            parts += part
        return bytes(parts)

    def _take(self, kind: int, data: bytes) -> bool:
        """Keep output. False when it is more than the limit."""
        if b"\n" not in self._head and kind != _STDERR:
            head, end, data = (self._head + data).partition(b"\n")
            self._head = head + end
        room = max(0, self._limit - self._size)
        self._size += len(data)
        if self._sink is not None and kind != _STDERR:
            self._sink.write(data[:room])
        else:
            self._kept += data[: min(room, self._limit)]
        return self._size <= self._limit

    def kill(self, reason: Ended) -> None:
        """End the command's process group."""
        if self._ended is None:
            self._ended = reason
        pid = self._head.strip()
        if pid.isdigit():
            line = ["/bin/sh", "-c", 'kill -9 -- "-$1" "$1"', "sh", pid.decode()]
            with contextlib.suppress(OSError):
                self._api.exec_start(self._api.exec_create(self._container, line)["Id"], detach=True)

    def _done(self) -> Done:
        seconds = time.monotonic() - self._started
        text = self._kept.decode("utf-8", "replace")
        found = self._api.exec_inspect(self._id)
        state = self._api.inspect_container(self._container)["State"]
        code = found.get("ExitCode")
        if (code is None and self._ended is None) or not state.get("Running"):
            return Done("sandbox_died", -1, text, seconds)
        status = -9 if code is None else 128 - code if code > 128 else code
        ended: Ended = self._ended or "exited"
        if ended == "exited" and status == -9 and state.get("OOMKilled"):
            ended = "memory"
        return Done(ended, status, text, seconds, cut=ended == "output")
