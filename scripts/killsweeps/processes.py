"""Real `rtrl` processes: run to the end, killed on the way, and what they leave running.

A kill takes only the process that was started, as SIGKILL of a command does. Everything it started
must die by itself: whatever carries its mark afterwards is an orphan.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
MARK = "RTRL_KILLSWEEP_MARK"
ORPHAN_GRACE_S = 5.0
TIMEOUT_S = 900.0  # of a command: only one that hangs takes longer, even on a busy machine


@dataclass(frozen=True)
class Ended:
    """How a process ended. `code` is negative for a signal."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float
    orphans: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` printed; empty when it printed none."""
        try:
            found = json.loads(self.out)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def __str__(self) -> str:
        told = " | ".join(self.err.strip().splitlines()[-3:])
        return f"`rtrl {' '.join(self.arguments)}` ended with {self.code}: {told}"


class Process:
    """`rtrl ARGUMENTS` on a workspace, started and not waited for."""

    def __init__(
        self, workspace: Path, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.arguments = tuple(arguments)
        self.mark = uuid.uuid4().hex
        self._out: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `ended`
        self._err: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._began = time.monotonic()
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "rtrl_cli.main", *arguments],
            cwd=ROOT,
            env=os.environ | {"RTRL_WORKSPACE": str(workspace), MARK: self.mark} | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
        )

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """SIGKILL to the leader alone."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM, as an operator would."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGTERM)

    def tail(self, lines: int = 3) -> str:
        """The end of stderr so far."""
        self._err.seek(0)
        return " | ".join(self._err.read().strip().splitlines()[-lines:])

    def ended(self, timeout: float) -> Ended:
        """Wait for the end; one that outlives `timeout` is killed, with all it started, and reported so."""
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self.popen.wait()
            code = 124
        seconds = time.monotonic() - self._began
        left = orphans(self.mark)
        texts = []
        for stream in (self._out, self._err):
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        return Ended(self.arguments, code, texts[0], texts[1], seconds, tuple(left))


def run(
    workspace: Path, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S
) -> Ended:
    """`rtrl ARGUMENTS`, to its end."""
    return Process(workspace, arguments, env).ended(timeout)


def orphans(mark: str, grace_s: float = ORPHAN_GRACE_S) -> list[str]:
    """Command lines of processes that still carry the mark after `grace_s`; they are killed then."""
    deadline = time.monotonic() + grace_s
    while left := _marked(mark):
        if time.monotonic() >= deadline:
            names = [f"{process.pid} {_command_line(process)}" for process in left]
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            return names
        time.sleep(0.05)
    return []


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[:120]
    return "?"
