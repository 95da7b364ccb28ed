"""A run in figures, by hand; and the table of causes, complete."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from cursorbench.graders import correctness
from cursorbench.graders.efficiency import Usage
from cursorbench.harness.budget import INFRASTRUCTURE, StopReason
from evals.trials import causes
from evals.trials.record import Record
from evals.trials.summary import losses, summarise, void


def record(task: str, attempt: int, cause: str = "solved", **more: Any) -> Record:
    passed = None if causes.infrastructure(cause) else cause == "solved"
    return Record(
        key=f"{task}{attempt}",
        task=task,
        cluster=task[0],
        attempt=attempt,
        cause=cause,
        passed=passed,
        **more,
    )


def test_every_way_to_end_is_in_the_table() -> None:
    reasons = {reason for reason in get_args(correctness.Reason) if reason}
    assert reasons <= causes.TABLE.keys()
    for stop in set(StopReason) - INFRASTRUCTURE - {StopReason.ANSWERED}:
        assert causes.of_stop(stop) in causes.TABLE, stop
    assert causes.of_stop(StopReason.ANSWERED) == ""
    for cause in causes.TABLE.values():
        assert (cause.grade == "none") is (cause.whose == "infrastructure")


def test_what_a_model_does_is_never_infrastructure() -> None:
    for stop in set(StopReason) - INFRASTRUCTURE - {StopReason.ANSWERED}:
        assert not causes.infrastructure(causes.of_stop(stop))


def test_figures_by_hand() -> None:
    records = [
        record("a1", 0, usage=Usage(prompt_tokens=90, output_tokens=10, calls=1)),
        record("a1", 1, "failed", usage=Usage(prompt_tokens=200, output_tokens=100, calls=3)),
        record("b1", 0, "max_turns", usage=Usage(prompt_tokens=390, output_tokens=10, calls=4)),
        record("b1", 1, "engine_down"),
        record("c1", 0, right=True, did="acted", quality={"lint": 2, "types": None, "size_ratio": 1.5}),
        record("c1", 1, right=False, did="asked", correctness={"flags": ("deciding",)}),
        record("d1", 0, "failed", ambiguous=True, right=True, did="asked"),
    ]
    found = summarise(records, 2)
    figures = {(one.axis, one.name): one.estimate for one in found.figures}
    assert (found.tasks, found.trials, found.graded, found.infrastructure) == (4, 7, 6, 1)
    assert figures["correctness", "pass@1"].value == pytest.approx((0.5 + 0 + 1) / 3)
    assert figures["correctness", "pass@2"].value == pytest.approx(1.0)  # of a1 and c1; b1 has one attempt
    assert figures["correctness", "pass@2"].cases == 2
    assert figures["efficiency", "tokens"].value == pytest.approx((200 + 400) / 2)
    assert figures["correctness", "pass@1"].cases == 3, "not the ambiguous one"
    assert figures["efficiency", "model_calls"].value == pytest.approx((2 + 4) / 2)
    assert figures["interaction", "right"].value == pytest.approx((0.5 + 1) / 2)
    assert figures["interaction", "asked"].value == pytest.approx((0 + 0 + 0.5 + 1) / 4)
    assert figures["quality", "lint_added"].value == 2
    assert ("quality", "types_added") not in figures
    assert ("efficiency", "cost") not in figures
    assert found.causes == {"solved": 3, "max_turns": 1, "failed": 2, "engine_down": 1}
    assert found.flags == {"deciding": 1}
    assert "1 of 7" in found.void
    document = found.to_json()
    assert document["axes"]["correctness"]["pass@1"]["clusters"] == 3


def test_void_above_one_in_a_hundred() -> None:
    assert void(100, 1) == ""
    assert void(100, 2)
    assert void(0, 0)


def test_all_lost_gives_no_figure() -> None:
    found = summarise([record("a1", 0, "sandbox_died")], 1)
    assert found.figures[0].estimate.value is None
    assert found.void
    said = [
        record("a1", n, cause, detail=f"no\nagent {n}") for n, cause in enumerate(["agent_unstarted"] * 2)
    ]
    assert losses([*said, record("a1", 3, detail="x")]) == ["lost: 2 as agent_unstarted: no agent 1"]
