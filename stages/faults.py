"""Fault points: named instants at which a test can kill this process as a power cut would.

Everyone who writes durable data calls `point("area.step.before")` and `.after` around each write,
fsync, rename and commit. In production this costs one look-up of a module variable.

    RTRL_FAULT=publish.rename.before      SIGKILL at the first time this point is passed
    RTRL_FAULT=publish.rename.before:3    at the third
    RTRL_FAULT_LIST=/tmp/points           append the name of every point passed (to discover them)

Not for: injecting errors (a full disk, a dead engine); those are made for real in the tests.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_passed: Counter[str] = Counter()
_counting = threading.Lock()  # files of an artifact pass their points side by side
_name, _count, _list = "", 1, ""


def configure(environment: Mapping[str, str]) -> None:
    """Read what is asked for. Done once at import from the process's environment."""
    global _name, _count, _list  # noqa: PLW0603  a process has one answer to "where do I die"
    _name, _, n = environment.get("RTRL_FAULT", "").partition(":")
    _count = int(n) if n else 1
    _list = environment.get("RTRL_FAULT_LIST", "")
    _passed.clear()


configure(os.environ)


def point(name: str) -> None:
    """Pass the fault point `name`; dies here by SIGKILL when the environment asks for it."""
    if not _name and not _list:
        return
    if _list:
        fd = os.open(_list, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, f"{name}\n".encode())
        finally:
            os.close(fd)
    if name == _name:
        with _counting:
            _passed[name] += 1
            if _passed[name] == _count:
                os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def around(name: str) -> Iterator[None]:
    """Pass `name.before`, the block, `name.after`."""
    point(f"{name}.before")
    yield
    point(f"{name}.after")
