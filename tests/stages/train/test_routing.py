"""Router replay: against numbers by hand, finite differences, and an engine that routes as it likes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stages.errors import IntegrityError, UsageError
from stages.routing import Routing
from stages.train import attention
from stages.train.logprobs import hidden_states, output_head
from stages.train.packing import Pack, pack
from stages.train.routing import Decisions, Replay, attach, decisions_of, routers
from tests.stages.train.moe import ARCHITECTURES, TOP_K, choice, forced, moe_model, routing

DECISIONS = 2 * TOP_K  # of a token: two layers have experts


def packed_logits(model: Any, packed: Pack) -> Tensor:
    model.set_attn_implementation(attention.register())
    return output_head(model)(hidden_states(model, packed))


class ToyLayer(nn.Module):
    """x -> the weighted sum of two experts' outputs, by a router of transformers'."""

    def __init__(self, top_k: int) -> None:
        super().__init__()
        from transformers import Qwen3MoeConfig
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

        config = Qwen3MoeConfig(hidden_size=1, num_experts=2, num_experts_per_tok=top_k, norm_topk_prob=False)
        self.gate = Qwen3MoeTopKRouter(config)

    def forward(self, x: Tensor, pack: Any = None) -> Tensor:
        _, weights, chosen = self.gate(x)
        return (weights * torch.tensor([10.0, 100.0])[chosen]).sum(-1)  # experts of 10 and of 100


class Toy(nn.Module):
    def __init__(self, top_k: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ToyLayer(top_k)])
        text = SimpleNamespace(num_hidden_layers=1)
        self.config = SimpleNamespace(get_text_config=lambda: text)


def test_a_two_expert_toy_by_hand() -> None:
    """Logits 0 and ln 3: the router would take expert 1 with weight 3/4; replayed is expert 0 with 1/4."""
    toy = Toy()
    gate: Any = toy.layers[0].gate
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([[0.0], [np.log(3.0)]]))
    x = torch.ones(3, 1)
    assert toy.layers[0](x).tolist() == pytest.approx([75.0, 75.0, 75.0])
    known = torch.tensor([[True], [True], [False]])
    replay = Replay(torch.tensor([0, 1, 0], dtype=torch.int32).view(3, 1, 1), known)
    attach(toy, replay)  # type: ignore[arg-type]
    out = toy.layers[0](x, pack=SimpleNamespace(replay=replay))
    assert out.tolist() == pytest.approx([2.5, 75.0, 75.0])
    assert decisions_of(replay) == Decisions(replayed=2, differed=1)
    out[0].backward()  # d p0 / d z0 = 1/4 * 3/4, d p0 / d z1 = -1/4 * 3/4, times the expert's 10
    assert gate.weight.grad.ravel().tolist() == pytest.approx([1.875, -1.875])
    assert toy.layers[0](x).tolist() == pytest.approx([75.0, 75.0, 75.0]), "without a pack it routes itself"


def test_what_names_an_expert_twice_is_no_choice() -> None:
    """Rows of zeros of a layer that the engine did not watch."""
    packed = pack(
        [np.arange(3, dtype=np.int32)],
        routings=[Routing(np.array([[[0, 0]], [[1, 0]], [[0, 1]]], np.uint8), np.array([True, True, False]))],
    )
    assert packed.replay is not None
    assert packed.replay.known.tolist() == [[False], [True], [False]]


@pytest.mark.parametrize(
    ("shape", "largest", "match"),
    [
        ((2, 2), 1, "of 2 layers, 2 choices.*the model has 1, 2 and 2"),
        ((1, 1), 1, "of 1 layers, 1 choices"),
        ((1, 2), 2, "ids up to 2"),
    ],
)
def test_routing_of_another_architecture_is_refused(shape: Any, largest: int, match: str) -> None:
    experts = torch.zeros(3, *shape, dtype=torch.int32)
    experts[0, 0, 0] = largest
    with pytest.raises(IntegrityError, match=match):
        attach(Toy(2), Replay(experts, torch.ones(3, shape[0], dtype=torch.bool)))  # type: ignore[arg-type]


def test_a_router_that_chooses_otherwise_is_refused() -> None:
    toy = Toy()
    gate: Any = toy.layers[0].gate
    gate.forward = lambda x: (x, x.new_ones(len(x), 1), torch.zeros(len(x), 1).long())
    replay = Replay(torch.zeros(3, 1, 1, dtype=torch.int32), torch.ones(3, 1, dtype=torch.bool))
    attach(toy, replay)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not choose experts by one topk"):
        toy.layers[0](torch.ones(3, 1), pack=SimpleNamespace(replay=replay))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_replay_of_its_own_choice_is_no_replay_exactly(architecture: str) -> None:
    model = moe_model(1, architecture)
    names = routers(model)
    assert list(names.values()) == [1, 2]
    ids = np.random.default_rng(0).integers(0, 64, 24).astype(np.int32)
    own = choice(24)
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda module, args, out, layer=layer: own.__setitem__((slice(None), layer), out[2].numpy())
        )
        for name, layer in names.items()
    ]
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(0))

    def run(packed: Pack) -> tuple[Tensor, dict[str, Tensor]]:
        logits = packed_logits(model, packed)
        model.zero_grad()
        (logits * weight).sum().backward()
        gradients = {
            name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
        }
        return logits.detach(), gradients

    plain, expected = run(pack([ids]))
    for hook in hooks:
        hook.remove()
    again = pack([ids], routings=[Routing(own, np.ones(24, bool))])
    logits, gradients = run(again)
    assert torch.equal(logits, plain)
    assert gradients.keys() == expected.keys()
    assert all(torch.equal(gradients[name], each) for name, each in expected.items())
    assert decisions_of(again.replay) == Decisions(24 * DECISIONS, 0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_replay_is_each_sequence_alone_with_its_experts(architecture: str) -> None:
    """Sequences that begin alike share positions only as far as their tokens went to the same experts."""
    model = moe_model(2, architecture)
    rng = np.random.default_rng(1)
    seeds = (0, 0, 1, 0)
    sequences = [rng.integers(0, 64, length).astype(np.int32) for length in (20, 26, 15, 9)]
    sequences[1][:12] = sequences[2][:12] = sequences[0][:12]
    routings = [
        Routing(choice(len(ids), seed), np.ones(len(ids), bool))
        for ids, seed in zip(sequences, seeds, strict=True)
    ]
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    alone, differed = [], Counter[str]()
    for ids, seed in zip(sequences, seeds, strict=True):
        with forced(model, seed) as counted:
            alone.append(model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0])
        differed[str(len(alone) - 1)] = sum(counted.values())
    sum((logits @ weight).tanh().sum() for logits in alone).backward()
    expected = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()

    packed = pack(sequences, routings=routings)
    assert packed.tokens == 20 + 26 - 12 + 15 + 9
    logits = packed_logits(model, packed)
    for cells, one in zip(packed.cells, alone, strict=True):
        assert (logits[cells] - one).abs().max() < 1e-4
    sum((logits[cells] @ weight).tanh().sum() for cells in packed.cells).backward()
    for name, each in model.named_parameters():
        if name in expected:
            assert each.grad is not None
            assert (each.grad - expected[name]).abs().max() < 1e-3 * (1 + expected[name].abs().max()), name
    found = decisions_of(packed.replay)
    assert found.replayed == packed.tokens * DECISIONS
    model.set_attn_implementation("sdpa")
    with forced(model) as counted:
        model(torch.from_numpy(sequences[0][:12].astype(np.int64))[None])
    assert found.differed == sum(differed.values()) - sum(counted.values())
    assert 0 < found.differed < found.replayed


def test_tokens_of_unknown_routing_go_where_the_router_sends_them() -> None:
    model = moe_model(3)
    ids = np.random.default_rng(2).integers(0, 64, 18).astype(np.int32)
    known = np.zeros(18, bool)
    known[12:] = True
    logits = packed_logits(model, pack([ids], routings=[Routing(choice(18), known)]))
    plain = packed_logits(model, pack([ids]))
    assert (logits[:12] - plain[:12]).abs().max() < 1e-5
    assert (logits[12:] - plain[12:]).abs().max() > 1e-2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_gates_gradient_is_that_of_finite_differences(architecture: str) -> None:
    model = moe_model(4, architecture).double()
    model.set_experts_implementation("eager")  # grouped products know no float64
    ids = np.random.default_rng(3).integers(0, 64, 16).astype(np.int32)
    packed = pack([ids], routings=[routing(16)])
    targets = torch.from_numpy(ids[1:].astype(np.int64))[:, None]

    def loss() -> Tensor:
        model.set_attn_implementation(attention.register())
        logits = model.lm_head(hidden_states(model, packed))
        return logits.log_softmax(-1)[:-1].gather(1, targets).sum()

    loss().backward()
    for layer in (1, 2):
        gate = model.model.layers[layer].mlp.gate.weight
        for place in gate.grad.abs().flatten().topk(5).indices.tolist():
            expert, column = divmod(place, gate.shape[1])
            step = 1e-3  # the router's softmax is in float32 whatever the model's dtype
            with torch.no_grad():
                before = float(gate[expert, column])
                gate[expert, column] = before + step
                above = float(loss())
                gate[expert, column] = before - step
                below = float(loss())
                gate[expert, column] = before
            assert abs(float(gate.grad[expert, column])) > 0.1
            assert float(gate.grad[expert, column]) == pytest.approx(
                (above - below) / (2 * step), rel=5e-3, abs=1e-3
            )


@pytest.mark.parametrize("how", ["recomputed", "compiled"])
def test_layers_that_are_recomputed_or_compiled_replay_too(how: str) -> None:
    model = moe_model(5)
    ids = np.random.default_rng(4).integers(0, 64, 16).astype(np.int32)

    def gradients() -> tuple[dict[str, Tensor], Decisions]:
        packed = pack([ids], routings=[routing(16)])
        model.zero_grad()
        packed_logits(model, packed).square().sum().backward()
        found = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
        return found, decisions_of(packed.replay)

    expected, counted = gradients()
    if how == "recomputed":
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        model.model.layers[2].compile(backend="eager", dynamic=True)
    again, twice = gradients()
    assert twice == counted
    for name, each in expected.items():
        torch.testing.assert_close(again[name], each, msg=name)
