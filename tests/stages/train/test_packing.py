import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.train import attention
from stages.train.logprobs import hidden_states, output_head
from stages.train.packing import micro_batches, pack
from tests.stages.train.tiny import tiny_model


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 100))
def test_every_sequence_is_in_one_micro_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = micro_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[index] for index in batch) <= budget


def test_neighbours_in_length_go_together() -> None:
    assert micro_batches([3, 9, 4, 8, 3], 10) == [[1], [3], [2, 0, 4]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_rectangles_hold_every_token_once_in_order(lengths: list[int]) -> None:
    packed = pack([np.arange(length, dtype=np.int32) for length in lengths])
    cells = [each.rows.flatten()[each.valid] for each in packed.rectangles]
    assert torch.equal(torch.cat(cells), torch.arange(sum(lengths)))
    assert packed.tokens == sum(lengths)
    # ids were 0, 1, 2... in every sequence, and so are positions
    assert torch.equal(packed.ids, packed.positions)


def test_padding_in_a_rectangle_is_bounded() -> None:
    rng = np.random.default_rng(0)
    lengths = sorted(rng.integers(1, 200, 300).tolist(), reverse=True)
    packed = pack([np.zeros(length, dtype=np.int32) for length in lengths], waste=0.1)
    cells = sum(each.rows.numel() for each in packed.rectangles)
    assert cells * 0.9 <= sum(lengths) <= cells
    assert len(packed.rectangles) < 40


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4},
        {"sliding_window": 8, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 2},
    ],
    ids=["grouped-query", "multi-head", "sliding-window"],
)
def test_packed_logits_and_gradients_are_those_of_each_sequence_alone(changes: dict[str, object]) -> None:
    model = tiny_model(3, **changes)
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 64, length).astype(np.int32) for length in (50, 48, 47, 20, 19, 5, 1)]
    alone = [model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0] for ids in sequences]
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    sum((logits @ weight).tanh().sum() for logits in alone).backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()

    model.set_attn_implementation(attention.register())
    logits = output_head(model)(hidden_states(model, pack(sequences)))
    assert torch.allclose(logits, torch.cat(alone), atol=2e-5)
    (logits @ weight).tanh().sum().backward()
    for name, parameter in model.named_parameters():
        scale = expected[name].abs().max().clamp(min=1.0)
        assert torch.allclose(parameter.grad / scale, expected[name] / scale, atol=1e-5), name


def test_a_soft_cap_on_the_logits_is_applied() -> None:
    model = tiny_model(3)
    hidden = torch.randn(4, 32)
    plain = output_head(model)(hidden)
    model.config.final_logit_softcapping = 5.0
    assert torch.allclose(output_head(model)(hidden), 5 * torch.tanh(plain / 5))


def test_attention_that_packing_cannot_compute_is_refused() -> None:
    model = tiny_model()
    model.set_attn_implementation(attention.register())
    with pytest.raises(UsageError, match="mask"):
        model(input_ids=torch.zeros(1, 3, dtype=torch.long))
