from __future__ import annotations

import errno
import fcntl
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stages import locks
from stages.errors import DependencyDownError, LockedError, classified
from tests.locked import held_for_a_moment


@pytest.mark.usefixtures("clock")
def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "train.lock"
    assert locks.is_free(path)
    with locks.hold(path, what="train", run="train-1"):
        assert not locks.is_free(path)
        with pytest.raises(
            LockedError, match=rf"train is locked by train-1 \(pid {os.getpid()} on "
        ) as caught:
            locks.acquire(path, what="train")
        assert (caught.value.code, bool(caught.value.hint)) == (11, True)
    assert locks.is_free(path)


def test_a_folder_is_in_use_as_long_as_its_process_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert not locks.in_use(folder)
    folder.mkdir()
    assert not locks.in_use(folder)
    occupied = locks.occupy(folder)
    assert locks.in_use(folder)
    folder.rename(tmp_path / "renamed")
    assert locks.in_use(tmp_path / "renamed")
    occupied.release()
    assert not locks.in_use(tmp_path / "renamed")


class Clock:
    """In the place of `time`: sleeping takes no time. `then` is done after so many seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stands_still = 0.0  # beside each sleep
        self.then: tuple[float, Callable[[], object]] = (math.inf, lambda: None)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.stands_still
        at, act = self.then
        if self.now >= at:
            self.then = (math.inf, lambda: None)
            act()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(locks, "time", made)
    return made


def test_waiting_ends_at_the_timeout(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.lock"
    with locks.hold(path, what="a"):
        for timeout in (0.0, 3.0):
            began = clock.now
            with pytest.raises(LockedError):
                locks.acquire(path, what="a", timeout=timeout)
            assert clock.now - began == pytest.approx(max(timeout, locks.GRACE_S), abs=2 * locks.POLL_S)


def test_seconds_in_which_the_machine_stood_still_are_not_the_holders(tmp_path: Path, clock: Clock) -> None:
    held = locks.acquire(tmp_path / "a.lock", what="a")
    clock.stands_still, clock.then = 60.0, (100.0, held.release)
    locks.acquire(tmp_path / "a.lock", what="a").release()
    assert clock.now > 100


@pytest.mark.usefixtures("clock")
def test_shared_holders_exclude_only_exclusive_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with (
        locks.hold(path, what="a", shared=True),
        locks.hold(path, what="a", shared=True),
        pytest.raises(LockedError),
    ):
        locks.acquire(path, what="a")


def test_files_are_close_on_exec(tmp_path: Path) -> None:
    lock = locks.acquire(tmp_path / "a.lock", what="a")
    assert not os.get_inheritable(lock._fd)
    lock.release()
    lock.release()


def test_a_holder_that_wrote_nothing_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    for text in ("", "no json", "[]"):
        path.write_text(text)
        assert locks.holder_of(path) == {}
    assert "unknown" in locks.describe({})


def test_what_a_killed_holder_was_just_starting_is_waited_for(tmp_path: Path) -> None:
    """Between its fork and its exec a child has its parent's descriptors, close-on-exec or not."""
    with held_for_a_moment(tmp_path / "a.lock"):
        assert not locks.is_free(tmp_path / "a.lock")
        locks.acquire(tmp_path / "a.lock", what="a").release()
    assert locks.is_free(tmp_path / "a.lock")


def test_a_brief_holder_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "target.lock"
    held = locks.acquire(path, what="serve", brief=True)
    clock.then = (locks.BRIEF_S - 1, held.release)
    with locks.acquire(path, what="target").held():
        assert clock.now >= locks.BRIEF_S - 1
        assert not locks.holder_of(path)["brief"]


def test_one_brief_holder_does_not_wait_for_another(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "target.lock"
    with locks.acquire(path, what="serve", brief=True).held():
        with pytest.raises(LockedError):
            locks.acquire(path, what="serve", brief=True)
        assert clock.now < locks.BRIEF_S / 2


def test_not_for_ever(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "target.lock"
    with (
        locks.acquire(path, what="serve", brief=True).held(),
        pytest.raises(LockedError, match="locked by serve"),
    ):
        locks.acquire(path, what="target")
    assert clock.now == pytest.approx(locks.BRIEF_S, abs=2 * locks.POLL_S)


def test_others_are_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "target.lock"
    with locks.hold(path, what="serve", run="rollback-1"):
        with pytest.raises(LockedError):
            locks.acquire(path, what="target")
        assert clock.now < locks.BRIEF_S / 2


@pytest.mark.parametrize("ask", [locks.is_free, lambda path: locks.acquire(path, what="it")])
def test_a_disk_without_locks_is_told_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Path], object]
) -> None:
    """As of NFS without its lock service: "No locks available", and nobody knew of what."""

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "collect.lock"
    path.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DependencyDownError, match=f"{path}: No locks available"), classified():
        ask(path)


def test_a_lock_on_a_disk_that_has_become_read_only_still_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtrl serve --stop` and `rtrl status` ask it; it was `Read-only file system`."""
    opened, held = os.open, tmp_path / "serve.lock"

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT or (flags & os.O_RDWR and path.exists()):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, mode)

    with locks.hold(held, what="rtrl serve"):
        monkeypatch.setattr(os, "open", read_only)
        assert not locks.is_free(held)
        with pytest.raises(LockedError, match="rtrl serve is locked by"):
            locks.acquire(held, what="rtrl serve")
    assert locks.is_free(held)
    assert locks.is_free(tmp_path / "never.lock")
    with pytest.raises(OSError, match="Read-only file system"):
        locks.acquire(tmp_path / "never.lock", what="rollback")


def test_who_looks_is_no_holder_to_another_who_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a lock that was freed both were told that its last holder has it."""
    path, tried, seen = tmp_path / "serve.lock", locks._try, list[bool]()
    with locks.hold(path, what="rtrl serve"):
        pass

    def meanwhile(fd: int, *rest: object, **more: object) -> bool:
        monkeypatch.setattr(locks, "_try", tried)
        taken = tried(fd, *rest, **more)  # type: ignore[arg-type]
        seen.append(locks.in_use(path) if path.is_dir() else not locks.is_free(path))
        return taken

    monkeypatch.setattr(locks, "_try", meanwhile)
    assert locks.is_free(path)
    path.unlink()
    path.mkdir()
    monkeypatch.setattr(locks, "_try", meanwhile)
    assert not locks.in_use(path)
    assert seen == [False, False]


def test_a_holders_text_is_there_whenever_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps it was empty: `rtrl serve --stop` said that nothing is served."""
    path, seen = tmp_path / "train.lock", list[object]()

    def seen_between(step: Callable[..., object]) -> Callable[..., None]:
        def stepped(*given: object) -> None:
            step(*given)
            seen.append(locks.holder_of(path).get("run"))

        return stepped

    with locks.hold(path, what="train", run="train-with-a-long-name"):
        pass
    for step in ("ftruncate", "pwrite"):
        monkeypatch.setattr(os, step, seen_between(getattr(os, step)))
    with locks.hold(path, what="train", run="train-1"):
        locks.note_run(path, "train-22")
    assert set(seen) == {"train-1", "train-22"}
    assert not path.read_bytes().endswith(b" ")
