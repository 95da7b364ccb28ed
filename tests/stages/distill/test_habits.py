"""The two auxiliary rewards by hand, and the spec that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stages.distill.habits import comments_over_code, terminal_only
from stages.distill.own import Answered
from stages.distill.own import load as functions
from stages.distill.spec import load
from stages.records import Event
from tests.stages.distill.distill_world import distilled
from tests.stages.world import World


def answered(*calls: str, after: str = "") -> Answered:
    generation = {"at": 1000, "tool_calls": [{"name": name} for name in calls]}
    data = {"path": "a.py", "before": "", "after": after}
    edit = Event(id="e", key_id="k", generation_id="g", type="edit_applied", at=1, wall=1, data=data)
    return Answered("do it", "Done.", (generation,), (edit,) if after else ())


@pytest.mark.parametrize(
    ("after", "value"),
    [
        ("", None),
        ("x=1\n", 0.0),
        ("#abc\nabcdefgh=1\n", 4 / 14 - 0.25),  # 4 of 14 characters
        ("#" + "a" * 99 + "\n", 0.75),
    ],
)
def test_comments_cost_beyond_a_quarter(after: str, value: float | None) -> None:
    assert comments_over_code(answered(after=after)) == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("calls", "value"), [((), None), (("bash", "run_command"), 1.0), (("bash", "edit_file"), 0.0)]
)
def test_the_terminal_alone(calls: tuple[str, ...], value: float | None) -> None:
    assert terminal_only(answered(*calls)) == value


def test_the_shipped_spec_is_the_default_with_two_lines_more(tmp_path: Path) -> None:
    default, _ = load("default", tmp_path)
    habits, _ = load("habits", tmp_path)
    assert {*habits.signals} - {*default.signals} == {"comments_over_code", "terminal_only"}
    same: Any = habits.model_copy(update={"signals": default.signals, "name": "default"})
    assert same == default
    assert [signal.name for signal in functions(habits, tmp_path)] == ["comments_over_code", "terminal_only"]


def test_it_scores_a_run(world: World) -> None:
    world.generation("g1", "e1", 0, answer="Done.")
    thought = "".join(f"# step {n} of what i think\n" for n in range(9))
    world.event("g1", "edit_applied", 500, path="a.py", before="", after=f"{thought}x = 1\n")
    result = distilled(world, "distill.spec=habits")
    row = next(r for r in result.metrics["signals"] if r["signal"] == "comments_over_code")
    assert row["known"] == 1
    assert row["mean"] == pytest.approx(0.75, abs=0.05)
