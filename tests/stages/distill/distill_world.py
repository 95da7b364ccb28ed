"""A user's click and what distill makes of it, for the tests of the stage."""

from __future__ import annotations

from typing import Any

from stages import schemas, tables
from stages.distill.run import STAGE
from stages.distill.spec import COLUMNS
from stages.result import StageResult
from stages.stage import Artifact
from tests.stages.world import HOUR, World

SPEC = """
schema = "rtrl-reward/1"
name = "by-hand"
strata = ["kind"]
[signals.edit_persistence]
weight = 2.0
offset = 0.5
unknown = 0.25
[signals.edit_rejected]
weight = -0.5
unknown = 0.0
[signals.dissatisfied_followup]
weight = -1.0
unknown = -0.125
[signals.invalid_tool_calls]
weight = -3.0
unknown = 0.0
[signals.latency]
weight = -0.5
unknown = 0.0
[signals.length_cost]
weight = -0.01
unknown = 0.0
[length_cost]
k = 0.0
final = 1.0
call = 2.0
tool = 0.5
calls = 3.0
turns = 4.0
[stabiliser]
low = 0.5
high = 0.75
step = 1.0
initial = 0.25
minimum = 0.0
maximum = 1.0
"""
BEFORE = "def area(w, h):\n    return w + h\n"
AFTER = "def area(w, h):\n    return w * h\n"
CALL = '<tool_call>{"name": "edit_file", "arguments": {"path": "area.py"}}</tool_call>'


def rewarded(artifact: Artifact) -> dict[str, dict[str, Any]]:
    schema = schemas.experience_episodes(COLUMNS)
    return {
        row["episode_id"]: row for row in tables.read(artifact.path / "episodes.parquet", schema).to_pylist()
    }


def a_click(world: World, said: str = "still wrong") -> None:
    """Ada asks for a change, the agent edits and reports, she says it is still wrong and reverts nothing;
    an hour later one of the two changed lines is as the agent left it."""
    from stages.records import ToolCall

    call = ToolCall(id="c1", name="edit_file", arguments="")
    first = list(range(40))
    world.generation(
        "g1", "e1", 0, prompt=first, output=(1, 2, 3), request="change area to a product", answer=CALL,
        tool_calls=(call,), duration_ms=100.0,
    )  # fmt: skip
    second = [*first, 1, 2, 3, 90, 91, 92, 93]
    world.generation(
        "g2", "e1", 1_000, ordinal=1, prompt=second, output=(5, 6), request="change area to a product",
        answer="Done.", duration_ms=300.0,
    )  # fmt: skip
    world.event("g1", "edit_applied", 500, path="area.py", before=BEFORE, after=AFTER)
    world.event("g2", "user_message", 60_000, text=said)
    world.event(
        "g1", "edit_survival", HOUR + 500, path="area.py", horizon_s=3600, now="def area(w, h):\n    pass\n"
    )


def distilled(world: World, *overrides: str) -> StageResult:
    world.tick(3 * HOUR)
    world.collect()
    return world.run(STAGE, *overrides)
