"""What a cycle says of `[deploy]` before its first stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.cycle.run import plan_cycle, run_cycle
from stages.errors import DependencyDownError
from tests.stages.cycle.cycle_world import make


def test_a_store_of_no_kind_is_told_before_anything_is_trained(tmp_path: Path) -> None:
    """A cycle collected, trained and judged first, and each of them ended with it."""
    workspace, store = make(tmp_path)
    wrong = workspace.with_overrides(["deploy.store=s4://bucket/weights"])
    for begin in (plan_cycle, run_cycle):
        with pytest.raises(DependencyDownError, match="s4"):
            begin(wrong, store)
    assert not {one.stage for one in store.runs()} - {"init"}, "no stage began"
    kept = workspace.with_overrides([f"deploy.store=file://{tmp_path}/weights"])
    assert plan_cycle(kept, store).deadline
    assert not (tmp_path / "weights").exists(), "nothing is made by looking"
