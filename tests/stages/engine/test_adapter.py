"""Adapters beside a base: what is chosen and why not, what is proven, and the lies that are found."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch

from stages.engine.adapter import Ability, adapter_of, unable, unfit
from stages.engine.adapter_control import Adapters
from stages.engine.adapter_file import require_merged
from stages.engine.config import EngineConfig
from stages.engine.options import adapters, linear_layers
from stages.engine.verification import read_fingerprint
from stages.errors import DependencyDownError, IntegrityError
from tests.stages.engine.adapter_world import BASE, LAYER, Fake, Line, merged, parts_of, write_adapter


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


class Engine:
    """A fake with its `Adapters`; `served` and `writing` are names that nobody may unload."""

    def __init__(self, line: Line) -> None:
        self.line, self.control = line, Fake(line.base)
        self.served, self.writing = "", set[str]()
        here = {BASE: line.base}
        self.of = Adapters(self.control, here.get, lambda name: name == self.served or name in self.writing)

    async def serve(self, folder: Path) -> None:
        plan = self.of.plan(folder)
        assert self.of.holds(plan), plan.why
        assert (await self.of.attach(folder, plan)).probes.verdict in ("child", "undecided")
        self.served = plan.adapter.name if plan.adapter else ""


@pytest.fixture
async def engine(line: Line) -> Engine:
    made = Engine(line)
    await made.of.based(line.base)
    return made


def test_what_an_adapter_is(line: Line) -> None:
    one, again, two = line.adapter(1), adapter_of(line.root / "child1"), line.adapter(2)
    assert (one.base, one.rank, one.scale, one.modules, one.odd) == (BASE, 2, 2.0, {LAYER}, "")
    assert one == again
    assert one.name != two.name, "the prefix cache goes by the name"
    assert adapter_of(line.base) is None
    (line.root / "child1" / "adapter" / "adapter_config.json").write_text('{"r": 0}')
    with pytest.raises(IntegrityError, match="damaged"):
        adapter_of(line.root / "child1")


async def test_the_way_is_chosen_by_what_engine_and_checkpoint_can_and_the_reason_told(
    line: Line, engine: Engine
) -> None:
    good = engine.of.plan(line.child(1))
    assert (good.weights, good.why) == (line.base, "")
    assert engine.of.holds(good)
    assert engine.of.holds(engine.of.plan(line.base)), "its own base needs nothing else"
    reasons = {
        "rank 16, the engine takes 8 (engine.lora_rank)": {"r": 16},
        "has use_dora": {"use_dora": True},
        "on lm_head": {"target_modules": [LAYER, "lm_head"]},
        "base is not in this store": {"base_model_name_or_path": "sha256:other"},
    }
    for number, (why, config) in enumerate(reasons.items()):
        folder = line.child(10 + number, **config)
        plan = engine.of.plan(folder)
        assert (plan.weights, plan.adapter) == (folder, None)
        assert why in plan.why
        assert not engine.of.holds(plan)
    other = line.child(20)
    (other / "tokenizer.json").write_text('{"another": 1}')
    assert "more than weights" in engine.of.plan(other).why
    (other / "adapter" / "adapter_config.json").write_text("{")
    assert "damaged" in engine.of.plan(other).why


def test_an_engine_has_adapters_when_it_was_told_so_and_can(line: Line) -> None:
    assert unable(EngineConfig()) == "engine.lora_rank is 0"
    assert unable(EngineConfig(lora_rank=8, program="stub"))
    assert "spread" in unable(EngineConfig(lora_rank=8, extra_args=("-tp", "2")))
    assert unable(EngineConfig(lora_rank=8)) == ""
    assert unfit(line.adapter(1), Ability(frozenset(), 0)), "an engine without room"
    with pytest.raises(ValidationError, match="exclude each other"):
        EngineConfig(lora_rank=8, draft_tokens=2)


def test_vllm_gets_room_for_the_next_rank_on_linear_layers_alone(line: Line, tmp_path: Path) -> None:
    assert linear_layers(line.base) == ["embed", "head", LAYER], "vLLM calls its own embed_tokens and lm_head"
    told = adapters(line.base, EngineConfig(lora_rank=9))
    assert told[told.index("--max-lora-rank") + 1] == "16"
    assert adapters(line.base, EngineConfig()) == []
    experts = tmp_path / "moe"
    experts.mkdir()
    save_torch({"m.experts.0.up.weight": torch.zeros(2, 2)}, experts / "model.safetensors")
    assert adapters(experts, EngineConfig(lora_rank=8)) == []


async def test_swaps_keep_the_one_before_and_unload_what_nobody_needs(line: Line, engine: Engine) -> None:
    first, second, third, fourth = (line.child(seed) for seed in (1, 2, 3, 4))
    for folder in (first, second, first, third):
        await engine.serve(folder)
    loads = engine.control.loads
    assert len(loads) == 3, "a rollback loads nothing"
    engine.writing = {loads[0]}
    await engine.serve(fourth)
    held = {name for name, _ in engine.control.adapters.values()}
    assert held == {loads[0], loads[2], loads[3]}, "an answer is still written with the first"
    engine.writing = set(held)
    engine.control.config = EngineConfig(lora_rank=8, update_timeout_s=0.05)
    with pytest.raises(DependencyDownError, match="still written"):
        await engine.of.attach(second, engine.of.plan(second))
    await engine.of.based(line.base)
    assert engine.control.adapters == {}, "other weights: no adapter is left"


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ("nothing", "holds no more than before"),
        ("wrong", "holds other values for layer"),
        ("unscaled", "still answers as the parent"),
        ("cache", "keys and values of other weights"),
        ("dirty", "last slot"),
        ("far", "0.0002 nats off the merged weights.*allows 0.0001"),
    ],
)
async def test_an_engine_that_says_yes_and_did_not_is_found_out(
    line: Line, engine: Engine, lie: str, told: str
) -> None:
    await engine.serve(line.child(1))
    before = dict(engine.control.adapters)
    engine.control.lie = lie
    with pytest.raises(IntegrityError, match=told):
        await engine.serve(line.child(2))
    assert engine.control.adapters == before, "the old one stays, the other is gone"
    engine.control.lie = ""
    await engine.serve(line.root / "child1")


async def test_a_base_that_is_not_what_it_was_is_seen(line: Line, engine: Engine) -> None:
    engine.control.rotten = "embed"
    with pytest.raises(IntegrityError, match="holds other values for embed"):
        await engine.serve(line.child(1))


async def test_an_adapter_that_is_not_what_was_merged_is_not_served(line: Line, engine: Engine) -> None:
    with pytest.raises(IntegrityError, match="not its base with its adapter"):
        await engine.serve(line.relied(1, other=2))
    assert engine.control.adapters == {}


def check(line: Line, folder: Path) -> None:
    adapter = adapter_of(folder)
    assert adapter is not None
    require_merged(folder, read_fingerprint(folder), line.base, read_fingerprint(line.base), adapter)


def test_merged_weights_are_compared_with_base_and_adapter(line: Line) -> None:
    good = line.child(1)
    check(line, good)
    path = good / "served_fingerprint.json"
    document = json.loads(path.read_text())
    document["tensors"]["head.weight"]["sha256"] = "another"
    path.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match=r"head\.weight is not its base's"):
        check(line, good)
    changed = line.child(2)
    tensors = load_torch(changed / "model.safetensors")
    tensors["layer.weight"][0, 0] += 1e-3
    save_torch(tensors, changed / "model.safetensors")
    with pytest.raises(IntegrityError, match="not what was published"):
        check(line, changed)


@pytest.mark.parametrize(("share", "sound"), [(1.0, True), (0.5, False), (0.0, False)])
def test_in_bfloat16_the_slope_tells_how_much_of_a_small_step_is_left(
    tmp_path: Path, share: float, sound: bool
) -> None:
    """Each value lies within its rounding of base and adapter; only all together tell."""
    line, parts = Line(tmp_path, large=True), parts_of(1, step=3e-4)
    folder = line.child(1)
    shutil.rmtree(folder / "adapter")
    write_adapter(folder / "adapter", parts)
    weights = merged(line.weights, {**parts, "B": parts["B"] * np.float32(share)})
    tensors = {name: torch.from_numpy(each) for name, each in weights.items()}
    tensors[f"{LAYER}.weight"] = tensors[f"{LAYER}.weight"].bfloat16()
    save_torch(tensors, folder / "model.safetensors")
    document = json.loads((folder / "served_fingerprint.json").read_text())
    for name, each in tensors.items():
        document["tensors"][name]["sha256"] = hashlib.sha256(each.float().numpy().tobytes()).hexdigest()
    (folder / "served_fingerprint.json").write_text(json.dumps(document))
    if sound:
        check(line, folder)
    else:
        with pytest.raises(IntegrityError, match="of the adapter is in them"):
            check(line, folder)
