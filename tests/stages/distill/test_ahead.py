"""What `[distill]` names and is not there, or waits longer than collect: told before a cycle begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.cycle import record
from stages.cycle.run import plan_cycle, run_cycle
from stages.cycle.stub import chain
from stages.distill.run import DistillStage
from stages.errors import InputMissingError, RtrlError, UsageError
from tests.stages.cycle import cycle_world

SPEC = """
schema = "rtrl-reward/1"
name = "ours"
[horizons]
followup_s = 4200
[signals.shouting]
function = "our_signals:shouting"
weight = -0.5
unknown = 0.0
"""


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        (["distill.spec=nope.toml"], InputMissingError, "no reward spec at .*nope.toml"),
        (["distill.spec=ours.toml", "collect.horizon_s=4200"], UsageError, "our_signals"),
        (["distill.spec=waits.toml"], UsageError, "ours waits 4200 s .* but collect.horizon_s is 3600 s"),
        (["collect.horizon_s=60"], UsageError, "default waits 3600 s .* but collect.horizon_s is 60 s"),
    ],
)
def test_it_is_told_before_anything_is_collected(
    tmp_path: Path, settings: list[str], kind: type[RtrlError], said: str
) -> None:
    """A cycle told it after its collect, and so did each one that followed; no dry run did."""
    made, store = cycle_world.make(tmp_path)
    (made.root / "ours.toml").write_text(SPEC)
    (made.root / "waits.toml").write_text(
        SPEC.replace("function", "# function").replace("shouting]", "edited]")
    )
    workspace, stages = made.with_overrides(settings), chain()
    with pytest.raises(kind, match=said) as caught:
        run_cycle(workspace, store, stages={**stages, "distill": DistillStage()})
    assert caught.value.hint
    assert stages["collect"].runs == 0
    assert record.read(workspace.run_dir, "auto") is None
    with pytest.raises(kind, match=said):
        plan_cycle(workspace, store)


def test_a_spec_that_fits_is_content(tmp_path: Path) -> None:
    workspace, store = cycle_world.make(tmp_path)
    assert plan_cycle(workspace, store).deadline
