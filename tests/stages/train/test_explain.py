"""`rtrl train --explain`: the terms of one episode, held against the formulas and against a real run."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rtrl_cli.app import app
from stages.errors import InputMissingError, IntegrityError, UsageError
from stages.linestate import Baseline, LineState
from stages.runner import run_stage
from stages.train.run import STAGE
from tests.stages.train import naive
from tests.stages.train.test_diagnosis import attributed
from tests.stages.train.tiny import WORDS
from tests.stages.train.world import SPEC, TrainWorld, other_model


def explained(world: TrainWorld, episode: str, *settings: str, **options: Any) -> dict[str, Any]:
    stage = copy.copy(STAGE)
    stage.explain = episode
    result = run_stage(world.workspace, world.store, stage, (), settings, dry_run=True, **options)
    found: dict[str, Any] = result.metrics["plan"]
    return found


def tokens_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [token for sequence in found["sequences"] for token in sequence["tokens"]]


def test_every_term_is_what_the_formulas_say(world: TrainWorld) -> None:
    # the parent is one checkpoint after the sampler, which is the anchor: neither ratio nor KL is trivial
    sampler = world.live
    told = world.episodes(6)
    parent = world.checkpoint(1, parent=sampler, model=other_model(world, 1))
    world.promote(parent.digest)
    world.experience(told, LineState(baselines={SPEC: {"*": Baseline(0.25, 40.0)}}))
    found = explained(world, "e2", "train.kl_coefficient=0.5", "train.importance_cap=1.1", "train.user_cap=1")
    penalties, turn = [], told[2].turns[0]
    for episode in told:
        one = episode.turns[0]
        ids = np.array([*one.prompt, *one.output], np.int32)
        now = naive.logprobs(world.model(parent.digest), ids, len(one.prompt)).detach().numpy()
        ratio = np.exp(now - one.logprobs)
        penalties.append(float((np.minimum(ratio, 1.1) * (now - one.logprobs)).sum()))
        if episode is told[2]:
            mine = (now, ratio)
    others = np.mean([penalty for number, penalty in enumerate(penalties) if number != 2])
    reward = told[2].reward or 0.0
    constant = sum(len(episode.turns[0].output) for episode in told) / 4
    assert found["advantage"] == pytest.approx(reward - 0.25)
    assert found["kl"] == pytest.approx(penalties[2], abs=1e-5)
    assert found["constant"] == constant
    assert found["factor"] == 1.0
    tokens = tokens_of(found)
    assert [token["at"] for token in tokens] == list(
        range(len(turn.prompt), len(turn.prompt) + len(turn.output))
    )
    for number, token in enumerate(tokens):
        now, ratio = float(mine[0][number]), float(mine[1][number])
        assert token["text"].strip() == WORDS[turn.output[number]]
        assert token["lag"] == 1
        assert token["logged"] == pytest.approx(float(turn.logprobs[number]))
        assert token["logp"] == pytest.approx(now, abs=1e-5)
        assert token["ratio"] == pytest.approx(ratio, rel=1e-4)
        assert token["weight"] == pytest.approx(min(ratio, 1.1), rel=1e-4)
        assert token["limited"] == (ratio > 1.1)
        assert token["kl"] == pytest.approx(now - float(turn.logprobs[number]), abs=1e-5)
        kl, weight = now - float(turn.logprobs[number]), min(ratio, 1.1)
        coefficient = reward - 0.25 - 0.5 * (penalties[2] - others + (1 - weight) * kl)
        assert token["coefficient"] == pytest.approx(coefficient, rel=1e-4)
        assert token["loss"] == pytest.approx(-min(ratio, 1.1) * coefficient * now / constant, rel=1e-3)
    assert any(token["limited"] for token in tokens_of(explained(world, "e3", "train.importance_cap=1.01")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_losses_of_all_episodes_are_the_loss_of_the_run(world: TrainWorld, dtype: str) -> None:
    """In bfloat16 they were those of a run in float32."""
    world.experience(world.episodes(6, turns=2))
    settings = ("train.optimizer_steps=1", f"train.compute_dtype={dtype}")
    found = [explained(world, f"e{n}", *settings) for n in range(6)]
    (step,) = world.train(*settings).metrics["optimizer_steps"]
    assert sum(each["loss"] for each in found) == pytest.approx(step["loss"], abs=1e-5)
    assert sum(each["tokens"] for each in found) == step["tokens"]
    assert {each["optimizer_step"] for each in found} == {1}
    assert all(len(each["sequences"]) == 1 for each in found)


def test_what_is_not_trained_on_is_named_and_a_past_run_can_be_looked_into(world: TrainWorld) -> None:
    told = world.episodes(8)
    told[1].reward = None
    world.experience(told)
    with pytest.raises(InputMissingError, match="holds no episode nobody"):
        explained(world, "nobody")
    with pytest.raises(InputMissingError, match="e1 of experience@v1 is not trained on: reward_unknown"):
        explained(world, "e1")
    before = explained(world, "e0")
    answer = before["sequences"][0]["generations"][0]
    assert answer != "e0"
    assert explained(world, answer) == before
    done = world.train()
    world.promote(done.outputs["checkpoint"].digest)
    with pytest.raises(InputMissingError, match="e0 of experience@v1 is not trained on: consumed") as caught:
        explained(world, "e0")
    assert "--from-run" in (caught.value.hint or "")
    assert explained(world, "e0", from_run=done.run_id) == before


def test_a_batch_that_would_be_refused_is_explained_with_the_reason(world: TrainWorld) -> None:
    told = attributed(world.episodes(12), world.live, noise=0.3)
    world.experience(told)
    (problem,) = explained(world, "e0")["problems"]
    assert "on-policy proof" in problem
    with pytest.raises(IntegrityError):
        world.train()
    for episode in told:
        episode.reward = 1.0
    world.experience(told)
    assert "the batch teaches nothing" in explained(world, "e0")["problems"][-1]


def test_the_command_prints_a_table_and_json_and_runs_nothing(world: TrainWorld, tmp_path: Path) -> None:
    world.experience(world.episodes(6, turns=2))
    where = ["-w", str(world.workspace.root)]
    shown = CliRunner().invoke(app, ["train", "--explain", "e0", "--quiet", *where])
    assert shown.exit_code == 0, shown.output
    assert "sequence of e0-g0, e0-g1" in shown.output
    assert "tokens of context)" in shown.output
    assert "ratio" in shown.output
    asked = CliRunner().invoke(app, ["train", "--explain", "e0", "--json", "--quiet", *where])
    document = json.loads(asked.stdout)
    assert document["status"] == "succeeded"
    assert document["run_id"] is None
    total = sum(token["loss"] for token in tokens_of(document["metrics"]))
    assert math.isclose(total, document["metrics"]["loss"], abs_tol=1e-6)
    refused = CliRunner().invoke(app, ["train", "--explain", "e0", "--force", *where])
    assert isinstance(refused.exception, UsageError)
    assert all(run.stage != "train" for run in world.store.runs())
    assert world.store.latest("checkpoint").digest == world.live  # type: ignore[union-attr]
