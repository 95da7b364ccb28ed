"""The process beside the caller that makes sandboxes and takes them away: mounts, bubblewrap, users, limits.

It is small and has one thread, so that it can fork; the caller may be large and have many. It lives in a
mount namespace of its own (and, started by an ordinary user, in a user namespace): no mount and no folder
of a sandbox is seen outside, and all are gone with it. It ends when its caller ends, by whatever cause.
Not here: what goes on between caller and sandbox afterwards (`supervisor.py`), which passes it by.

A request is one packet of JSON with descriptors, first the socket that the answer goes to.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from cursorbench.sandbox import boxes, syscalls
from cursorbench.sandbox.boxes import Box, Store

PACKET = 1 << 18


class Keeper:
    """Serves one caller until it is gone."""

    def __init__(self, control: socket.socket, caller: int, store: Store) -> None:
        self._control = control
        self._store = store
        self._boxes: dict[int, Box] = {}
        self._starting: dict[int, tuple[Box, socket.socket]] = {}
        self._count = 0
        self._poll = select.poll()
        self._caller = os.pidfd_open(caller)
        for fd in (control.fileno(), self._caller):
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the caller is gone; then end every sandbox."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._starting:
                    self._started(fd)
                elif fd == self._control.fileno():
                    data, fds, _, _ = socket.recv_fds(self._control, PACKET, 250)
                    if not data:
                        return self._end()
                    self._answer(json.loads(data), fds)
                else:
                    return self._end()

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        reply = socket.socket(fileno=fds.pop(0))
        operations: dict[str, Callable[[dict[str, Any], list[int], socket.socket], None]] = {
            "start": self._start,
            "snapshot": self._snapshot,
            "changes": self._changes,
            "drop": self._drop,
            "kill": self._kill,
        }
        try:
            operations[request["op"]](request, fds, reply)
        except OSError as error:
            send(reply, {"error": str(error)})
        finally:
            for fd in fds:
                os.close(fd)

    def _start(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._count += 1
        box = boxes.prepare(self._store, self._count, request)
        self._store.use(box.layers, 1)
        try:
            information = boxes.launch(box, request)
        except OSError:
            self._remove(box)
            raise
        self._starting[information] = (box, reply)
        self._poll.register(information, select.POLLIN)

    def _started(self, information: int) -> None:
        box, reply = self._starting[information]
        said = os.read(information, 4096)
        box.said += said
        child = boxes.child_of(box.said)
        if said and child is None:
            return
        del self._starting[information]
        self._poll.unregister(information)
        os.close(information)
        if child is None:
            text = boxes.complaint(box)
            self._remove(box)
            send(reply, {"error": text or "bubblewrap ended at once"})
            return
        box.child = child
        self._boxes[box.number] = box
        send(reply, {"box": box.number, "overlay": box.overlay}, [box.control, box.upper])
        os.close(box.control)
        box.control = -1

    def _snapshot(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes[request["box"]]
        self._count += 1
        self._store.use([self._count], 1)
        if self._in_the_background(reply):
            return
        try:
            self._store.freeze(box, self._count)
            send(reply, {"layer": self._count})
        except (OSError, ValueError) as error:
            send(reply, {"error": str(error), "layer": self._count})
        finally:
            os._exit(0)

    def _changes(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes[request["box"]]
        if self._in_the_background(reply):
            return
        try:
            send(reply, {})
            with os.fdopen(os.dup(fds[0]), "wb") as out:
                self._store.changes(box, out)
        finally:
            os._exit(0)

    def _in_the_background(self, reply: socket.socket) -> bool:
        """Fork for long work. Returns True in the keeper, whose answer the copy gives."""
        if os.fork():
            reply.close()
            return True
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        return False

    def _drop(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._store.use([request["layer"]], -1)
        send(reply, {})

    def _kill(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes.pop(request["box"], None)
        if box is not None:
            self._remove(box)
        send(reply, {})

    def _remove(self, box: Box) -> None:
        boxes.remove(box)
        self._store.use(box.layers, -1)

    def _end(self) -> None:
        for box in self._boxes.values():
            boxes.remove(box)


def send(reply: socket.socket, answer: dict[str, Any], fds: list[int] | None = None) -> None:
    """Answer and close; a caller that has gone misses nothing."""
    try:
        socket.send_fds(reply, [json.dumps(answer).encode()], fds or [])
    except OSError:
        print("the caller did not wait for its answer", file=sys.stderr)
    reply.close()


def main(control: int, caller: int) -> None:
    """Run by `bubblewrap.py` in a process of its own; ends with the caller."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the caller decides
    store = boxes.enter()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    connection = socket.socket(fileno=control)
    Keeper(connection, caller, store).serve()
