"""Runs an agent inside a sandbox with a way to the model: a loopback port that leads to a Unix socket.

Usage: python -I forward.py SOCKET FILE COMMAND [ARGUMENT...]

The sandbox has no network; the socket is bound into it, and behind it stands the relay (`relay.py`).
FILE, which is removed, has {"variables": {...}, "replace": {...}} as JSON: the command's further environment,
and texts to replace in its arguments; `{base_url}` in either becomes the port's address, `{server_url}`
the same without the `/v1` of OpenAI's API. Standard library
alone: it runs on whatever Python 3 is inside, as a file of its own; nothing imports it.

The command's output is passed on, of long output both ends; the exit status is the command's (128 and
the signal's number for a signal). Connections are as many as CONNECTIONS at a time.
"""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

CONNECTIONS = 32
HEAD, TAIL = 256 * 1024, 128 * 1024
PIECE = 65536


def copy(source: socket.socket, target: socket.socket) -> None:
    """Bytes from one end to the other until there are no more."""
    try:
        while True:
            piece = source.recv(PIECE)
            if not piece:
                break
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def carry(near: socket.socket, path: str, free: threading.Semaphore) -> None:
    """One connection, both ways."""
    with near, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as far, contextlib.suppress(OSError):
        far.connect(path)
        back = threading.Thread(target=copy, args=(far, near), daemon=True)
        back.start()
        copy(near, far)
        back.join()
    free.release()


def listen(server: socket.socket, path: str) -> None:
    """Take connections for ever."""
    free = threading.Semaphore(CONNECTIONS)
    while True:
        near, _ = server.accept()
        free.acquire()
        threading.Thread(target=carry, args=(near, path, free), daemon=True).start()


def pass_on(pipe: io.BufferedReader) -> None:
    """The beginning of what the command writes at once, the end of it at the end."""
    passed, dropped, tail = 0, 0, b""
    while True:
        piece = pipe.read1(PIECE)
        if not piece:
            break
        now = piece[: HEAD - passed]
        sys.stdout.buffer.write(now)
        sys.stdout.buffer.flush()
        passed += len(now)
        tail += piece[len(now) :]
        if len(tail) > 2 * TAIL:
            dropped += len(tail) - TAIL
            tail = tail[-TAIL:]
    dropped += max(0, len(tail) - TAIL)
    if dropped:
        sys.stdout.buffer.write(b"\n[%d bytes cut here]\n" % dropped)
    sys.stdout.buffer.write(tail[-TAIL:])
    sys.stdout.buffer.flush()


def main() -> int:
    path, told, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    settings = json.loads(Path(told).read_text(encoding="utf-8"))
    Path(told).unlink()
    server = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    texts = {"{base_url}": f"{address}/v1", "{server_url}": address}
    texts.update(settings["replace"])

    def filled(text: str) -> str:
        for place, value in texts.items():
            if place in text:
                # what was put in is not looked through again
                return value.join(filled(part) for part in text.split(place))
        return text

    threading.Thread(target=listen, args=(server, path), daemon=True).start()
    variables = {name: filled(value) for name, value in settings["variables"].items()}
    try:
        child = subprocess.Popen(
            [filled(part) for part in command],
            env=dict(os.environ, **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        print(f"forward: {command[0]}: {error.strerror}")
        return 127
    pass_on(child.stdout)  # type: ignore[arg-type]  # a pipe, as asked
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
