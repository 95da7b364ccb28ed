"""`rtrl serve` in the background: start it and wait until it is ready, or stop the one that runs.

For cron, the demo and tests. The background process does the same in a session of its own, with its output in
`run/serve.log`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import stages
from stages import locks
from stages.config import Settings
from stages.engine.lifetime import PARENT_VARIABLE
from stages.errors import (
    DependencyDownError,
    IntegrityError,
    LockedError,
    RtrlError,
    UsageError,
    classified,
)
from stages.serving.ending import ending_s
from stages.target.endpoint import LOCK, Endpoint, running_endpoint
from stages.wording import exit_status
from stages.workspace import Workspace, private

LOG = "serve.log"
LOG_BEFORE = "serve-before.log"  # of the start before: why that one ended


def start_detached(
    workspace: Workspace,
    *,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    tied: bool = False,
) -> Endpoint:
    """Start `rtrl serve` in the background; returns when it is ready to answer.

    `tied`: it is killed with the calling thread, however that ends.

    Raises:
        LockedError (11): one is running already.
        DependencyDownError (13), or the error the command ended with: it did not come up.
    """
    if (holder := serving_pid(workspace)) is not None:
        raise LockedError(f"rtrl serve runs already (pid {holder})", hint="stop it with `rtrl serve --stop`")
    private(workspace.run_dir)
    log = workspace.run_dir / LOG
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_name(LOG_BEFORE))
    command = [sys.executable, "-m", "stages.serving", str(workspace.root), *workspace.overrides, *overrides]
    root = str(Path(stages.__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    # Path.open has no opener. "a": what rotates it may cut it short while it is written to.
    with open(log, "ab", opener=_owners) as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, **({PARENT_VARIABLE: str(os.getpid())} if tied else {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return _wait_ready(workspace, process, log, say)
    except BaseException:
        if process.poll() is None:
            process.terminate()
        raise


def _owners(path: str, flags: int) -> int:
    """Open a file that others cannot read."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(fd, 0o600)
    return fd


def _wait_ready(
    workspace: Workspace, process: subprocess.Popen[bytes], log: Path, say: Callable[[str], None]
) -> Endpoint:
    deadline = time.monotonic() + workspace.settings.engine.startup_timeout_s + 30
    shown = 0
    while time.monotonic() < deadline:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines[shown:]:
            if not line.startswith(("error: ", "hint: ")):  # whoever called is told by `_ended`
                say(line)
        shown = len(lines)
        if process.poll() is not None:
            raise _ended(process.returncode, lines, log)
        with contextlib.suppress(IntegrityError):  # of an earlier one, which this one is about to remove
            endpoint = running_endpoint(workspace.run_dir)
            if endpoint is not None and endpoint.pid == process.pid:
                return endpoint
        time.sleep(0.1)
    raise DependencyDownError("rtrl serve did not become ready in time", hint=f"see {log}")


def _ended(status: int, lines: Sequence[str], log: Path) -> RtrlError:
    """The error that the background command printed, with its exit code."""
    message = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), f"see {log}")
    text = message or f"rtrl serve ended with status {exit_status(status)}"
    kinds = {cls.code: cls for cls in _known_errors()}
    return kinds.get(status, DependencyDownError)(text, hint=hint)


def _known_errors() -> list[type[RtrlError]]:
    from stages.errors import InputMissingError, StoreError

    return [UsageError, InputMissingError, StoreError, LockedError, IntegrityError, DependencyDownError]


def serving_pid(workspace: Workspace) -> int | None:
    """The process that serves this workspace, ready or still starting; None when there is none."""
    path = workspace.run_dir / LOCK
    if locks.is_free(path):
        return None
    return int(locks.holder_of(path).get("pid", 0)) or None


def stop(workspace: Workspace, *, timeout_s: float | None = None) -> int | None:
    """Stop the running `rtrl serve` by SIGTERM and wait until it is gone. Its pid; None without one.

    Args:
        timeout_s: how long to wait; default as long as the settings let it take.

    Raises DependencyDownError (13) when it does not end in time.
    """
    pid: int | None = None
    deadline = time.monotonic() + (_patience(workspace) if timeout_s is None else timeout_s)
    while not locks.is_free(workspace.run_dir / LOCK):
        # one that has just begun has its lock for a moment before its name is there
        holder = serving_pid(workspace)
        if holder is not None and holder != pid:
            pid = holder
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGTERM)
        if time.monotonic() > deadline:
            raise DependencyDownError(
                f"rtrl serve (pid {pid}) does not end",
                hint=f"requests in flight may be long; `kill -9 {pid}` ends it and its engine at once",
            )
        time.sleep(0.05)
    return pid


def _patience(workspace: Workspace) -> float:
    try:
        with classified():
            return ending_s(workspace.settings)
    except RtrlError:  # spoilt since it was started, or cannot be read: it ends all the same
        return ending_s(Settings())
