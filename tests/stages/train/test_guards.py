"""Guards: what they measure, where they are seen, and what they stop."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from stages.errors import InconclusiveError, IntegrityError, UsageError
from stages.progress import Silent
from stages.train.config import TrainConfig
from stages.train.correction import correction_of
from stages.train.guards import Watch, limit_exceeded, live
from stages.train.moments import Moments, moments_of, read_moments, restore, write_moments
from tests.stages.train.world import TrainWorld, other_model
from tests.stages.world import consumed_episodes

FIGURES = ("grad_norm", "ratio_p01", "ratio_p50", "ratio_p99", "clipped", "ess", "kl_parent", "kl_anchor",
           "kl_anchor_k3", "entropy", "tokens_per_s", "learning_rate")  # fmt: skip


class Told(Silent):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def test_the_figures_of_a_step_by_hand() -> None:
    watch = Watch()
    logged = torch.zeros(4)
    now = torch.tensor([0.5, 1.0, 2.0, 8.0]).log()
    anchor = torch.tensor([0.5, 0.5, 1.0, 1.0]).log()
    weights = correction_of(TrainConfig()).weights(now - logged, torch.ones(4), torch.zeros(4).long())
    watch.add(now, torch.tensor([1.0, 2.0, 3.0, 4.0]), weights, logged, now, anchor)
    found = watch.figures()
    assert found["ratio_p50"] == pytest.approx(1.5)
    assert found["clipped"] == 0.25
    # weights 0.5, 1, 2, 4: (7.5)^2 / (4 * 21.25)
    assert found["ess"] == pytest.approx(56.25 / 85)
    assert found["kl_parent"] == pytest.approx(0.0)
    assert found["entropy"] == 2.5
    # k1: 0, log 2, log 2, log 8; k3 = r - 1 - log r with r = 1, 1/2, 1/2, 1/8
    log2 = 0.6931472
    assert found["kl_anchor"] == pytest.approx((1 * log2 + 2 * log2 + 4 * 3 * log2) / 4)
    assert found["kl_anchor_k3"] == pytest.approx(
        (1 * (log2 - 0.5) + 2 * (log2 - 0.5) + 4 * (3 * log2 - 0.875)) / 4
    )


def test_the_kl_to_the_parent_by_hand() -> None:
    """k3 of the parent's tokens, r = pi_now / pi_parent; tokens that either rules out say nothing of it."""
    watch, zeros = Watch(), torch.zeros(4)
    parent = torch.tensor([0.5, 0.5, 0.5, 0.0]).log()
    now = torch.tensor([1.0, 0.25, 0.0, 0.5]).log()
    logged = torch.tensor([0.25, 0.25, 0.25, 0.25]).log()
    weights = correction_of(TrainConfig()).weights(now - logged, torch.ones(4), zeros.long())
    watch.add(now, zeros, weights, logged, parent, torch.full((4,), -torch.inf))
    found = watch.figures()
    assert found["kl_parent"] == pytest.approx((2 - 1 - math.log(2) + 0.5 - 1 + math.log(2)) / 2)
    assert found["ruled_out"] == 0.25
    assert found["kl_anchor"] is found["kl_anchor_k3"] is None
    assert (found["ratio_max"], found["tokens"]) == (pytest.approx(4.0), 4)
    shown = {**found, "loss": 0.25, "grad_norm": 1.0, "tokens_per_s": 12.3}
    assert live(shown).endswith("kl parent 0.25, entropy 0, 12 tokens/s")  # no anchor's, which is not known


def test_what_a_clip_leaves_alone_is_not_lost_and_has_a_kl() -> None:
    """Two sequences of two tokens that are pushed up: one has gone far enough, the other half way back."""
    config = TrainConfig(correction="sequence_ratio")
    now = torch.tensor([2.0, 2.0, 0.5, 0.5]).log()
    sequence = torch.tensor([0, 0, 1, 1])
    zeros = torch.zeros(4)
    for direction, ess in ((torch.ones(4), 1.0), (torch.tensor([1.0, 1.0, -1.0, -1.0]), 1.0)):
        watch = Watch()
        watch.add(now, zeros, correction_of(config).weights(now, direction, sequence), zeros, zeros, zeros)
        found = watch.figures()
        assert found["clipped"] == (0.5 if direction.min() > 0 else 1.0)
        assert found["ess"] == ess  # it was 0.5, and 0
        assert found["kl_anchor"] == pytest.approx(
            (2 * 2 - 2 * 0.5) * math.log(2) / 4
        )  # ratio times log ratio
    watch = Watch()
    gone = torch.tensor([0.0, -torch.inf])
    clip = correction_of(TrainConfig(correction="ppo_clip"))
    watch.add(gone, zeros[:2], clip.weights(gone, -torch.ones(2), sequence[:2]), *[zeros[:2]] * 3)
    assert watch.figures()["ess"] == 0.5  # ruled out now


def test_limits_by_hand_and_zero_is_off() -> None:
    figures: dict[str, Any] = {"kl_parent": 0.3, "kl_anchor": 3.0, "ess": 0.25}
    assert "kl_stop 0.2" in limit_exceeded(figures, TrainConfig())
    assert "ess_stop 0.3" in limit_exceeded(figures, TrainConfig(kl_stop=0))
    assert limit_exceeded(figures, TrainConfig(kl_stop=0, ess_stop=0)) == ""
    off = TrainConfig(kl_stop=0, ess_stop=0, anchor_kl_stop=2.5)
    assert "KL to the anchor is 3 nats a token, limit anchor_kl_stop 2.5" in limit_exceeded(figures, off)
    assert limit_exceeded({"kl_parent": None, "kl_anchor": None, "ess": 1.0}, TrainConfig()) == ""


def test_every_step_is_in_the_log_and_shown_while_it_goes_on(world: TrainWorld) -> None:
    world.experience(world.episodes(20))
    told = Told()
    result = world.train(progress=told)
    log = (world.store.dir / "logs" / f"{result.run_id}.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, log) if line["event"] == "train.step"]
    assert len(steps) == 4
    assert all(isinstance(step[name], float) for step in steps for name in FIGURES)
    shown = [line for line in told.lines if line.startswith("optimizer step")]
    assert len(shown) == 4
    for word in (
        "loss",
        "grad norm",
        "ratio p1",
        "clipped",
        "ess",
        "kl parent",
        "kl anchor",
        "entropy",
        "tokens/s",
    ):
        assert word in shown[0]
    assert live(steps[0]) in shown[0]


@pytest.mark.parametrize(
    ("limit", "value"), [("ess_stop", 0.999), ("anchor_kl_stop", 1e-3), ("kl_stop", 1e-6)]
)
def test_a_limit_ends_the_update_and_only_what_was_used_is_consumed(
    world: TrainWorld, limit: str, value: float
) -> None:
    world.experience(world.episodes(20))
    sharp = ("train.kl_stop=0", f"train.{limit}={value}", "train.learning_rate=0.01")
    result = world.train(*sharp, "train.optimizer_steps=2")
    assert limit in result.metrics["stopped"]
    assert result.metrics["trained_episodes"] == 10 * len(result.metrics["optimizer_steps"]) == 10
    used = consumed_episodes(result.outputs["line_state"].path)
    assert len(used) == result.metrics["trained_episodes"]
    assert any(f"ended early: {result.metrics['stopped']}" in warning for warning in result.warnings)


def test_a_learning_rate_ten_times_too_high_is_stopped_by_default(world: TrainWorld) -> None:
    """Before half of its steps: nothing comes of it, however often it is tried."""
    world.experience(world.episodes(60))
    before = world.store.latest("checkpoint")
    said = r"ended after 1 of 4 optimizer steps: .*limit kl_stop 0\.2"
    for _ in range(2):
        with pytest.raises(InconclusiveError, match=said):
            world.train("train.learning_rate=1e-2")
        assert world.store.latest("checkpoint") == before
    usual = world.train("train.learning_rate=1e-3")
    assert usual.metrics["stopped"] == ""
    assert usual.metrics["trained_episodes"] == 60, "no episode was used up"


def test_a_batch_beyond_a_limit_from_the_start_changes_nothing(world: TrainWorld) -> None:
    world.promote(world.checkpoint(1, parent=world.live, model=other_model(world, 1)).digest)
    told = world.episodes(8)
    far = world.checkpoint(1, parent=world.live, model=other_model(world, 2, size=0.2))
    world.promote(far.digest)
    world.experience(told)
    with pytest.raises(InconclusiveError, match=r"no optimizer step was taken: .*ess_stop"):
        world.train("train.ess_stop=0.9")
    assert world.store.latest("checkpoint").digest == far.digest  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_moments_that_are_no_moments_stop_the_run_before_a_step(value: float, tmp_path: Path) -> None:
    """They would make the weights not finite only in the step, after which the good ones are gone."""
    tensors = {"exp_avg.w": torch.zeros(3), "exp_avg_sq.w": torch.tensor([1.0, value, 1.0])}
    write_moments(tmp_path / "moments", Moments(4, tensors))
    with pytest.raises(IntegrityError, match=r"exp_avg_sq\.w is not finite") as caught:
        read_moments(tmp_path / "moments")
    assert caught.value.code == 12


def test_a_last_step_that_leaves_no_numbers_publishes_nothing(world: TrainWorld) -> None:
    """No later step measures it, and weights of 1e15 are finite."""
    world.experience(world.episodes(8))
    with pytest.raises(IntegrityError, match="logprobs that are not finite") as caught:
        world.train("train.learning_rate=1e15", "train.optimizer_steps=1")
    assert "learning_rate" in caught.value.hint
    assert world.store.latest("checkpoint").digest == world.live  # type: ignore[union-attr]


def test_weights_that_no_token_reaches_have_moments_like_the_others() -> None:
    """A tower of images, of a model that is trained on text. The next run was told of another model."""
    parameters = {"text": torch.nn.Parameter(torch.ones(2)), "images": torch.nn.Parameter(torch.ones(3))}
    optimizer = torch.optim.AdamW(parameters.values())
    parameters["text"].sum().backward()
    optimizer.step()
    found = moments_of(optimizer, parameters)
    assert found.step == 1
    assert found.tensors["exp_avg_sq.images"].tolist() == [0, 0, 0]
    restore(torch.optim.AdamW(parameters.values()), parameters, found)


def test_an_update_that_moves_no_weight_is_refused_and_uses_nothing_up(world: TrainWorld) -> None:
    world.experience(world.episodes(12))
    with pytest.raises(UsageError, match="changed no logprob"):
        world.train("train.learning_rate=1e-30")
    assert world.train().metrics["trained_episodes"] == 12
