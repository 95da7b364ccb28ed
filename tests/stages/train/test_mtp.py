"""The multi-token prediction head: its formula, its training, and that it changes nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages import modelio
from stages.errors import IntegrityError, UsageError
from stages.progress import Silent
from stages.runlog import NoLog
from stages.train import attention, mtp_head
from stages.train.config import TrainConfig
from stages.train.forward import Budget
from stages.train.mtp_head import MtpHead, head_of
from stages.train.packing import pack
from stages.train.self_distillation import distil, divergence
from tests.stages.train.test_update import make_batch
from tests.stages.train.tiny import tiny_model
from tests.stages.train.world import SETTINGS, TrainWorld

MTP = "mtp_passes = 4\nmtp_learning_rate = 3e-3\n"


def _packed_model() -> Any:
    model = tiny_model(1)
    model.set_attn_implementation(attention.register())
    return model


def _by_hand(head: MtpHead, model: Any, hidden: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """The head on one sequence, with a causal softmax written out."""

    def norm(values: torch.Tensor, layer: Any) -> torch.Tensor:
        return layer.weight * values / (values.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()

    embedded = model.model.embed_tokens(torch.tensor(ids))
    embedded[0] = 0
    joined = torch.cat([norm(hidden, head.hidden_layernorm), norm(embedded, head.token_layernorm)], -1)
    x = joined @ head.input_proj.weight.T
    block, n = head.block, len(ids)
    a = norm(x, block.input_layernorm)
    q, k, v = (getattr(block.self_attn, f"{name}_proj")(a).view(n, -1, 8) for name in "qkv")
    cos, sin = model.model.rotary_emb(x[None], torch.arange(n)[None])

    def rotated(values: torch.Tensor) -> torch.Tensor:
        turned = torch.cat([-values[..., 4:], values[..., :4]], -1)
        return values * cos[0][:, None] + turned * sin[0][:, None]

    q, k = rotated(q), rotated(k)
    out = torch.zeros_like(q)
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // 2].T / math.sqrt(8)
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
        out[:, h] = scores.softmax(-1) @ v[:, h // 2]
    x = x + block.self_attn.o_proj(out.reshape(n, -1))
    b = norm(x, block.post_attention_layernorm)
    mlp = block.mlp
    x = x + mlp.down_proj(torch.nn.functional.silu(mlp.gate_proj(b)) * mlp.up_proj(b))
    return norm(x, head.final_layernorm)


def test_the_head_is_its_formula_also_where_packed_sequences_share_a_beginning() -> None:
    model = _packed_model()
    head = MtpHead(model, seed=0)
    with torch.no_grad():
        head.input_proj.weight.add_(torch.randn_like(head.input_proj.weight) * 0.1)
        sequences = [[5, 7, 9, 11, 13], [5, 7, 9, 20], [30, 31]]
        packed = pack([np.array(ids, np.int32) for ids in sequences])
        states = [torch.randn(5, 32), torch.randn(4, 32), torch.randn(2, 32)]
        states[1][:3] = states[0][:3]  # the same beginning has the same states
        hidden = torch.zeros(packed.tokens, 32)
        for mine, cells in zip(states, packed.cells, strict=True):
            hidden[torch.from_numpy(cells)] = mine
        found = head(model, hidden, packed)
        for ids, mine, cells in zip(sequences, states, packed.cells, strict=True):
            expected = _by_hand(head, model, mine, ids)
            assert torch.allclose(found[torch.from_numpy(cells)], expected, atol=1e-5)


def test_divergence_by_hand_in_one_block_and_in_many() -> None:
    # two tokens; logits are the hidden states themselves: p = (1/2, 1/2), q = (3/4, 1/4)
    student = torch.log(torch.tensor([[3.0, 1.0], [1.0, 1.0], [1.0, 3.0]])).requires_grad_()
    teacher = torch.zeros(3, 2)
    one = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    for rows in (1, 2, 3):
        student.grad = None
        total = divergence(student, teacher, lambda hidden: hidden, block_rows=rows)
        total.backward()
        assert float(total.detach()) == pytest.approx(2 * one, abs=1e-6)
        # d KL / d logits = q - p
        assert torch.allclose(student.grad, torch.tensor([[0.25, -0.25], [0, 0], [-0.25, 0.25]]), atol=1e-6)


def test_a_run_trains_the_head_and_leaves_the_policy_as_it_would_be_without(world: TrainWorld) -> None:
    world.experience(world.episodes(40))
    plain = world.train().outputs["checkpoint"]
    (world.root / "ws" / "rtrl.toml").write_text(SETTINGS + MTP)
    world = TrainWorld(world.root)
    result = world.train()
    child = result.outputs["checkpoint"]
    store = world.store
    whole, with_head = store.checkpoint_folder(plain), store.checkpoint_folder(child)
    assert (whole / "model.safetensors").read_bytes() == (with_head / "model.safetensors").read_bytes()
    assert modelio.read_config(whole) == modelio.read_config(with_head)
    told = result.metrics["mtp"]
    assert told["kl_last"] < told["kl_first"]
    assert told["acceptance_after"] > told["acceptance_before"]
    assert not told["continued"]
    assert modelio.read_config(with_head / "mtp")["architectures"] == ["MiMoForCausalLM"]
    names = set(load_file(with_head / "mtp" / "model.safetensors"))
    assert "model.mtp_layers.0.self_attn.q_proj.weight" in names
    assert "model.mtp_layers.0.input_proj.weight" in names


def test_the_next_run_goes_on_with_the_parents_head(world: TrainWorld) -> None:
    model = _packed_model()
    head = MtpHead(model, seed=3)
    folder = world.root / "somewhere"
    modelio.save_checkpoint(model, folder, companions=folder, dtype="float32")
    mtp_head.write_head(head, folder, "float32")
    again, continued = head_of(model, folder, seed=4)
    assert continued
    for name, value in head.tensors().items():
        assert torch.equal(again.tensors()[name], value), name
    with pytest.raises(IntegrityError, match="not one of this model"):
        head_of(tiny_model(1, hidden_size=16), folder, seed=4)
    (folder / "mtp" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(IntegrityError, match="damaged"):
        head_of(model, folder, seed=4)


def test_a_head_whose_last_step_broke_it_is_not_published() -> None:
    """The next run goes on with what is published, and had to stop."""
    model, batch = _packed_model(), make_batch(tiny_model(1))
    config = TrainConfig(mtp_passes=1, mtp_learning_rate=1e30)
    with pytest.raises(IntegrityError, match="not finite") as caught:
        distil(
            model, MtpHead(model, seed=0), batch.rows, config,
            budget=Budget(4096, 64), seed=0, continued=False, log=NoLog(), progress=Silent(),
        )  # fmt: skip
    assert "mtp_learning_rate" in caught.value.hint


def test_another_architecture_is_refused_before_anything_is_computed(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UsageError, match="llama"):
        mtp_head.require_fit(tmp_path)
