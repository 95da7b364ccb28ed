import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.train import attention
from stages.train.logprobs import hidden_states, output_head
from stages.train.packing import micro_batches, pack
from tests.stages.train.strangers import TRAINED, stranger
from tests.stages.train.tiny import tiny_model

SEQUENCES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12).map(lambda ids: np.array(ids, dtype=np.int32)),
    min_size=1,
    max_size=12,
)


@given(SEQUENCES, st.integers(1, 40))
def test_every_sequence_is_in_one_micro_batch_within_the_budget(
    sequences: list[np.ndarray], budget: int
) -> None:
    batches = micro_batches(sequences, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(sequences)))
    for batch in batches:
        packed = pack([sequences[index] for index in batch])
        assert len(batch) == 1 or packed.tokens <= budget


def test_sequences_that_begin_alike_go_together() -> None:
    a, b, c = ([1, 2, 3, 4, 5, 6], [7, 7], [1, 2, 3, 4, 8])
    sequences = [np.array(ids, dtype=np.int32) for ids in (a, b, c)]
    # a and c have 4 tokens in common: 6 + 1 packed tokens
    assert micro_batches(sequences, 7) == [[0, 2], [1]]
    assert pack([sequences[0], sequences[2]]).tokens == 7


@given(SEQUENCES)
def test_a_pack_holds_every_distinct_prefix_once(sequences: list[np.ndarray]) -> None:
    packed = pack(sequences)
    prefixes = {tuple(ids[: n + 1]) for ids in sequences for n in range(len(ids))}
    assert packed.tokens == len(prefixes)
    for ids, cells in zip(sequences, packed.cells, strict=True):
        assert packed.ids[0, cells].tolist() == ids.tolist()
        assert packed.positions[0, cells].tolist() == list(range(len(ids)))
    kept = torch.cat([each.rows.flatten()[each.owned] for each in packed.rectangles])
    assert kept[packed.restore].tolist() == list(range(packed.tokens))


def test_padding_in_a_rectangle_is_bounded() -> None:
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 9, n).astype(np.int32) for n in rng.integers(1, 200, 300)]
    packed = pack(sequences, waste=0.1)
    for each in packed.rectangles:
        real = sum(len(set(row.tolist())) for row in each.rows)
        assert real >= 0.9 * each.rows.numel()
    assert len(packed.rectangles) < 40


@pytest.mark.parametrize("which", TRAINED)
def test_packed_logits_and_gradients_are_those_of_each_sequence_alone(which: str) -> None:
    model = stranger(*TRAINED[which])
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 64, length).astype(np.int32) for length in (20, 50, 48, 1, 47, 19, 5)]
    for index, shared in ((1, 12), (2, 30), (4, 30), (5, 19)):  # common beginnings, one whole sequence
        sequences[index][:shared] = sequences[0 if shared < 20 else 1][:shared]
    alone = [model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0] for ids in sequences]
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    sum((logits @ weight).tanh().sum() for logits in alone).backward()
    reached = {name: each for name, each in model.named_parameters() if each.grad is not None}
    expected = {name: each.grad.clone() for name, each in reached.items()}
    model.zero_grad()

    model.set_attn_implementation(attention.register())
    packed = pack(sequences)
    assert packed.tokens < sum(len(ids) for ids in sequences) - 50
    cells = torch.from_numpy(np.concatenate(packed.cells))
    logits = output_head(model)(hidden_states(model, packed))[cells]
    assert torch.allclose(logits, torch.cat(alone), atol=2e-5)
    (logits @ weight).tanh().sum().backward()
    for name, parameter in reached.items():
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
