"""What the worker says of an adapter's slot, in the layout of fused layers (a stand-in without vLLM)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stages.engine.adapter_held import AdapterExtension
from stages.engine.held import plain_modules
from tests.stages.engine.adapter_world import ALPHA, LAYER, RANK, Line

SLOTS, ROOM, HIDDEN = 3, 4, 16


class Worker(AdapterExtension):
    """Holds one fused layer of two parts, of which LAYER is the second, and adapter 7 in slot 1."""

    def __init__(self, folder: Path) -> None:
        tensors = load_file(folder / "adapter_model.safetensors")
        a, b = (tensors[f"base_model.model.{LAYER}.lora_{end}.weight"] for end in ("A", "B"))
        stacked = [torch.zeros(SLOTS, 1, *shape) for shape in ((ROOM, HIDDEN), (HIDDEN, ROOM)) for _ in "ab"]
        self.layer = SimpleNamespace(lora_a_stacked=stacked[:2], lora_b_stacked=stacked[2:])
        self.layer.lora_a_stacked[1][1, 0, :RANK] = a
        self.layer.lora_b_stacked[1][1, 0, :, :RANK] = b * (ALPHA / RANK)
        self.manager = SimpleNamespace(
            lora_slots=SLOTS,
            modules={"fused": self.layer},
            packed_modules={"fused": ["other", LAYER]},
            lora_index_to_id=[None, 7, None],
            list_adapters=lambda: {7: None},
        )
        lora = SimpleNamespace(_adapter_manager=self.manager)
        self.model_runner: Any = SimpleNamespace(lora_manager=lora)
        self.vllm_config: Any = SimpleNamespace(lora_config=SimpleNamespace(max_lora_rank=ROOM))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Line(tmp_path).adapter(1).folder


def test_what_is_held_is_told(folder: Path) -> None:
    worker = Worker(folder)
    told = {"slots": SLOTS, "rank": ROOM, "modules": [LAYER, "other"], "held": [7]}
    assert worker.rtrl_adapters() == told
    size = RANK * HIDDEN * 2
    report = worker.rtrl_adapter_verify(str(folder), 7)
    assert (report["different"], report["unchecked"], report["clean"]) == ([], [], True)
    assert (report["parameters"], report["parameters_checked"]) == (size, size)
    worker.model_runner = SimpleNamespace()
    assert worker.rtrl_adapters()["slots"] == 0, "an engine without adapters"


def test_other_values_scale_rank_layers_and_slots_are_seen(folder: Path) -> None:
    def seen(change: Any) -> Any:
        worker = Worker(folder)
        change(worker)
        return worker.rtrl_adapter_verify(str(folder), 7)

    def set_to(tensor: torch.Tensor, at: Any, value: Any) -> None:
        tensor[at] = value

    changes = {
        "a bit": lambda w: set_to(w.layer.lora_a_stacked[1], (1, 0, 0, 0), 1.0),
        "scale": lambda w: w.layer.lora_b_stacked[1].div_(2),
        "beyond the rank": lambda w: set_to(w.layer.lora_b_stacked[1], (1, 0, 0, RANK), 1.0),
        "not loaded": lambda w: w.manager.lora_index_to_id.__setitem__(1, None),
    }
    for name, change in changes.items():
        assert LAYER in seen(change)["different"], name
    more = seen(lambda w: set_to(w.layer.lora_a_stacked[0], (1, 0, 0, 0), 1.0))
    assert more["different"] == ["other"], "an adapter on a layer that has none"
    lost = seen(lambda w: w.manager.packed_modules.update(fused=["other", "another"]))
    assert (lost["unchecked"], lost["parameters_checked"]) == ([LAYER], 0)
    assert not seen(lambda w: set_to(w.layer.lora_a_stacked[0], (2, 0, 0, 0), 1.0))["clean"]
    assert not seen(lambda w: w.manager.lora_index_to_id.__setitem__(2, 8))["clean"]


def test_layers_have_the_names_that_they_have_without_adapters() -> None:
    model, wrapped = torch.nn.Module(), torch.nn.Module()
    wrapped.base_layer = torch.nn.Linear(2, 2)
    model.proj, model.norm = wrapped, torch.nn.LayerNorm(2)
    assert plain_modules(model) == {"": model, "proj": wrapped.base_layer, "norm": model.norm}
