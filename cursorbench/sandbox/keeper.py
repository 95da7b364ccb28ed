"""The process beside the caller that makes sandboxes and takes them away: mounts, bubblewrap, users, limits.

It is small and has one thread, so that it can fork; the caller may be large and have many. It lives in a
mount namespace of its own (and, started by an ordinary user, in a user namespace): no mount and no folder
of a sandbox is seen outside, and all are gone with it. It ends when its caller ends, by whatever cause.
Not here: what goes on between caller and sandbox afterwards (`supervisor.py`), which passes it by.

A request is one packet of JSON with descriptors, first the socket that the answer goes to. Sandboxes
without working tree are kept in reserve for the last kind asked for, so that a start or a fork need only
mount: bubblewrap and the interpreter inside take longer than everything else. It is one, and one more
whenever somebody had to wait, one for each processor at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cursorbench.sandbox import boxes, stage, sweep, syscalls, worktree
from cursorbench.sandbox.boxes import Box
from cursorbench.sandbox.stage import Store
from cursorbench.sandbox.watch import INTERVAL_S

PACKET = 1 << 18
DEEPEST = min(8, os.cpu_count() or 1)  # sandboxes in reserve
KIND = ("bwrap", "python", "mounts", "covered", "workdir", "memory", "processes", "disk", "inodes")


@dataclass
class _Asked:
    """A start that waits for its sandbox; without `reply` it is a reserve."""

    box: Box
    request: dict[str, Any]
    reply: socket.socket | None


class Keeper:
    """Serves one caller until it is gone."""

    def __init__(self, control: socket.socket, caller: int, store: Store) -> None:
        self._control = control
        self._store = store
        self._boxes: dict[int, Box] = {}
        self._starting: dict[int, _Asked] = {}
        self._reserve: list[Box] = []  # ready, all of the kind
        self._kind, self._depth = "", 1
        self._count = 0
        self._poll = select.poll()
        self._caller = os.pidfd_open(caller)
        for fd in (control.fileno(), self._caller):
            self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the caller is gone; then end every sandbox."""
        while True:
            found = self._poll.poll(INTERVAL_S * 1000 if self._boxes else None)
            for fd, _ in found:
                if fd in self._starting:
                    self._started(fd)
                elif fd == self._control.fileno():
                    data, fds, _, _ = socket.recv_fds(self._control, PACKET, 8, socket.MSG_CMSG_CLOEXEC)
                    if not data:
                        return self._end()
                    self._answer(json.loads(data), fds)
                else:
                    return self._end()
            for box in self._boxes.values():
                box.look()
            self._reap()

    def _reap(self) -> None:
        own = {box.pid for box in self._boxes.values()} | {box.pid for box in self._reserve}
        own |= {asked.box.pid for asked in self._starting.values()}
        for pid in self._store.workers - own:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self._store.workers.discard(pid)

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        reply = socket.socket(fileno=fds.pop(0))
        operations: dict[str, Callable[[dict[str, Any], list[int], socket.socket], None]] = {
            "start": self._start,
            "snapshot": self._snapshot,
            "changes": self._changes,
            "drop": self._drop,
            "look": self._look,
            "describe": self._describe,
            "kill": self._kill,
        }
        try:
            operations[request["op"]](request, fds, reply)
        except (OSError, KeyError) as error:
            send(reply, {"error": f"{type(error).__name__}: {error}"})
        finally:
            for fd in fds:
                os.close(fd)

    def _start(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        kind = _kind(request)
        for box in [one for one in self._reserve if kind != self._kind or one.has_ended()]:
            self._reserve.remove(box)
            boxes.remove(box)
        if kind != self._kind:
            self._kind, self._depth = kind, 1
        elif not self._reserve or not self._reserve[0].is_ready():
            self._depth = min(self._depth + 1, DEEPEST)
        if self._reserve:
            self._give(self._reserve.pop(0), request, reply)
            return
        for asked in self._starting.values():
            if asked.reply is None and _kind(asked.request) == kind:
                asked.reply, asked.request = reply, request
                return
        self._launch(request, reply)

    def _launch(self, request: dict[str, Any], reply: socket.socket | None) -> None:
        self._count += 1
        box = boxes.prepare(self._store, self._count, request)
        try:
            information = boxes.launch(self._store, box, request)
        except OSError:
            boxes.remove(box)
            raise
        self._starting[information] = _Asked(box, request, reply)
        self._poll.register(information, select.POLLIN)

    def _started(self, information: int) -> None:
        asked = self._starting[information]
        box = asked.box
        said = os.read(information, 4096)
        box.said += said
        if not box.found_child() and said:
            return
        del self._starting[information]
        self._poll.unregister(information)
        os.close(information)
        if box.child < 0:
            text = boxes.complaint(box)
            boxes.remove(box)
            if asked.reply is not None:
                send(asked.reply, {"error": text or "bubblewrap ended at once"})
        elif asked.reply is not None:
            self._give(box, asked.request, asked.reply)
        elif _kind(asked.request) == self._kind:
            self._reserve.append(box)
        else:
            boxes.remove(box)

    def _give(self, box: Box, request: dict[str, Any], reply: socket.socket) -> None:
        """Mount the working tree, hand the sandbox over, and make the next ones."""
        group = box.watch.group.cpu_file() if box.watch else None
        with contextlib.ExitStack() as stack:
            fds = [box.control]
            try:
                worktree.attach(self._store, box, request)
                if group is not None:
                    fds.append(stack.enter_context(group.open("rb")).fileno())
            except (OSError, ValueError) as error:
                self._remove(box)
                send(reply, {"error": f"{type(error).__name__}: {error}"})
                return
            self._boxes[box.number] = box
            send(reply, {"box": box.number, "groups": self._store.groups.version}, fds)
        os.close(box.control)
        box.control = -1
        self._keep_reserve(request)

    def _keep_reserve(self, request: dict[str, Any]) -> None:
        kind = _kind(request)
        if kind != self._kind:
            return
        waiting = [asked.request for asked in self._starting.values() if asked.reply is None]
        starting = sum(_kind(one) == kind for one in waiting)
        with contextlib.suppress(OSError):  # the next start says why
            for _ in range(self._depth - len(self._reserve) - starting):
                self._launch(request, None)

    def _snapshot(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes[request["box"]]
        self._count += 1
        self._store.use([self._count], 1)
        if self._in_the_background(reply):
            return
        try:
            worktree.freeze(self._store, box, self._count)
            send(reply, {"layer": self._count})
        except ValueError as error:
            send(reply, {"too_large": str(error), "layer": self._count})
        except OSError as error:
            send(reply, {"error": str(error)})
        finally:
            os._exit(0)

    def _changes(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes[request["box"]]
        if self._in_the_background(reply):
            return
        try:
            send(reply, {})
            with os.fdopen(os.dup(fds[0]), "wb") as out:
                worktree.send_changes(self._store, box, out)
        finally:
            os._exit(0)

    def _in_the_background(self, reply: socket.socket) -> bool:
        """Fork for long work. Returns True in the keeper, whose answer the copy gives."""
        pid = os.fork()
        if pid:
            self._store.workers.add(pid)
            reply.close()
            return True
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        return False

    def _drop(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        self._store.use([request["layer"]], -1)
        send(reply, {})

    def _look(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes[request["box"]]
        box.look()
        send(reply, {"memory_at": box.watch.at if box.watch else 0.0})

    def _describe(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        made = self._store.groups
        why = f"copies ({self._store.why_not})" if self._store.why_not else "overlays"
        kinds = ", ".join(sorted(made.places))
        found = (
            f"control groups version {made.version}: {kinds}" if kinds else "/proc, looked at by the keeper"
        )
        send(reply, {"trees": why, "limits": found})

    def _kill(self, request: dict[str, Any], fds: list[int], reply: socket.socket) -> None:
        box = self._boxes.pop(request["box"], None)
        said = "" if box is None else boxes.complaint(box)
        if box is not None:
            self._remove(box)
        send(reply, {"said": said})

    def _remove(self, box: Box) -> None:
        boxes.remove(box)
        self._store.use(box.layers, -1)

    def _end(self) -> None:
        starting = [asked.box for asked in self._starting.values()]
        for box in [*self._boxes.values(), *self._reserve, *starting]:
            boxes.remove(box)


def _kind(request: dict[str, Any]) -> str:
    return json.dumps([request[name] for name in KIND])


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
    connection = socket.socket(fileno=control)
    connection.set_inheritable(False)
    with contextlib.suppress(ValueError):  # the caller may have less
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))  # with any other the kernel may start a program
    try:
        sweep.sweep_folders()
        store = stage.enter()
        sweep.sweep(store.groups)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        keeper = Keeper(connection, caller, store)
    except OSError as error:
        connection.send(json.dumps({"error": str(error)}).encode())
        raise SystemExit(1) from error
    connection.send(b"{}")
    keeper.serve()
