"""`rtrl serve --stop` waits as long as the one that serves may take to end."""

import errno
import os
from pathlib import Path

import pytest

from stages import locks
from stages.config import Settings
from stages.errors import DependencyDownError
from stages.serving import detach
from stages.target.endpoint import LOCK
from stages.workspace import SETTINGS_FILE, Workspace

LONG = "[gateway]\nshutdown_timeout_s = 300\n"


class Clock:
    """Time that passes where somebody sleeps; what serves ends at `ends`."""

    def __init__(self, lock: locks.FileLock, ends: float) -> None:
        self.lock, self.ends, self.now = lock, ends, 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += 10.0
        if self.now >= self.ends:
            self.lock.release()


def stop(monkeypatch: pytest.MonkeyPatch, workspace: Workspace, ends: float) -> float:
    """After how long `stop` returned."""
    told: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: told.append(pid))
    with locks.acquire(workspace.run_dir / LOCK, what="serving").held() as lock:
        clock = Clock(lock, ends)
        monkeypatch.setattr(detach, "time", clock)
        assert detach.stop(workspace) == os.getpid()
    assert told == [os.getpid()]
    return clock.now


def test_it_waits_for_requests_as_long_as_the_gateway_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace = Workspace.create(tmp_path / "w", LONG)
    assert stop(monkeypatch, workspace, ends=310) == 310
    with pytest.raises(DependencyDownError, match="does not end"):
        stop(monkeypatch, workspace, ends=1000)


def test_settings_that_were_spoilt_meanwhile_do_not_keep_it_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace = Workspace.create(tmp_path / "w", LONG)
    (workspace.root / SETTINGS_FILE).write_text("[gateway\n")
    assert stop(monkeypatch, workspace, ends=50) == 50


def test_settings_that_cannot_be_read_do_not_keep_it_from_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As of a file that root has edited: it raised, and what serves was told to end all the same."""

    def refused(*_args: object, **_more: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", SETTINGS_FILE)

    workspace = Workspace.create(tmp_path / "w", LONG)
    monkeypatch.setattr(Settings, "load", refused)
    assert stop(monkeypatch, workspace, ends=50) == 50


def test_one_that_has_just_begun_is_told_once_its_name_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The name of one that was killed stood there: nobody was told to end, and it was waited for (13)."""
    workspace = Workspace.create(tmp_path / "w", LONG)
    killed, told = 2**22 + 1, list[int]()

    class Starts(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            locks._write_holder(self.lock._fd, "serving", "", False)

    def kill(pid: int, _number: int) -> None:
        told.append(pid)
        if pid == killed:
            raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    with locks.acquire(workspace.run_dir / LOCK, what="serving").held() as lock:
        (workspace.run_dir / LOCK).write_text(f'{{"pid": {killed}}}')
        monkeypatch.setattr(detach, "time", Starts(lock, ends=50))
        assert detach.stop(workspace) == os.getpid()
    assert told == [killed, os.getpid()]
