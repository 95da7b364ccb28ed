"""LoRA: published weights are base plus adapter, and the adapter goes on over cycles and kills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stages import modelio
from stages.errors import IntegrityError, UsageError
from stages.linestate import ADAPTER_FILE, MASTERS_FILE, LineState
from stages.train import adapter
from stages.train.adapter import Shape
from stages.train.config import TrainConfig
from stages.train.models import Models
from tests import processes
from tests.stages.train.moe import ARCHITECTURES, moe_model
from tests.stages.train.tiny import tiny_model
from tests.stages.train.world import SETTINGS, TrainWorld

LORA = "lora_rank = 2\nlora_alpha = 4.0\nlora_targets = 'q_proj,down_proj'\n"
SHAPE = Shape(2, 4.0, ("q_proj", "down_proj"))


@pytest.fixture
def lora(world: TrainWorld) -> TrainWorld:
    (world.root / "ws" / "rtrl.toml").write_text(SETTINGS + LORA)
    return TrainWorld(world.root)


def test_a_new_adapter_changes_nothing_and_a_merged_one_adds_b_a() -> None:
    model, plain = tiny_model(1), tiny_model(1)
    ids = torch.arange(4, 20)[None]
    adapter.attach(model, SHAPE, seed=0)
    assert torch.equal(model(ids).logits, plain(ids).logits)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained == set(adapter.values(dict(model.named_parameters())))
    assert len(trained) == 2 * 2 * 2  # A and B of two projections in two layers
    q = model.model.layers[0].self_attn.q_proj
    with torch.no_grad():
        q.lora_B["default"].weight.fill_(0.5)
    expected = plain.model.layers[0].self_attn.q_proj.weight + 2 * (
        q.lora_B["default"].weight @ q.lora_A["default"].weight
    )
    with_adapter = model(ids).logits
    adapter.detach(model)
    assert torch.allclose(model.model.layers[0].self_attn.q_proj.weight, expected, atol=1e-7)
    assert torch.allclose(model(ids).logits, with_adapter, atol=1e-5)
    assert {name for name, _ in model.named_parameters()} == {name for name, _ in plain.named_parameters()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("targets", [("all-linear",), ("q_proj", "gate_proj")])
def test_linear_layers_beside_experts_have_one_and_the_experts_none(
    architecture: str, targets: tuple[str, ...]
) -> None:
    """PEFT gave it to experts and router in place of the dense layers, and merging never came to an end."""
    model, plain = moe_model(1, architecture), moe_model(1, architecture)
    adapter.attach(model, Shape(2, 4.0, targets), seed=0)
    names = adapter.values(dict(model.named_parameters()))
    have_one = {name.partition(".lora_")[0] for name in names}
    linear = {name for name, each in plain.named_modules() if isinstance(each, torch.nn.Linear)} - {"lm_head"}
    ends = tuple(f".{target}" for target in targets)
    assert have_one == (linear if targets == ("all-linear",) else {n for n in linear if n.endswith(ends)})
    assert "model.layers.0.mlp.gate_proj" in have_one
    with torch.no_grad():
        for name in names:
            model.get_parameter(name).normal_(generator=torch.Generator().manual_seed(2))
    ids = torch.arange(4, 20)[None]
    with_adapter = model(ids).logits
    adapter.detach(model)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert torch.allclose(model(ids).logits, with_adapter, atol=1e-3)
    assert not torch.allclose(plain(ids).logits, with_adapter, atol=1e-1)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_one_half_of_a_tied_pair_has_no_adapter(target: str) -> None:
    """Merged, it changed both: what was published was not what had been trained."""
    shape = Shape(2, 4.0, ("q_proj", target))
    apart, tied = tiny_model(1), tiny_model(1, tie_word_embeddings=True)
    for model in (apart, tied):
        adapter.attach(model, shape, seed=0)
    adapter.require_sound(apart, shape)
    with pytest.raises(UsageError, match=r"lm_head and model\.embed_tokens are one matrix"):
        adapter.require_sound(tied, shape)


def test_names_that_no_layer_has_are_refused(world: TrainWorld) -> None:
    world.experience(world.episodes(8))
    for targets, message in (
        ("q_proj,k_prj", "no layer is called k_prj"),
        ("proj", "not found"),
        ("all-linear,lm_head", "names of layers"),
        (",", "names of layers"),
    ):
        with pytest.raises(UsageError, match=message):
            world.train("train.lora_rank=2", f"train.lora_targets={targets}")


def test_the_same_seed_gives_the_same_adapter() -> None:
    one, two = tiny_model(1), tiny_model(1)
    adapter.attach(one, SHAPE, seed=3)
    adapter.attach(two, SHAPE, seed=3)
    for (name, a), (_, b) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="no_such_proj"):
        adapter.attach(tiny_model(1), Shape(2, 4.0, ("no_such_proj",)), seed=0)


def test_a_rank_above_every_matrix_is_refused_before_it_takes_memory() -> None:
    adapter.attach(tiny_model(1), Shape(32, 64.0, ("q_proj",)), seed=0)
    with pytest.raises(UsageError, match="no matrix of this model has a rank above 32"):
        adapter.attach(tiny_model(1), Shape(1_000_000, 2e6, ("q_proj",)), seed=0)


def test_a_damaged_adapter_is_an_integrity_failure(tmp_path: Path) -> None:
    (tmp_path / "adapter.safetensors").write_bytes(b"torn")
    with pytest.raises(IntegrityError) as caught:
        adapter.read(tmp_path / "adapter.safetensors")
    assert caught.value.code == 12


def test_the_checkpoint_is_merged_and_the_next_run_goes_on_with_the_adapter(lora: TrainWorld) -> None:
    lora.experience(lora.episodes(12))
    first = lora.train()
    child, state = first.outputs["checkpoint"], first.outputs["line_state"]
    assert LineState.load(state.path).masters == "adapter.safetensors"
    tensors, shape, base = adapter.read(state.path / "adapter.safetensors")
    assert (shape, base) == (SHAPE, lora.live)
    name = "model.layers.1.mlp.down_proj"
    b, a = (tensors[f"{name}.lora_{which}.default.weight"] for which in "BA")
    assert float(b.abs().max()) > 0
    parent, merged = lora.model(base), lora.weights(first)
    expected = parent.get_submodule(name).weight + 2 * (b @ a)
    assert torch.allclose(merged[f"{name}.weight"], expected, atol=1e-7)
    untouched = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(merged[untouched], parent.state_dict()[untouched])

    # as PEFT loads it, on the base: the same model
    from peft import PeftModel

    told = json.loads((child.path / "adapter" / "adapter_config.json").read_text())
    assert (told["r"], told["target_modules"]) == (2, ["down_proj", "q_proj"])
    theirs = PeftModel.from_pretrained(
        modelio.load_model(lora.store.resolve(base).path), child.path / "adapter"
    )
    ids = torch.arange(4, 20)[None]
    assert torch.allclose(theirs(input_ids=ids).logits, lora.model(child.digest)(ids).logits, atol=1e-4)

    lora.promote(child.digest)
    lora.experience(lora.episodes(12, seed=3, prefix="n"))
    second = lora.train()
    again, _, same_base = adapter.read(second.outputs["line_state"].path / "adapter.safetensors")
    assert same_base == base  # not the child: one adapter, carried on
    assert again.keys() == tensors.keys()
    assert not torch.equal(again[f"{name}.lora_B.default.weight"], b)
    moments = load_file(second.outputs["line_state"].path / "optimizer.safetensors")
    assert all(".lora_" in key for key in moments)


def test_rounded_checkpoints_lose_nothing_of_the_adapter(lora: TrainWorld) -> None:
    lora.experience(lora.episodes(12))
    bfloat = lora.train("train.export_dtype=bfloat16").outputs
    exact = lora.train("train.export_dtype=float32").outputs
    one, _, _ = adapter.read(bfloat["line_state"].path / "adapter.safetensors")
    other, _, _ = adapter.read(exact["line_state"].path / "adapter.safetensors")
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    # and training all weights takes over from there: the masters are base plus adapter, not the rounded file
    lora.promote(bfloat["checkpoint"].digest)
    lora.experience(lora.episodes(12, seed=3, prefix="n"))
    whole = lora.train("train.lora_rank=0", "train.learning_rate=1e-12", "train.export_dtype=float32")
    merged = dict(modelio.tensors(lora.store.checkpoint_folder(exact["checkpoint"])))
    assert all(torch.allclose(value, merged[name], atol=1e-9) for name, value in lora.weights(whole).items())
    assert LineState.load(whole.outputs["line_state"].path).masters == "checkpoint"


@pytest.mark.parametrize("rank", [0, 3])
def test_what_is_put_together_from_shards_is_what_was_trained(lora: TrainWorld, rank: int) -> None:
    """Sharded (every GPU, several processes), an adapter of another shape was put on the old base: what the
    one before it had learnt was lost."""
    lora.experience(lora.episodes(12))
    for number, options in enumerate((["train.lora_rank=0"], ["train.learning_rate=3e-2"])):
        made = lora.train("train.export_dtype=bfloat16", "engine.dtype=bfloat16", *options)
        lora.promote(made.outputs["checkpoint"].digest)
        lora.experience(lora.episodes(12, seed=number + 1, prefix=f"n{number}"))
    state = made.outputs["line_state"]
    assert {MASTERS_FILE, ADAPTER_FILE} <= {path.name for path in state.path.iterdir()}
    config = TrainConfig(lora_rank=rank, lora_targets="q_proj")
    models = Models(config, made.outputs["checkpoint"], state.path, lora.store, seed=0)
    model = models.policy()
    models.sharded = True  # of one process: the whole model is put together again
    again = models.finished(model)
    models.sharded = False
    plain = models.finished(model)
    assert again is not None
    assert plain is not None
    weights = dict(plain.model.named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in again.model.named_parameters())


@pytest.mark.usefixtures("steps_kept")
def test_a_killed_run_goes_on_with_the_same_adapter(lora: TrainWorld) -> None:
    lora.experience(lora.episodes(16))
    fault = {"RTRL_FAULT": "train.step.rename.after:2"}
    killed = processes.python("tests.stages.train.world", str(lora.root), env=fault)
    assert killed.returncode == processes.KILLED, killed.stderr
    resumed = lora.train()
    undisturbed = lora.train(force=True)
    assert undisturbed.outputs["checkpoint"].digest == resumed.outputs["checkpoint"].digest
    assert undisturbed.outputs["line_state"].digest == resumed.outputs["line_state"].digest
