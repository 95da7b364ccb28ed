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
from collections import Counter

_passed: Counter[str] = Counter()


def _target() -> tuple[str, int]:
    name, _, n = os.environ.get("RTRL_FAULT", "").partition(":")
    return name, int(n) if n else 1


_NAME, _COUNT = _target()
_LIST = os.environ.get("RTRL_FAULT_LIST", "")


def point(name: str) -> None:
    """Pass the fault point `name`; dies here by SIGKILL when the environment asks for it."""
    if not _NAME and not _LIST:
        return
    if _LIST:
        fd = os.open(_LIST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, f"{name}\n".encode())
        finally:
            os.close(fd)
    if name == _NAME:
        _passed[name] += 1
        if _passed[name] == _COUNT:
            os.kill(os.getpid(), signal.SIGKILL)
