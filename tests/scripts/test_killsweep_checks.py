"""What the sweep of kills looks at afterwards: a lock in use is not stuck, and a stuck one is told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stages import locks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checks() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    from killsweeps import checks

    yield checks
    sys.path.remove(str(ROOT / "scripts"))


def test_a_lock_that_serve_takes_for_a_moment_is_not_stuck(checks: ModuleType, tmp_path: Path) -> None:
    """Ending a killed deploy it has the target's, which a sweep on a loaded machine met: 1 kill of 250."""
    lock = locks.acquire(tmp_path / "store" / "locks" / "target-auto.lock", what="weights", run="serve")
    told = checks.stuck_locks(tmp_path, serving=True, within_s=0.2)
    assert [one.partition(" (pid")[0] for one in told] == ["lock target-auto.lock is held: serve"]
    threading.Timer(0.3, lock.release).start()
    assert checks.stuck_locks(tmp_path, serving=True) == []


def test_where_nothing_serves_a_lock_is_stuck_at_once(checks: ModuleType, tmp_path: Path) -> None:
    with locks.acquire(tmp_path / "run" / "serve.lock", what="the workspace's gateway").held():
        assert len(checks.stuck_locks(tmp_path)) == 1
        assert checks.stuck_locks(tmp_path, serving=True) == []
    assert checks.stuck_locks(tmp_path) == []
