"""KL and the effective sample share, against numbers computed by hand."""

import math

import numpy as np
import pytest
import torch

from stages.train.guards import effective_sample_share
from stages.train.kl import episode_penalty, k1, k3


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
