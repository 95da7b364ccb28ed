"""One command in a container, by the engine's exec: its streams, its end, its limits.

The engine cannot kill an exec, so the command first tells its process id (a line that is written before
any of the model's code runs), and is killed from inside, by a root that may do nothing but send signals: it
needs no process of the sandbox's own limit. That the kernel killed for memory, the engine tells as an event.
"""

from __future__ import annotations

import contextlib
import select
import signal
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cursorbench.sandbox.protocol import Done, Ended

SHORT_S = 60.0
GRACE_S = 10.0
LOOK_S = 1.0  # between looks at memory and CPU time, two requests to the engine
KILLER = "0:0"
_CHUNK = 1 << 16
_TELL = 'echo "$$"; exec "$@"'
_BOTH = f"{_TELL} 2>&1"  # one pipe, so that the order stays
_STDERR = 2
# What descends from $1 or shares its session is stopped and killed, until nothing is found. Fields of
# /proc/PID/stat after the name, which may hold line breaks and brackets: state, parent, group, session; the
# 18th is how many threads there are: where the first has ended and others have not, it looks like a dead one.
_END = """
first=$1 round=0
while [ $round -lt 50 ]; do
  round=$((round + 1)) table= doomed=" " more=1
  for file in /proc/[0-9]*/stat; do
    text=
    while IFS= read -r part || [ -n "$part" ]; do text="$text $part"; done 2>/dev/null <"$file" || continue
    pid=${file#/proc/}
    set -- ${text##*) }
    [ "$1" = Z ] && [ "${18}" -le 1 ] || table="$table ${pid%/stat}:$2:$4"
  done
  while [ $more = 1 ]; do
    more=0
    for entry in $table; do
      pid=${entry%%:*} session=${entry##*:} parent=${entry#*:}
      parent=${parent%%:*}
      case "$doomed" in *" $pid "*) continue ;; esac
      case "$doomed$first " in *" $pid "* | *" $parent "*) ;; *) [ "$session" = "$first" ] || continue ;; esac
      [ "$pid" = 1 ] || { doomed="$doomed$pid " && more=1; }
    done
  done
  [ "$doomed" = " " ] && exit 0
  kill -STOP $doomed 2>/dev/null
  kill -KILL $doomed 2>/dev/null
done
"""


@dataclass
class Container:
    """What commands run in. `user` is theirs, `cpu_s` the CPU time of one; `killed` by its owner."""

    api: Any
    id: str
    user: str
    cpu_s: float = 1e9
    killed: bool = False

    def running(self) -> bool:
        """Whether it is there and alive. Raises the SDK's errors when the engine is not."""
        return not self.killed and bool(self.api.inspect_container(self.id)["State"].get("Running"))

    def killed_for_memory(self, since: float) -> bool:
        """Whether the kernel has killed one of its processes since that time (of the clock)."""
        asked = {"container": self.id, "event": "oom"}
        until = f"{time.time():.6f}"
        return any(True for _ in self.api.events(since=f"{since:.6f}", until=until, filters=asked))

    def cpu_used_s(self) -> float:
        """CPU seconds of all its processes."""
        found = self.api.stats(self.id, stream=False, one_shot=True)
        return float(found.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)) / 1e9


class Exec:
    """A started command. `sink` takes standard output as bytes instead of the text that is kept."""

    def __init__(
        self,
        container: Container,
        line: Sequence[str],
        *,
        cwd: str,
        variables: Mapping[str, str],
        stdin: bytes | Any,
        limit: int,
        sink: Any = None,
    ) -> None:
        self._container, self._api, self._limit, self._sink = container, container.api, limit, sink
        self._started, self._clock = time.monotonic(), time.time()
        self._cpu_from: float | None = None
        self._ended: Ended | None = None
        self._lock = threading.Lock()
        self._head = b""
        self._kept = bytearray()
        self._size = 0
        full = ["/bin/sh", "-c", _BOTH if sink is None else _TELL, "sh", *line]
        options = {"stdin": True, "workdir": cwd, "environment": dict(variables), "user": container.user}
        self._id = self._api.exec_create(container.id, full, **options)["Id"]
        self._stream = self._api.exec_start(self._id, socket=True)
        self._socket = getattr(self._stream, "_sock", self._stream)
        self._early = early(self._stream, self._socket)
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
        """Read until it ends; kill it at the time-out, or when it uses or writes too much."""
        until, looked, ending = self._started + timeout_s, self._started, False
        while True:
            now = time.monotonic()
            if self._ended is not None and not ending:
                ending, until = True, now + GRACE_S
            if now >= until:
                if ending:
                    break
                self.kill("timeout")
                continue
            if not ending and now - looked >= LOOK_S:
                looked = now
                if (reason := self._over()) is not None:
                    self.kill(reason)
                    continue
            if not self._early and not readable(self._socket, min(until - now, LOOK_S)):
                continue
            frame = self._frame()
            if frame is None:
                break
            if not self._take(*frame) and not ending:
                if not self._runs():
                    break  # what it left in the background writes on
                self.kill("output")
        self._close()
        return self._done()

    def _close(self) -> None:
        """The stream is the socket's reader; the socket stays open as long as either is."""
        self._stream.close()
        self._socket.close()

    def _over(self) -> Ended | None:
        """The limit that the command is over. CPU time counts from the first look on."""
        with _gone():
            if self._container.killed_for_memory(self._clock):
                return "memory"
            used = self._container.cpu_used_s()
            self._cpu_from = used if self._cpu_from is None else self._cpu_from
            if used - self._cpu_from > self._container.cpu_s:
                return "timeout"
        return None

    def _runs(self) -> bool:
        with _gone():
            return bool(self._api.exec_inspect(self._id)["Running"])
        return False

    def _frame(self) -> tuple[int, bytes] | None:
        """The next piece of output, None at its end, or when the engine stops in the middle of one."""
        header = self._exactly(8)
        if len(header) < 8:
            return None
        kind, size = struct.unpack(">BxxxL", header)
        return kind, self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray(self._early[:count])
        self._early = self._early[count:]
        with contextlib.suppress(OSError):
            while len(parts) < count and readable(self._socket, GRACE_S):
                part = self._socket.recv(count - len(parts))
                if not part:
                    break
                parts += part
        return bytes(parts)

    def _take(self, kind: int, data: bytes) -> bool:
        """Keep output. False when it is more than the limit."""
        if b"\n" not in self._head and kind != _STDERR:
            head, end, data = (self._head + data).partition(b"\n")
            with self._lock:
                self._head = head + end
                pending = bool(end) and self._ended is not None
            if pending:
                self._send_kill()
        room = max(0, self._limit - self._size)
        self._size += len(data)
        if self._sink is not None and kind != _STDERR:
            self._sink.write(data[:room])
        else:
            self._kept += data[:room]
        return self._size <= self._limit

    def kill(self, reason: Ended) -> None:
        """End the command, what descends from it, and its session."""
        with self._lock:
            if self._ended is None:
                self._ended = reason
            told = b"\n" in self._head
        if told:  # else it is killed as soon as it has said its process id
            self._send_kill()

    def _send_kill(self) -> None:
        pid = self._head.strip()
        if pid.isdigit():
            line = ["/bin/sh", "-c", _END, "sh", pid.decode()]
            with _gone():
                killer = self._api.exec_create(self._container.id, line, user=KILLER)
                self._api.exec_start(killer["Id"], detach=True)  # it may wait for who reads the command

    def _done(self) -> Done:
        code: int | None = None
        alive = False
        with _gone():
            code = self._code()
            alive = self._container.running()
            if self._ended is None and code == 128 + signal.SIGKILL:
                self._ended = "memory" if self._container.killed_for_memory(self._clock) else None
        seconds = time.monotonic() - self._started
        told = (
            b"" if self._head.strip().isdigit() else self._head
        )  # the engine's own words, why it did not run
        text = (told + bytes(self._kept)).decode("utf-8", "replace")
        if not alive or code is None:
            return Done("sandbox_died", -1, text, seconds)
        status = 128 - code if code - 128 in signal.valid_signals() else code
        return Done(self._ended or "exited", status, text, seconds, cut=self._size > self._limit)

    def _code(self) -> int | None:
        """Its exit code, which the engine may know a little after the end of its output."""
        until, pause = time.monotonic() + GRACE_S, 0.002
        while (found := self._api.exec_inspect(self._id))["Running"] or found["ExitCode"] is None:
            if time.monotonic() > until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        return int(found["ExitCode"])


def early(stream: Any, sock: Any) -> bytes:
    """What came in one packet with the engine's headers: it is in the HTTP reader's buffer alone."""
    sock.settimeout(0.0)
    try:
        reader = stream._response.raw._fp.fp
        waiting = len(reader.peek())
        return bytes(reader.read1(waiting)) if waiting else b""
    except AttributeError:
        return b""
    finally:
        sock.settimeout(None)  # for good: a time-out of reading would end what sends, too


def readable(sock: Any, seconds: float) -> bool:
    """Whether there is something to read, or the end, within that time."""
    if getattr(sock, "pending", int)():  # of TLS
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


@contextlib.contextmanager
def _gone() -> Any:
    """The engine or the container is gone: no error of the command's."""
    import docker

    with contextlib.suppress(docker.errors.DockerException, OSError):
        yield
