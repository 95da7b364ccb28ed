"""Temporary folders where the disk has no locks; the rest is in tests/evals/population/test_scratch.py."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import pytest

from cursorbench.scratch import scratch


def test_a_disk_without_locks_has_such_folders_and_nobody_removes_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entire's checkpoints could not be read with a TMPDIR on Lustre."""

    def none(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    with scratch("mine-", tmp_path) as folder:
        os.utime(folder, (time.time() - 3600,) * 2)
        with scratch("mine-", tmp_path) as other:
            assert [folder.is_dir(), other.is_dir()] == [True, True]
    assert list(tmp_path.iterdir()) == []
