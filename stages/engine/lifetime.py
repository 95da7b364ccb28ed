"""A child that must not outlive its parent, however the parent dies.

Linux only (prctl(2), PR_SET_PDEATHSIG): SIGKILL of the parent leaves it no chance to clean up.
The signal comes when the *thread* that started the child ends, so children are started from
threads that live as long as their process.
"""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PARENT_VARIABLE = "RTRL_PARENT_PID"


def die_with_parent(expected_parent: int | None = None) -> None:
    """Ask the kernel to SIGKILL this process when its parent dies.

    `expected_parent` is the parent's pid as the parent wrote it down; when it is already another,
    the parent died before this call and the process ends at once (status 143).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if expected_parent is not None and os.getppid() != expected_parent:
        os._exit(128 + signal.SIGTERM)


def and_those_forked() -> None:
    """Children that this process forks from now on ask the same, and theirs."""
    parent = [os.getpid()]

    def ask() -> None:
        die_with_parent(parent[0])
        parent[0] = os.getpid()

    os.register_at_fork(after_in_child=ask)
