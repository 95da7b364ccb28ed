"""The service manager's protocol, byte by byte."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.serving.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


def test_each_message_is_one_datagram(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())
    notifier.ready("serves\nrtrl")  # a line break would begin another assignment
    assert manager.recv(4096) == b"READY=1\nSTATUS=serves rtrl"
    notifier.stopping("3 requests finish", 30.5)
    assert manager.recv(4096) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=30500000\nSTATUS=3 requests finish"
    notifier.starting("loading", 1)
    assert manager.recv(4096) == b"EXTEND_TIMEOUT_USEC=1000000\nSTATUS=loading"
    notifier.reloading("new weights")
    first, second, third = manager.recv(4096).decode().split("\n")
    assert (first, second.split("=")[0], third) == ("RELOADING=1", "MONOTONIC_USEC", "STATUS=new weights")


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"rtrl-test-{os.getpid()}"
        sock.bind(f"\0{name}")
        sock.settimeout(60)
        Notifier(f"@{name}").status("up")
        assert sock.recv(4096) == b"STATUS=up"


def test_the_variables_are_taken_so_that_no_child_speaks_for_us() -> None:
    environ = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier.from_environment(environ).watchdog_s == 3.0
    assert environ == {}
    assert Notifier.from_environment({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).watchdog_s == 0.0
    assert Notifier.from_environment({}).watchdog_s == 0.0


async def test_signs_of_life(manager: socket.socket) -> None:
    task = asyncio.create_task(Notifier(manager.getsockname(), watchdog_s=0.02).keep_alive())
    assert [await asyncio.to_thread(manager.recv, 4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    task.cancel()


def test_nobody_to_tell_and_a_manager_that_is_gone(tmp_path: Path) -> None:
    Notifier().ready("x")
    Notifier(str(tmp_path / "gone")).ready("x")
    assert not list(tmp_path.iterdir())  # nothing was made in its place
