from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from stages import locks
from stages.errors import LockedError
from tests.locked import held_for_a_moment


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


def test_waiting_ends_at_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locks.hold(path, what="a"):
        began = time.monotonic()
        with pytest.raises(LockedError):
            locks.acquire(path, what="a", timeout=0.2)
        assert 0.2 <= time.monotonic() - began < 2


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


def test_a_brief_holder_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "target.lock"
    held = locks.acquire(path, what="serve", brief=True)
    freed: list[float] = []

    def end() -> None:
        freed.append(time.monotonic())
        held.release()

    ends = threading.Timer(2 * locks.GRACE_S, end)
    ends.start()
    with locks.acquire(path, what="target").held():
        assert freed
        assert time.monotonic() >= freed[0]
        assert not locks.holder_of(path)["brief"]
    ends.join()


def test_one_brief_holder_does_not_wait_for_another(tmp_path: Path) -> None:
    path = tmp_path / "target.lock"
    with locks.acquire(path, what="serve", brief=True).held():
        began = time.monotonic()
        with pytest.raises(LockedError):
            locks.acquire(path, what="serve", brief=True)
        assert time.monotonic() - began < locks.BRIEF_S / 2


def test_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BRIEF_S", 0.7)
    path = tmp_path / "target.lock"
    with (
        locks.acquire(path, what="serve", brief=True).held(),
        pytest.raises(LockedError, match="locked by serve"),
    ):
        locks.acquire(path, what="target")


def test_others_are_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "target.lock"
    with locks.hold(path, what="serve", run="rollback-1"):
        began = time.monotonic()
        with pytest.raises(LockedError):
            locks.acquire(path, what="target")
        assert time.monotonic() - began < locks.BRIEF_S / 2
