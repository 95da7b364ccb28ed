"""Planted induction heads: a model nobody has trained goes on as its context did."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model(torch):
    from stages.seed.pretrain import Recipe, build_model

    model = build_model(Recipe(), eos=1, pad=0).eval()
    model.set_attn_implementation("eager")
    return model


def attention(torch, model, ids):
    with torch.no_grad():
        return model(ids[None], output_attentions=True).attentions


def test_the_first_heads_look_one_and_two_tokens_back(torch, model):
    ids = torch.randint(12, 1000, (120,), generator=torch.Generator().manual_seed(3))
    weights = attention(torch, model, ids)[0][0]
    for head, lag in ((0, 1), (1, 2)):
        assert all(weights[head, at, at - lag] > 0.8 for at in (5, 50, 100))


@pytest.mark.parametrize(("layer", "head", "after"), [(1, 0, 1), (2, 0, 1), (3, 0, 1), (2, 1, 2)])
def test_later_heads_look_for_what_followed_last_time(torch, model, layer, head, after):
    once = torch.randperm(1000, generator=torch.Generator().manual_seed(3))[:60] + 12
    weights = attention(torch, model, torch.cat([once, once]))[layer][0, head]
    by_offset = [torch.stack([weights[60 + i, i + k] for i in range(5, 55)]).mean() for k in range(-4, 5)]
    assert by_offset[4 + after] == max(by_offset)
    assert by_offset[4 + after] > 3 / 90  # three times what looking everywhere alike would give


def test_it_depends_on_the_seed_alone(torch):
    from stages.seed.pretrain import Recipe, build_model

    one, two = (build_model(Recipe(), eos=1, pad=0).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
