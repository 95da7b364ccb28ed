"""Importance weights, KL and user caps, against numbers computed by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.train.contributor_cap import cap_factors, capped_shares, effective_cap
from stages.train.importance import effective_sample_share, truncated_weights
from stages.train.kl import episode_penalty, k1, k3


def test_weights_are_ratios_up_to_the_cap() -> None:
    now = torch.log(torch.tensor([0.5, 0.2, 0.9, 0.1])).requires_grad_()
    logged = torch.log(torch.tensor([0.5, 0.4, 0.1, 0.2]))
    weights = truncated_weights(now, logged, cap=4.0)
    assert weights.tolist() == pytest.approx([1.0, 0.5, 4.0, 0.5])
    assert not weights.requires_grad


def test_weights_of_impossible_and_of_extreme_tokens() -> None:
    weights = truncated_weights(torch.tensor([-math.inf, 0.0]), torch.tensor([-1.0, -500.0]), cap=4.0)
    assert weights.tolist() == pytest.approx([0.0, 4.0])


def test_effective_sample_share() -> None:
    assert effective_sample_share(torch.ones(7)) == pytest.approx(1.0)
    # (1 + 3)^2 / (2 * (1 + 9)) = 16 / 20
    assert effective_sample_share(torch.tensor([1.0, 3.0])) == pytest.approx(0.8)
    assert effective_sample_share(torch.zeros(3)) == 0.0


def test_k1_and_k3_by_hand() -> None:
    logp, ref = torch.log(torch.tensor([0.5])), torch.log(torch.tensor([0.25]))
    assert k1(logp, ref).item() == pytest.approx(math.log(2))
    assert k3(logp, ref).item() == pytest.approx(0.5 - 1 + math.log(2))


def test_k1_is_unbiased_and_k3_has_the_larger_tail() -> None:
    policy, ref = torch.tensor([0.7, 0.2999, 0.0001]), torch.tensor([0.1, 0.1, 0.8])
    exact = float((policy * (policy / ref).log()).sum())
    first, third = k1(policy.log(), ref.log()), k3(policy.log(), ref.log())
    assert float((policy * first).sum()) == pytest.approx(exact, abs=1e-6)
    assert float((policy * third).sum()) == pytest.approx(exact, abs=1e-3)
    assert float((policy * third**2).sum()) > 10 * float((policy * first**2).sum())


def test_the_penalty_is_relative_to_the_other_episodes() -> None:
    # K = [0.3, 0.5, 0.1]; others' means 0.3, 0.2, 0.4
    result = episode_penalty(np.array([0.1, 0.2, 0.5, 0.1]), np.array([0, 0, 1, 2]), 3)
    assert result == pytest.approx([0.0, 0.3, -0.3])


def test_a_user_above_the_cap_is_scaled_to_exactly_the_cap() -> None:
    # others sum to 9, cap 0.1: L = 0.1 * 9 / 0.9 = 1
    contributions = {"loud": 5.0} | {f"u{i}": 0.9 for i in range(10)}
    factors = cap_factors(contributions, 0.1)
    assert factors["loud"] == pytest.approx(0.2)
    assert all(factors[f"u{i}"] == 1.0 for i in range(10))


def test_two_users_above_the_cap_share_one_level() -> None:
    # cap 0.25, rest 2: L = 0.25 * 2 / 0.5 = 1
    factors = cap_factors({"a": 4.0, "b": 2.0, "c": 0.8, "d": 0.7, "e": 0.5}, 0.25)
    assert factors["a"] == pytest.approx(0.25)
    assert factors["b"] == pytest.approx(0.5)
    assert factors["c"] == factors["d"] == factors["e"] == 1.0


def test_small_teams_are_not_flattened() -> None:
    assert effective_cap(0.1, {"a": 1.0}) == 1.0
    assert effective_cap(0.1, {"a": 1.0, "b": 2.0, "c": 0.0}) == 1.0
    assert effective_cap(0.1, {str(i): 1.0 for i in range(5)}) == pytest.approx(0.4)
    assert effective_cap(0.1, {str(i): 1.0 for i in range(100)}) == 0.1
    assert cap_factors({"only": 3.0, "silent": 0.0}, 1.0) == {"only": 1.0, "silent": 1.0}


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
    st.floats(0.01, 1.0),
)
def test_no_share_exceeds_the_cap(values: list[float], cap: float) -> None:
    contributions = {str(i): value for i, value in enumerate(values)}
    cap = effective_cap(cap, contributions)
    factors = cap_factors(contributions, cap)
    scaled = {user: contributions[user] * factors[user] for user in contributions}
    assert all(0 < factor <= 1 for factor in factors.values())
    assert max(scaled.values()) <= cap * sum(scaled.values()) * (1 + 1e-9)


def test_a_client_that_invents_users_is_capped_by_its_key() -> None:
    # key "bad" is eight users of 1 each, three others one user of 1 each: no user is loud, the key is.
    # cap 0.5 (two of four): L = 0.5 * 3 / 0.5 = 3, so its episodes keep 3/8
    keys = ["bad"] * 8 + ["k1", "k2", "k3"]
    cap, reached, factors = capped_shares(keys, [1.0] * 11, 0.25)
    assert (cap, reached) == (0.5, {"bad": pytest.approx(0.375)})
    assert factors == pytest.approx([0.375] * 8 + [1.0] * 3)
    assert capped_shares(["only"] * 3, [1.0, 2.0, 3.0], 0.25) == (1.0, {}, [1.0] * 3)
