"""The objective against closed forms: a tabular softmax policy in float64, expectations by enumeration.

A table of logits [contexts, ids] is the model: hidden states are one-hot contexts, the head is the table.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.linestate import Baseline
from stages.records import Sampling
from stages.train.advantage import advantages
from stages.train.config import TrainConfig
from stages.train.correction import Correction, correction_of
from stages.train.kl import k1, k3
from stages.train.logprobs import token_logprobs
from stages.train.loss import policy_loss
from stages.train.objective import build_objective
from stages.train.sampling import Processing

TRUNCATED = correction_of(TrainConfig())
UNBOUNDED = correction_of(TrainConfig(importance_cap=1e9))


def table(contexts: int, ids: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(contexts, ids, generator=generator, dtype=torch.float64).requires_grad_()


def logprobs(logits: Tensor, contexts: Tensor, ids: Tensor, sampling: Sampling | None = None) -> Tensor:
    """log pi(ids | contexts) [n] by the trainer's own code, in blocks of 3 rows."""
    hidden = torch.nn.functional.one_hot(contexts, len(logits)).to(logits.dtype)
    processing = Processing.of([sampling or Sampling()] * len(ids))
    logp, _ = token_logprobs(hidden, ids, lambda rows: rows @ logits, processing, block_rows=3)
    return logp


def gradient(
    logits: Tensor,
    contexts: Tensor,
    ids: Tensor,
    logged: Tensor,
    coefficient: Tensor,
    *,
    correction: Correction = TRUNCATED,
    constant: float = 1.0,
    sampling: Sampling | None = None,
) -> Tensor:
    """Of the loss, by the trainer's own code."""
    logp = logprobs(logits, contexts, ids, sampling)
    sequence = torch.zeros(len(ids), dtype=torch.int64)
    loss, _ = policy_loss(logp, logged, coefficient, sequence, correction=correction, constant=constant)
    (found,) = torch.autograd.grad(loss, logits)
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.75])  # engines hold temperatures in float32
def test_the_gradient_of_a_batch_is_the_analytic_one(temperature: float) -> None:
    """d loss / d theta[c, v] = -1/C sum over c's tokens of w a (1[y = v] - pi(v | c)) / T."""
    logits = table(4, 6)
    generator = torch.Generator().manual_seed(1)
    contexts = torch.randint(4, (40,), generator=generator)
    ids = torch.randint(6, (40,), generator=generator)
    coefficient = torch.randn(40, generator=generator, dtype=torch.float64)
    policy = (logits.detach() / temperature).softmax(-1)
    drawn = policy[contexts, ids]
    logged = (drawn * torch.empty(40, dtype=torch.float64).uniform_(0.05, 1.5, generator=generator)).log()
    found = gradient(
        logits, contexts, ids, logged, coefficient, constant=17.0, sampling=Sampling(temperature=temperature)
    )
    expected = torch.zeros_like(logits)
    for context, token, a, old, now in zip(contexts, ids, coefficient, logged.exp(), drawn, strict=True):
        weight = min(float(now / old), 4.0)
        score = (torch.eye(6, dtype=torch.float64)[token] - policy[context]) / temperature
        expected[context] -= weight * a * score / 17.0
    assert (found - expected).abs().max() < 1e-10
    assert (drawn / logged.exp() > 4).any()  # some weights are capped


def test_over_all_trajectories_it_is_the_policy_gradient() -> None:
    """Two tokens an episode, J = sum of pi(a) pi(b | a) R[a, b]; with Q(a) = sum_b pi(b | a) R[a, b]:

    dJ/d theta[0, a] = pi(a) (Q(a) - J), dJ/d theta[1 + a, b] = pi(a) pi(b | a) (R[a, b] - Q(a))
    """
    logits, reward = table(4, 3), table(3, 3, seed=5).detach()
    policy = logits.detach().softmax(-1)
    first, second = policy[0], policy[1:]
    value = (second * reward).sum(-1)
    total = (first * value).sum()
    expected = torch.cat(
        [(first * (value - total))[None], first[:, None] * second * (reward - value[:, None])]
    )
    pairs = list(itertools.product(range(3), range(3)))
    contexts = torch.tensor([c for a, _ in pairs for c in (0, 1 + a)])
    ids = torch.tensor([token for pair in pairs for token in pair])
    weight = torch.stack([first[a] * second[a, b] * (reward[a, b] - 0.3) for a, b in pairs])  # any baseline
    logged = policy[contexts, ids].log()
    found = gradient(logits, contexts, ids, logged, weight.repeat_interleave(2))
    assert (found + expected).abs().max() < 1e-10


def test_off_policy_the_weights_make_it_the_policy_gradient_and_the_cap_biases_it_as_computed() -> None:
    logits, reward = table(1, 5), torch.tensor([1.0, -0.5, 0.2, 0.0, 3.0], dtype=torch.float64)
    policy, sampler = logits.detach().softmax(-1)[0], table(1, 5, seed=9).detach().softmax(-1)[0]
    contexts, ids = torch.zeros(5, dtype=torch.int64), torch.arange(5)
    exact = gradient(logits, contexts, ids, sampler.log(), sampler * reward, correction=UNBOUNDED)
    assert (exact + policy * (reward - (policy * reward).sum())).abs().max() < 1e-10
    cap = 1.2
    capped = correction_of(TrainConfig(importance_cap=cap))
    found = gradient(logits, contexts, ids, sampler.log(), sampler * reward, correction=capped)
    kept = torch.minimum(policy, cap * sampler)  # sampler times weight
    assert (kept < policy).any()
    assert (found + kept * reward - policy * (kept * reward).sum()).abs().max() < 1e-10


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "new line"])
def test_leave_one_out_baselines_do_not_bias_the_gradient(grouped: bool) -> None:
    """Over all pairs of rollouts of one task; the mean with itself in it would halve the gradient."""
    logits, reward = table(1, 4), np.array([1.0, -0.5, 0.2, 3.0])
    policy = logits.detach().softmax(-1)[0]
    expected = policy * (torch.from_numpy(reward) - float((policy.numpy() * reward).sum()))
    total = torch.zeros_like(logits)
    for pair in itertools.product(range(4), repeat=2):
        found, _ = advantages(
            reward[list(pair)],
            ["a", "a"],
            ["g", "g"] if grouped else ["", ""],
            {},
            shrinkage=8.0,
            scale=False,
        )
        ids = torch.tensor(pair)
        probability = policy[ids].prod()
        coefficient = probability * torch.from_numpy(found) / 2
        total += gradient(logits, torch.zeros(2, dtype=torch.int64), ids, policy[ids].log(), coefficient)
    assert (total + expected).abs().max() < 1e-10
    table_of_the_line = {"*": Baseline(0.4, 50.0)}
    found, _ = advantages(reward, ["a"] * 4, ["g"] * 4, table_of_the_line, shrinkage=8.0, scale=False)
    assert found[3] == pytest.approx(3.0 - (1.0 - 0.5 + 0.2) / 3)  # no running mean, no standard deviation


def test_k1_in_the_reward_has_the_gradient_of_the_kl_and_k3_has_not() -> None:
    logits, anchor = table(1, 5), table(1, 5, seed=3).detach().log_softmax(-1)[0]
    (expected,) = torch.autograd.grad(
        (logits.softmax(-1)[0] * (logits.log_softmax(-1)[0] - anchor)).sum(), logits
    )
    policy = logits.detach().log_softmax(-1)[0]
    contexts, ids = torch.zeros(5, dtype=torch.int64), torch.arange(5)
    by_k1 = gradient(logits, contexts, ids, policy, -policy.exp() * k1(policy, anchor))
    by_k3 = gradient(logits, contexts, ids, policy, -policy.exp() * k3(policy, anchor))
    assert (by_k1 - expected).abs().max() < 1e-10
    assert (by_k3 - expected).abs().max() > 0.01


def test_off_policy_a_token_that_pays_for_its_own_kl_has_the_gradient_of_the_kl() -> None:
    """Its weight counts once: the price had it too, and the gradient was that of w times the KL."""
    logits, anchor = table(1, 5), table(1, 5, seed=3).detach().log_softmax(-1)[0]
    (expected,) = torch.autograd.grad(
        (logits.softmax(-1)[0] * (logits.log_softmax(-1)[0] - anchor)).sum(), logits
    )
    policy, sampler = (each.detach().log_softmax(-1)[0] for each in (logits, table(1, 5, seed=9)))
    about = SimpleNamespace(stratum="a", group="", user="u", key_id="k", reward=0.4)
    batch = SimpleNamespace(
        episodes=[about] * 5,
        rewards=np.full(5, 0.4),
        episode_of=np.arange(5),
        row_of=np.arange(5),
        logged=sampler.numpy(),
    )
    config = TrainConfig(kl_credit="token", kl_coefficient=0.3, importance_cap=1e9)
    known = {"*": Baseline(0.4, 100.0), "a": Baseline(0.4, 100.0)}
    priced = build_objective(batch, policy.numpy(), anchor.numpy(), known, config)  # type: ignore[arg-type]
    coefficient = (
        torch.from_numpy(priced.coefficient).double() * sampler.exp()
    )  # each as often as it is drawn
    contexts, ids = torch.zeros(5, dtype=torch.int64), torch.arange(5)
    found = gradient(logits, contexts, ids, sampler, coefficient, correction=UNBOUNDED)
    assert (found - 0.3 * expected).abs().max() < 1e-6


def test_off_policy_an_episode_that_pays_for_its_kl_has_the_gradient_of_the_kl() -> None:
    """Two tokens an episode, all pairs of episodes as often as a sampler draws them, nothing capped.

    The first token has the gradient of KL(policy, anchor) of whole episodes; the second, in context 1 + a,
    that of its own KL as often as the sampler comes there. Its own KL was weighed twice: w^2 in place of w.
    """
    logits, reference = table(4, 3), table(4, 3, seed=3).detach().log_softmax(-1)
    sampler, policy = table(4, 3, seed=9).detach().log_softmax(-1), logits.log_softmax(-1)
    per_context = (policy.exp() * (policy - reference)).sum(-1)
    whole = per_context[0] + policy[0].exp() @ per_context[1:]
    as_drawn = sampler[0].exp() @ per_context[1:]
    (of_first,) = torch.autograd.grad(whole, logits, retain_graph=True)
    (of_second,) = torch.autograd.grad(as_drawn, logits)
    now, about = policy.detach(), SimpleNamespace(stratum="a", group="", user="u", key_id="k", reward=0.4)
    config = TrainConfig(kl_credit="episode", kl_coefficient=1.0, importance_cap=1e9)
    total = torch.zeros_like(logits)
    for a, b, other_a, other_b in itertools.product(range(3), repeat=4):
        ids, contexts = torch.tensor([a, b, other_a, other_b]), torch.tensor([0, 1 + a, 0, 1 + other_a])
        drawn = sampler[contexts, ids]
        batch = SimpleNamespace(
            episodes=[about] * 2,
            rewards=np.full(2, 0.4),
            episode_of=np.array([0, 0, 1, 1]),
            row_of=np.array([0, 0, 1, 1]),
            logged=drawn.numpy(),
        )
        logps = (each[contexts, ids].numpy() for each in (now, reference))
        priced = build_objective(batch, *logps, {"*": Baseline(0.4, 100.0)}, config)  # type: ignore[arg-type]
        coefficient = -torch.from_numpy(priced.penalty) * drawn.sum().exp() / 2
        total += gradient(logits, contexts, ids, drawn, coefficient, correction=UNBOUNDED)
    assert (total[0] - of_first[0]).abs().max() < 1e-10
    assert (total[1:] - of_second[1:]).abs().max() < 1e-10


@pytest.mark.parametrize("shift", [0.1, 0.5, 1.0, 2.0, 3.0])
def test_both_are_unbiased_and_the_variance_of_k3_explodes_with_the_divergence(shift: float) -> None:
    """Policy N(0, 1), reference N(m, 1): KL = m^2 / 2, Var k1 = m^2, Var k3 = exp(m^2) - 1 - m^2."""
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    width = float(x[1] - x[0])
    log_policy, log_reference = (-((x - mean) ** 2) / 2 - np.log(2 * np.pi) / 2 for mean in (0.0, shift))
    for estimator, variance in ((k1, shift**2), (k3, np.expm1(shift**2) - shift**2)):
        values = estimator(log_policy, log_reference)
        mean = float((log_policy.exp() * values).sum() * width)
        second = float((log_policy.exp() * values**2).sum() * width)
        assert mean == pytest.approx(shift**2 / 2, rel=1e-6)
        assert second - mean**2 == pytest.approx(variance, rel=1e-4, abs=1e-9)
    # near the reference k3 is the quieter one; at 2 nats it has 12 times the variance of k1, at 4.5 900 times
    assert (np.expm1(shift**2) - shift**2 < shift**2) == (shift <= 1)


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_one_constant_prefers_no_length_and_a_mean_per_sequence_does(advantage: float) -> None:
    """A bandit of a short and a long answer of equal reward, compared with a baseline that is off.

    Context 0 chooses; the long answer goes on through contexts 1 to 3. By hand, with a mean per sequence:
    -d loss / d theta[0, long] = a pi_s pi_l (1/4 - 1); with one constant it is 0.
    """
    logits = table(4, 2)
    policy = logits.detach().softmax(-1)
    constant, per_sequence = torch.zeros_like(logits), torch.zeros_like(logits)
    rest = [list(each) for each in itertools.product(range(2), repeat=3)]
    for answer in [[0], *([1, *each] for each in rest)]:
        ids, contexts = torch.tensor(answer), torch.arange(len(answer))
        drawn = policy[contexts, ids]
        coefficient = (drawn.prod() * advantage).expand(len(answer))
        constant += gradient(logits, contexts, ids, drawn.log(), coefficient, constant=2.5)
        per_sequence += gradient(logits, contexts, ids, drawn.log(), coefficient, constant=len(answer))
    assert constant.abs().max() < 1e-10
    short, long = policy[0]
    assert -float(per_sequence[0, 1]) == pytest.approx(advantage * float(short * long) * (1 / 4 - 1))
    # wrong answers: the long one is pushed down less, and so preferred; right answers: the short one
    assert (-float(per_sequence[0, 1]) > 0) == (advantage < 0)
