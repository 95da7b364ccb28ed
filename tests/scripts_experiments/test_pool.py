"""Chains side by side: who comes second is told what helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from experimenting.plan import EXPERIMENTS, Size, setups
from experimenting.pool import run_all

from stages import locks
from stages.errors import LockedError


def test_a_second_copy_is_told_of_no_flag_that_is_not_there(tmp_path: Path) -> None:
    """It was told to give `--lock-timeout`, which `experiments.py` does not have."""
    planned = setups(EXPERIMENTS["hacks"], Size(seeds=1))
    with locks.hold(tmp_path / "lock", what="the first"), pytest.raises(LockedError) as told:
        run_all(planned, tmp_path, workers=1)
    assert told.value.hint == locks.RUN_AGAIN
