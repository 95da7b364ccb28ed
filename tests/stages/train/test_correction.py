"""The four off-policy corrections, against weights and gradients worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from stages.train.config import TrainConfig
from stages.train.correction import Weights, correction_of
from stages.train.loss import policy_loss
from stages.train.sequence_ratio import sequence_ratio
from tests.stages.train.world import TrainWorld


def weights(correction: str, ratios: list[float], signs: list[float], **settings: Any) -> Weights:
    """Of tokens with these ratios, all of one sequence; `signs` are their coefficients."""
    found = correction_of(TrainConfig(correction=correction, **settings))  # type: ignore[arg-type]
    sequence = torch.zeros(len(ratios), dtype=torch.int64)
    return found.weights(torch.tensor(ratios).log(), torch.tensor(signs), sequence)


def bounded(correction: str, ratios: list[float], sequence: list[int], **settings: Any) -> list[float]:
    found = correction_of(TrainConfig(correction=correction, **settings))  # type: ignore[arg-type]
    result: list[float] = found.bounded(torch.tensor(ratios).log(), torch.tensor(sequence)).tolist()
    return result


def test_truncated_weights_are_ratios_up_to_the_cap() -> None:
    found = weights("truncated", [1.0, 0.5, 9.0, 0.0, 1e30], [1.0, -1.0, 1.0, 1.0, -1.0])
    assert found.value.tolist() == pytest.approx([1.0, 0.5, 4.0, 0.0, 4.0])
    assert found.limited.tolist() == [False, False, True, False, True]
    extreme = correction_of(TrainConfig()).weights(
        torch.tensor([500.0]), torch.ones(1), torch.zeros(1).long()
    )
    assert extreme.value.tolist() == pytest.approx([4.0])


def test_the_bias_and_the_second_moment_of_truncation_are_bounded_as_by_hand() -> None:
    sampler, now, cap = torch.tensor([0.5, 0.4, 0.1]), torch.tensor([0.1, 0.1, 0.8]), 4.0
    value = weights("truncated", (now / sampler).tolist(), [1.0] * 3, importance_cap=cap).value
    # min(0.1, 2) + min(0.1, 1.6) + min(0.8, 0.4) = 0.6: the cap takes 0.4 of the policy's probability away
    assert float((sampler * value).sum()) == pytest.approx(0.6)
    # 0.5 * 0.04 + 0.4 * 0.0625 + 0.1 * 16 = 1.645, where the ratio itself has 6.445; never above the cap
    assert float((sampler * value**2).sum()) == pytest.approx(1.645)
    assert float((sampler * (now / sampler) ** 2).sum()) == pytest.approx(6.445)


def test_ppo_leaves_a_token_alone_only_where_it_is_pushed_further_out() -> None:
    ratios, signs = [1.3, 1.3, 0.7, 0.7, 1.1, 0.9], [1.0, -1.0, -1.0, 1.0, 2.0, -2.0]
    found = weights("ppo_clip", ratios, signs)
    assert found.value.tolist() == pytest.approx([0.0, 1.3, 0.0, 0.7, 1.1, 0.9])
    assert found.limited.tolist() == [True, False, True, False, False, False]
    unpushed = weights("ppo_clip", [1.3, 0.7], [0.0, 0.0])
    assert unpushed.value.tolist() == pytest.approx([1.3, 0.7])
    wider = weights("ppo_clip", [1.3, 0.7], [1.0, -1.0], ppo_clip_high=0.28, ppo_clip_low=0.4)
    assert wider.value.tolist() == pytest.approx([0.0, 0.7])


def test_the_gradient_of_ppo_is_that_of_its_clipped_surrogate() -> None:
    logged = torch.full((7,), -1.0, dtype=torch.float64)
    logp = logged + torch.tensor([-0.5, -0.2, -0.1, 0.0, 0.1, 0.19, 0.6], dtype=torch.float64)
    for sign in (1.0, -2.0):
        mine, theirs = logp.clone().requires_grad_(), logp.clone().requires_grad_()
        gradient(mine, logged, sign, TrainConfig(correction="ppo_clip"))
        ratio = (theirs - logged).exp()
        (-torch.minimum(ratio * sign, ratio.clamp(0.8, 1.2) * sign).sum()).backward()
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-12)


def test_the_gradient_of_the_sequence_ratio_is_gspos_times_the_length() -> None:
    logged = torch.full((4,), -1.0, dtype=torch.float64)
    logp = logged + torch.tensor([0.4, -0.2, 0.1, -0.1], dtype=torch.float64)  # mean 0.05
    for sign in (1.0, -1.0):
        mine, theirs = logp.clone().requires_grad_(), logp.clone().requires_grad_()
        config = TrainConfig(correction="sequence_ratio", sequence_clip_low=0.03, sequence_clip_high=0.03)
        gradient(mine, logged, sign, config)
        ratio = (theirs - logged).mean().exp()
        (-4 * torch.minimum(ratio * sign, ratio.clamp(0.97, 1.03) * sign)).backward()
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-12)
        assert bool(mine.grad.any()) == (sign < 0)  # 1.051 is beyond 1.03: no further up


def gradient(logp: Tensor, logged: Tensor, sign: float, config: TrainConfig) -> None:
    loss, _ = policy_loss(
        logp,
        logged,
        torch.full_like(logged, sign),
        torch.zeros(len(logged), dtype=torch.int64),
        correction=correction_of(config),
        constant=1.0,
    )
    loss.backward()


def test_a_sequence_has_one_ratio_the_geometric_mean_of_its_tokens() -> None:
    log_ratio = torch.tensor([2.0, 0.5, 0.25, 4.0, 0.0]).log()
    found = sequence_ratio(log_ratio, torch.tensor([0, 0, 1, 1, 1]))
    # sqrt(2 * 0.5) = 1, sqrt(0.25 * 4) = 1; the token that is ruled out has none and counts into none
    assert found.tolist() == pytest.approx([1.0, 1.0, 1.0, 1.0, 0.0])
    assert sequence_ratio(torch.tensor([2.0, 8.0]).log(), torch.tensor([0, 0])).tolist() == pytest.approx(
        [4, 4]
    )
    assert sequence_ratio(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).tolist() == []


def test_a_token_that_is_ruled_out_now_adds_nothing_to_the_loss() -> None:
    logp = torch.tensor([-1.0, -math.inf], requires_grad=True)
    loss, _ = policy_loss(
        logp,
        torch.tensor([-1.0, -1.0]),
        torch.tensor([3.0, 2.0]),
        torch.zeros(2, dtype=torch.int64),
        correction=correction_of(TrainConfig()),
        constant=2.0,
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 1.5  # not nan, which 0 times infinity is
    assert logp.grad is not None
    assert logp.grad.tolist() == [-1.5, 0.0]


def test_implausible_tokens_are_left_out_on_both_sides_and_the_rest_keeps_its_ratio() -> None:
    ratios = [0.1, 0.49, 0.5, 1.0, 5.0, 5.1, 0.0]
    found = weights("plausibility_mask", ratios, [1.0, -1.0] * 3 + [1.0])
    assert found.value.tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 5.0, 0.0, 0.0])
    assert found.limited.tolist() == [True, True, False, False, False, True, False]


def test_averages_over_the_policy_take_the_ratio_within_the_bounds() -> None:
    ratios, together = [0.5, 1.1, 9.0, 0.0], [0, 0, 0, 0]
    assert bounded("truncated", ratios, together) == pytest.approx([0.5, 1.1, 4.0, 0.0])
    assert bounded("ppo_clip", ratios, together) == pytest.approx([0.8, 1.1, 1.2, 0.0])
    assert bounded("plausibility_mask", ratios, together) == pytest.approx([0.5, 1.1, 0.0, 0.0])
    mean = (0.5 * 1.1 * 9.0) ** (1 / 3)
    wide = {"sequence_clip_low": 0.9, "sequence_clip_high": 1.0}
    assert bounded("sequence_ratio", ratios, together, **wide) == pytest.approx([mean] * 3 + [0.0])
    assert bounded("sequence_ratio", ratios, together) == pytest.approx([1.0004] * 3 + [0.0])


@pytest.mark.parametrize("name", ["truncated", "ppo_clip", "sequence_ratio", "plausibility_mask"])
def test_on_policy_every_correction_is_no_correction(name: str) -> None:
    found = weights(name, [1.0] * 5, [1.0, -1.0, 0.5, 0.0, 3.0])
    assert found.value.tolist() == [1.0] * 5
    assert not found.limited.any()


def test_a_bound_of_another_correction_is_refused() -> None:
    with pytest.raises(ValidationError, match="plausible_high belongs to the correction plausibility_mask"):
        TrainConfig(correction="ppo_clip", plausible_high=3.0)
    with pytest.raises(ValidationError, match="importance_cap belongs to the correction truncated"):
        TrainConfig(correction="plausibility_mask", importance_cap=2.0)
    assert (
        TrainConfig(**TrainConfig(correction="ppo_clip", ppo_clip_low=0.1).model_dump()).ppo_clip_low == 0.1
    )
    assert math.isclose(TrainConfig(importance_cap=2.0).importance_cap, 2.0)


@pytest.mark.parametrize("correction", ["ppo_clip", "sequence_ratio", "plausibility_mask"])
def test_every_correction_trains_and_is_in_the_fingerprint(world: TrainWorld, correction: str) -> None:
    world.experience(world.episodes(12))
    first = world.train()
    result = world.train(f"train.correction={correction}")
    assert result.status == "succeeded"
    assert result.metrics["stopped"] == "", (
        "GSPO's range takes most tokens out of later steps, and loses none"
    )
    assert result.run_id != first.run_id
    # the first step is on-policy: the same gradient whatever the correction
    steps = [each.metrics["optimizer_steps"] for each in (first, result)]
    assert steps[0][0]["grad_norm"] == pytest.approx(steps[1][0]["grad_norm"], rel=1e-3)
    assert steps[0][-1]["clipped"] == 0.0
    if correction == "sequence_ratio":
        assert steps[1][-1]["clipped"] > 0.5  # its range is narrow
        assert any("its bounds are narrow" in warning for warning in result.warnings)
