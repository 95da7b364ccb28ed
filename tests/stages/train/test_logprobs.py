"""Processed logits against hand-computed distributions, and block-wise logprobs against plain ones."""

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stages.records import Sampling
from stages.train.logprobs import rows_within, token_logprobs
from stages.train.sampling import Penalty, Processing, processed_logits


def distribution(logits: list[float], sampling: Sampling, penalty: Penalty | None = None) -> list[float]:
    processing = Processing.of([sampling], [penalty] if penalty else [])
    return processed_logits(torch.tensor([logits]), processing).softmax(-1)[0].tolist()


LOGITS = [math.log(p) for p in (0.5, 0.25, 0.15, 0.1)]


def test_plain_sampling_needs_no_processing() -> None:
    processing = Processing.of([Sampling(), Sampling()])
    assert processing.temperature is None
    assert distribution(LOGITS, Sampling()) == pytest.approx([0.5, 0.25, 0.15, 0.1])


def test_temperature() -> None:
    squares = [0.25, 0.0625, 0.0225, 0.01]
    expected = [p / sum(squares) for p in squares]
    assert distribution(LOGITS, Sampling(temperature=0.5)) == pytest.approx(expected)


def test_top_k_keeps_the_k_largest() -> None:
    assert distribution(LOGITS, Sampling(top_k=2)) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_top_p_drops_the_smallest_that_add_up_to_the_rest() -> None:
    # ascending .1, .25, .5, ...: .1 <= .2 goes, .1 + .15 = .25 > .2 stays
    assert distribution(LOGITS, Sampling(top_p=0.8)) == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0])
    for least in (1e-6, 1e-9):  # 1 - 1e-9 is 1 in float32, and still the likeliest stays
        assert distribution(LOGITS, Sampling(top_p=least)) == pytest.approx([1, 0, 0, 0])


def test_top_p_acts_on_what_top_k_left() -> None:
    # after top-k 3: .5/.9, .25/.9, .15/.9 = .1667 <= .2 goes
    assert distribution(LOGITS, Sampling(top_k=3, top_p=0.8)) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_min_p_is_relative_to_the_largest() -> None:
    assert distribution(LOGITS, Sampling(min_p=0.4)) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert distribution(LOGITS, Sampling(min_p=1.0)) == pytest.approx([1, 0, 0, 0])  # never nothing


def test_penalties_by_hand() -> None:
    sampling = Sampling(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    penalty = Penalty(
        targets=torch.tensor([0]),
        steps=torch.tensor([3]),
        prompt=torch.tensor([3]),
        outputs=torch.tensor([0, 1, 0, 2]),  # only the first three were there before
        sampling=sampling,
    )
    logits = [3.0, -1.0, 0.5, -2.0]
    # 0: 3 / 2 - 2 * .5 - .25; 1: -1 * 2 - .5 - .25; 2: untouched; 3: in the prompt only, -2 * 2
    expected = torch.tensor([0.25, -2.75, 0.5, -4.0]).softmax(-1).tolist()
    assert distribution(logits, sampling, penalty) == pytest.approx(expected)


def test_counts_of_penalties_take_no_more_room_than_the_logits() -> None:
    size, length, rows = 5000, 300, 4
    outputs = torch.randint(size, (length,))
    steps = torch.tensor([0, 7, 8, 299])
    penalty = Penalty(torch.arange(rows), steps, torch.tensor([1]), outputs, Sampling(frequency_penalty=0.5))
    processing = Processing.of([penalty.sampling] * rows, [penalty])
    logits = torch.randn(rows, size)
    with Largest() as largest:
        got = processed_logits(logits, processing)
    assert largest.numel <= rows * size
    counts = [torch.bincount(outputs[:step], minlength=size) for step in steps.tolist()]
    assert torch.allclose(got, logits - 0.5 * torch.stack(counts))


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.numel = max(self.numel, out.numel())
        return out


def test_blocks_give_the_same_values_and_gradients_as_one_piece() -> None:
    torch.manual_seed(0)
    weight = torch.randn(11, 6, requires_grad=True)
    hidden = torch.randn(9, 6, requires_grad=True)
    targets = torch.randint(11, (9,))
    samplings = [Sampling(temperature=0.5 + i / 10, top_k=i, top_p=0.95) for i in range(9)]
    sampling = Sampling(presence_penalty=0.5)
    penalty = Penalty(
        torch.tensor([2, 3, 4, 5]), torch.tensor([0, 1, 2, 3]), torch.tensor([1]), targets[2:6], sampling
    )
    processing = Processing.of(samplings, [penalty])
    results = []
    for block_rows in (100, 4, 1):
        logp, entropy = token_logprobs(
            hidden, targets, lambda h: h @ weight.T, processing, block_rows=block_rows
        )
        finite = torch.where(logp.isfinite(), logp, 0.0)
        gradients = torch.autograd.grad((finite * torch.arange(9.0)).sum(), [hidden, weight])
        results.append((logp.detach(), entropy, *gradients))
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            assert torch.allclose(first, second, atol=1e-6)


def test_entropy_and_logp_by_hand() -> None:
    logits = torch.tensor([LOGITS])
    logp, entropy = token_logprobs(
        logits, torch.tensor([1]), lambda h: h, Processing.of([Sampling(top_k=2)]), block_rows=8
    )
    assert logp.item() == pytest.approx(math.log(1 / 3))
    assert entropy.item() == pytest.approx(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))


def test_a_token_that_was_ruled_out_has_no_gradient() -> None:
    logits = torch.tensor([LOGITS], requires_grad=True)
    logp, _ = token_logprobs(
        logits, torch.tensor([3]), lambda h: h, Processing.of([Sampling(top_k=2)]), block_rows=8
    )
    assert logp.item() == -math.inf
    torch.where(logp.isfinite(), logp, 0.0).sum().backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros(1, 4))


def test_block_size_follows_from_memory() -> None:
    assert rows_within(256, 512) == 131072
    assert rows_within(1, 10**9) == 1
