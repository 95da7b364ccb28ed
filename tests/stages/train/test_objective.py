"""The coefficient of every token against docs/train.md, written down once more token by token."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from stages.linestate import Baseline
from stages.sequences import GenerationInfo
from stages.tokens import ExperienceEpisode
from stages.train.batch import Batch, Row
from stages.train.config import TrainConfig
from stages.train.kl import episode_penalty
from stages.train.objective import Objective, build_objective
from tests.stages.train import naive

TABLE = {"*": Baseline(0.3, 40.0), "a": Baseline(0.5, 10.0)}
BASELINE = {"a": (10 * 0.5 + 16 * 0.3) / 26, "b": 0.3}
REWARDS = [1.4, -0.7, 0.2, -2.0, 0.95, -1.05]
USERS = ["heavy", "u1", "u2", "heavy", "u3", "heavy"]
BOUNDS: dict[str, dict[str, float]] = {
    "truncated": {"importance_cap": 1.2},
    "ppo_clip": {"ppo_clip_low": 0.15, "ppo_clip_high": 0.1},
    "sequence_ratio": {"sequence_clip_low": 0.05, "sequence_clip_high": 0.03},
    "plausibility_mask": {"plausible_low": 0.8, "plausible_high": 1.3},
}


def make() -> tuple[Batch, np.ndarray, np.ndarray]:
    """(batch, logprobs under parent, under anchor): two sequences an episode, far off-policy."""
    random = np.random.default_rng(3)
    batch = Batch(samplers=["s"], lags={"s": 0})
    first = 0
    for number, (reward, user) in enumerate(zip(REWARDS, USERS, strict=True)):
        name = f"e{number}"
        batch.episodes.append(ExperienceEpisode(name, user, "k", "ab"[number % 2], reward, True, "", ""))
        for length in (3, 1 + number):
            zeros = np.zeros(length, np.int64)
            logged = random.uniform(-2, -0.1, length).astype(np.float32)
            info = GenerationInfo(f"{name}-0", 2, 2 + length, naive.PLAIN)
            ids = np.arange(2 + length, dtype=np.int32)
            row = Row(number, ids, np.arange(2, 2 + length), logged, zeros, zeros, (info,), first)
            batch.rows.append(row)
            first += length
    noise = random.normal(0, 0.2, (2, first)).astype(np.float32)
    return batch, batch.logged + noise[0], batch.logged + noise[0] + noise[1]


def bounded(config: TrainConfig, ratio: float) -> float:
    """The ratio within the correction's bounds."""
    if config.correction == "truncated":
        return min(ratio, config.importance_cap)
    if config.correction == "plausibility_mask":
        return ratio if config.plausible_low <= ratio <= config.plausible_high else 0.0
    low, high = clips(config)
    return min(max(ratio, 1 - low), 1 + high)


def weight(config: TrainConfig, ratio: float, coefficient: float) -> float:
    """What the loss weighs a token with."""
    if config.correction in ("truncated", "plausibility_mask"):
        return bounded(config, ratio)
    low, high = clips(config)
    out = (coefficient > 0 and ratio > 1 + high) or (coefficient < 0 and ratio < 1 - low)
    return 0.0 if out else ratio


def clips(config: TrainConfig) -> tuple[float, float]:
    if config.correction == "ppo_clip":
        return config.ppo_clip_low, config.ppo_clip_high
    return config.sequence_clip_low, config.sequence_clip_high


def by_hand(config: TrainConfig) -> tuple[list[float], list[float]]:
    """Of every token: its coefficient before the caps, and its weight."""
    batch, parent, anchor = make()
    tokens = range(batch.tokens)
    ratio = [math.exp(float(parent[t]) - float(batch.logged[t])) for t in tokens]
    rows: dict[int, list[int]] = defaultdict(list)
    for t in tokens:
        rows[int(batch.row_of[t])].append(t)
    if config.correction == "sequence_ratio":
        means = {row: math.prod(ratio[t] for t in of) ** (1 / len(of)) for row, of in rows.items()}
        ratio = [means[int(batch.row_of[t])] for t in tokens]
    kl = [float(parent[t]) - float(anchor[t]) for t in tokens]
    within = [bounded(config, one) for one in ratio]
    whole = [sum(within[t] * kl[t] for t in tokens if batch.episode_of[t] == e) for e in range(len(REWARDS))]
    coefficients = []
    for t in tokens:
        e = int(batch.episode_of[t])
        price = kl[t]
        if config.kl_credit == "episode":
            weighed = rows[int(batch.row_of[t])] if config.correction == "sequence_ratio" else [t]
            own = sum(kl[s] - within[s] * kl[s] for s in weighed)  # in it without the weight of t
            price = whole[e] + own - (sum(whole) - whole[e]) / (len(whole) - 1)
        coefficients.append(REWARDS[e] - BASELINE["ab"[e % 2]] - config.kl_coefficient * price)
    return coefficients, [weight(config, r, a) for r, a in zip(ratio, coefficients, strict=True)]


def built(config: TrainConfig) -> Objective:
    batch, parent, anchor = make()
    return build_objective(batch, parent, anchor, TABLE, config)


def test_an_episode_alone_answers_for_its_own_kl() -> None:
    """K is 2 / 2 + 3, with each token's own k1 in place of its weighed one."""
    kl, weights, one = np.array([2.0, 3.0]), np.array([0.5, 1.0]), np.zeros(2, np.int64)
    assert episode_penalty(kl, weights, one, np.arange(2), 1).tolist() == [5.0, 4.0]


def test_the_key_of_a_product_is_not_capped_as_a_whole() -> None:
    """ "k" has most of the gradient, and one of four keys may have half of it."""
    batch, parent, anchor = make()
    of_the_key = TrainConfig(user_cap=1.0, key_cap=0.1)
    for number in (1, 2, 4):
        batch.episodes[number] = dataclasses.replace(batch.episodes[number], key_id=f"k{number}")
    assert set(build_objective(batch, parent, anchor, TABLE, of_the_key).capped.keys) == {"k"}
    assert build_objective(batch, parent, anchor, TABLE, of_the_key, ("k",)).capped.keys == {}


def settings(correction: str, **more: Any) -> TrainConfig:
    return TrainConfig(correction=correction, kl_coefficient=0.3, **BOUNDS[correction], **more)


@pytest.mark.parametrize("credit", ["episode", "token"])
@pytest.mark.parametrize("correction", list(BOUNDS))
def test_every_token_has_the_coefficient_of_the_docs(correction: str, credit: str) -> None:
    config = settings(correction, kl_credit=credit, user_cap=1.0)
    assert built(config).coefficient.tolist() == pytest.approx(by_hand(config)[0], abs=1e-5)


@pytest.mark.parametrize("correction", list(BOUNDS))
def test_a_users_share_is_of_what_the_loss_weighs(correction: str) -> None:
    """Half of the gradient is the largest share of one of four: "heavy" is scaled down to exactly that."""
    config = settings(correction, user_cap=0.1)
    coefficients, weights = by_hand(config)
    found, batch = built(config), make()[0]
    assert set(found.capped.users) == {"heavy"}
    shares: dict[str, float] = defaultdict(float)
    for t, (a, w) in enumerate(zip(coefficients, weights, strict=True)):
        e = int(batch.episode_of[t])
        assert found.coefficient[t] == pytest.approx(found.capped.factor[e] * a, abs=1e-5)
        shares[USERS[e]] += w * abs(found.coefficient[t])
    assert shares["heavy"] / sum(shares.values()) == pytest.approx(0.5, abs=1e-5)
