"""One command in a running sandbox, as the caller sees it: its output, its end, its limits of time and size.

Talks to the supervisor (`supervisor.py`) by packets that carry descriptors; each command has its own output
pipe and its own status channel, so any number of threads may use one sandbox.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cursorbench.sandbox.protocol import Done, Ended

CHUNK = 1 << 16
LARGEST_REQUEST = 1 << 17
LOOK_S = 0.25  # between looks at the CPU time
GRACE_S = 60.0  # between killing a command and giving its sandbox up, whose end would be heard at once


@dataclass
class Channel:
    """The caller's end of the socket to a supervisor.

    `memory_at` asks when something inside was last killed for memory (monotonic seconds); `cpu` is the
    descriptor of the group's file of CPU time, -1 without one.
    """

    control: socket.socket
    memory_at: Callable[[], float]
    cpu: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Let go; the supervisor then ends, and with it the sandbox."""
        self.control.close()
        with self._lock:
            if self.cpu >= 0:
                os.close(self.cpu)
            self.cpu = -1

    def cpu_s(self) -> float:
        """CPU seconds that all processes inside have used."""
        with self._lock:
            if self.cpu < 0:
                return 0.0
            try:
                text = os.pread(self.cpu, 4096, 0)
            except OSError:  # the group is gone, and with it the sandbox
                return 0.0
        if text.startswith(b"usage_usec"):
            return int(text.split()[1]) / 1e6
        return int(text) / 1e9

    def request(self, parts: Sequence[bytes], fds: Sequence[int]) -> None:
        """Send one request. Raises OSError when the supervisor is gone."""
        socket.send_fds(self.control, [b"\0".join(parts)], list(fds))

    def file(self, operation: bytes, path: str) -> int:
        """A descriptor of a file inside. Raises OSError, as the sandbox's own kernel said.

        Raises ValueError for a path with a NUL byte, as `open` does.
        """
        if "\0" in path:
            raise ValueError("embedded null byte")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self.request([operation, os.fsencode(path)], [theirs.fileno()])
            ours.settimeout(GRACE_S)
            try:
                data, fds, _, _ = socket.recv_fds(ours, 64, 4, socket.MSG_CMSG_CLOEXEC)
            except TimeoutError as error:
                raise OSError(110, "the sandbox did not answer", path) from error
        if len(data) < 4:
            raise OSError(5, "the sandbox has died", path)
        number = struct.unpack("i", data[:4])[0]
        if number or not fds:
            raise OSError(number or 5, os.strerror(number or 5), path)
        return fds[0]


class Command:
    """A command from its start to its end; `wait` is for one thread, `kill` for any."""

    def __init__(
        self, channel: Channel, parts: Sequence[bytes], stdin: bytes, limit: int, cpu_s: float
    ) -> None:
        self._channel = channel
        self._limit = limit
        self._kept = bytearray()
        self._started = time.monotonic()
        self._cpu_until = channel.cpu_s() + cpu_s
        self._ended: Ended | None = None
        self._lock = threading.Lock()
        self._pid = 0
        self._answer = b""
        self._output, output = os.pipe()
        self._status, status = os.pipe()
        source = _source(stdin)
        try:
            channel.request(parts, (source, output, status))
        except OSError:
            self._ended = "sandbox_died"
        finally:
            for fd in (source, output, status):
                os.close(fd)
        os.set_blocking(self._output, False)

    def wait(self, timeout_s: float) -> Done:
        """Read until it ends; kill it at the time-out or when it writes too much."""
        until = self._started + timeout_s
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        poll.register(self._output, select.POLLIN)
        ending = False
        while len(self._answer) < 8 and self._ended != "sandbox_died":
            if not ending and self._channel.cpu_s() > self._cpu_until:
                until = time.monotonic()
            left = until - time.monotonic()
            # also when the time is over: what ended in time is heard late by a process that stood still
            for fd, _ in poll.poll(max(0.0, min(left, LOOK_S)) * 1000 + 1):
                if fd == self._output:
                    if not self._read():
                        poll.unregister(fd)
                elif not self._hear():
                    self._ended = "sandbox_died" if len(self._answer) < 8 else self._ended
                    break
            if len(self._answer) < 8 and (left <= 0 or self._ended == "output"):
                if ending and left <= 0:
                    self._ended = "sandbox_died"
                elif not ending:
                    self.kill("timeout")
                    ending, until = True, time.monotonic() + GRACE_S
        while self._read():
            pass
        return self._done()

    def _hear(self) -> bool:
        data = os.read(self._status, 8 - len(self._answer))
        self._answer += data
        if not self._pid and len(self._answer) >= 4:
            with self._lock:
                self._pid = struct.unpack("i", self._answer[:4])[0]
                pending = self._ended is not None
            if pending:
                self._send_kill()
        return bool(data)

    def _read(self) -> bool:
        """Take what is in the pipe. False at its end, or when it is empty."""
        try:
            data = os.read(self._output, CHUNK)
        except BlockingIOError:
            return False
        room = self._limit - len(self._kept)
        self._kept += data[:room]
        if len(data) > room:
            if self._ended is None:
                self.kill("output")
            return False
        return bool(data)

    def kill(self, reason: Ended = "exited") -> None:
        """End the command and what it started."""
        with self._lock:
            if self._ended is None:
                self._ended = reason
        self._send_kill()

    def _send_kill(self) -> None:
        if self._pid:
            with contextlib.suppress(OSError):
                self._channel.request([b"kill", b"%d" % self._pid], ())

    def _done(self) -> Done:
        seconds = time.monotonic() - self._started
        for fd in (self._output, self._status):
            os.close(fd)
        text = self._kept.decode("utf-8", "replace")
        if len(self._answer) < 8:
            # what a command took can end the supervisor, too: that is the command's doing
            took = self._channel.memory_at() > float("-inf")
            return Done("memory" if took else "sandbox_died", -1, text, seconds)
        status = os.waitstatus_to_exitcode(struct.unpack("i", self._answer[4:8])[0])
        ended = self._ended or "exited"
        if ended == "exited" and status == -signal.SIGXCPU:
            ended = "timeout"
        if ended == "exited" and status and self._channel.memory_at() >= self._started:
            ended = "memory"
        return Done(ended, status, text, seconds, cut=ended == "output")


def _source(stdin: bytes) -> int:
    if not stdin:
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(stdin)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
