"""LoRA: a low-rank change of the linear layers, trained in place of the weights (`train.lora_rank`).

    W' = W + (alpha / rank) B A          A [rank, in], B [out, rank], float32; B starts at 0

The base W is frozen. What is published is merged, a full checkpoint like any other, with the adapter
beside it in PEFT's layout (`adapter/`). The line state carries A and B and which checkpoint W is, so
that the next run goes on with the same adapter, whatever the merged weights were rounded to.

Source: Hu et al. 2021, arXiv 2106.09685; layers and initial values are PEFT's. Not here: training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stages.errors import IntegrityError, UsageError
from stages.modelio import disk_errors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.train.config import TrainConfig

FOLDER = "adapter"
NAME = "default"
ALL_LINEAR = "all-linear"


@dataclass(frozen=True)
class Shape:
    """What an adapter looks like. `targets` are names of linear layers, or ("all-linear",)."""

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @classmethod
    def of(cls, config: TrainConfig) -> Shape | None:
        """The one that the settings ask for; None when all weights are trained."""
        if not config.lora_rank:
            return None
        targets = tuple(name.strip() for name in config.lora_targets.split(",") if name.strip())
        return cls(config.lora_rank, config.lora_alpha or 2.0 * config.lora_rank, targets)

    def layers_of(self, model: PreTrainedModel) -> list[str]:
        """`target_modules` of PEFT: names of layers, or ends of them."""
        if self.targets != (ALL_LINEAR,):
            return list(self.targets)
        from transformers.pytorch_utils import Conv1D

        kinds, head = (torch.nn.Linear, Conv1D), model.get_output_embeddings()
        return [name for name, each in model.named_modules() if isinstance(each, kinds) and each is not head]


def attach(model: PreTrainedModel, shape: Shape, seed: int) -> None:
    """Give `model` an adapter in place; nothing else stays trainable. The same seed, the same values.

    The linear layers of a mixture-of-experts model have one, its router and the matrices of all experts in
    one have none: PEFT would give them some, in place of linear layers that are called alike, if it knew
    what kind of model it has before it.

    Raises UsageError when no layer has one of the names, or the rank is above every layer's own.
    """
    from peft import LoraConfig, inject_adapter_in_model

    largest = max((min(each.shape) for each in model.parameters() if each.ndim == 2), default=0)
    if shape.rank > largest:
        raise UsageError(
            f"train.lora_rank is {shape.rank}, no matrix of this model has a rank above {largest}",
            hint="8 to 64 are usual; 0 trains all weights",
        )
    config: Any = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=shape.layers_of(model),
    )
    unknown = torch.nn.ModuleDict({"model": model})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, unknown, adapter_name=NAME)
        except ValueError as error:
            raise UsageError(f"train.lora_targets: {error}", hint='"all-linear" suits any model') from error
    model.eval()


def require_sound(model: PreTrainedModel, shape: Shape) -> None:
    """Raise UsageError for a new adapter that is not what its targets say, or cannot be merged.

    PEFT passes over names that no layer has, as long as another one is found. Where output head and input
    embedding are one matrix, merging an adapter of one of them changes both.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = {name: each for name, each in model.named_modules() if isinstance(each, BaseTunerLayer)}
    names = [] if shape.targets == (ALL_LINEAR,) else shape.targets
    if strangers := [one for one in names if not any(f".{layer}".endswith(f".{one}") for layer in layers)]:
        raise UsageError(
            f"train.lora_targets: no layer is called {', '.join(strangers)}",
            hint='"all-linear" suits any model',
        )
    tied = model.all_tied_weights_keys
    shared = {name.replace(".base_layer.", ".").rpartition(".")[0] for name in (*tied, *tied.values())}
    if shared & layers.keys():
        raise UsageError(
            f"train.lora_targets: {' and '.join(sorted(shared))} are one matrix in this model",
            hint="an adapter of one of them cannot be merged without changing the other: leave it out",
        )


def detach(model: PreTrainedModel) -> None:
    """Merge the adapter of `model` into its weights in place; it is a plain model again."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    found = [(name, each) for name, each in model.named_modules() if isinstance(each, BaseTunerLayer)]
    for name, layer in found:
        layer.merge()
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer.get_base_layer())
    for parameter in model.parameters():
        parameter.requires_grad_(True)


def values(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A and B of every layer, by the names that they have in the model, out of all its parameters."""
    return {name: value for name, value in parameters.items() if ".lora_" in name}


def base_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The frozen weights under the names they have without an adapter."""
    return {
        name.replace(".base_layer.", "."): value
        for name, value in model.named_parameters()
        if ".lora_" not in name
    }


def fill(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> None:
    """Set A and B. Raises IntegrityError when they are of another model."""
    mine = values(dict(model.named_parameters()))
    if {n: v.shape for n, v in mine.items()} != {n: v.shape for n, v in tensors.items()}:
        raise IntegrityError(
            "the adapter in the line state is of another model than its base", hint="rtrl verify --full"
        )
    with torch.no_grad():
        for name, value in mine.items():
            value.copy_(tensors[name])


def write(path: Path, tensors: Mapping[str, Tensor], shape: Shape, base: str) -> None:
    """The adapter as the line state carries it: A and B, its shape, the digest of the base checkpoint."""
    from safetensors.torch import save_file

    about = {"about": json.dumps({"base": base, **asdict(shape)}, sort_keys=True)}
    with disk_errors():
        save_file({name: value.contiguous() for name, value in tensors.items()}, path, metadata=about)


def read(path: Path) -> tuple[dict[str, Tensor], Shape, str]:
    """(A and B, shape, digest of the base). Raises IntegrityError when the file is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["about"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        shape = Shape(int(about["rank"]), float(about["alpha"]), tuple(about["targets"]))
        return tensors, shape, str(about["base"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{path} is damaged: {error}", hint="rtrl verify --full") from error


def write_peft(folder: Path, tensors: Mapping[str, Tensor], shape: Shape, base: str) -> None:
    """The same as PEFT and vLLM load it: adapter_config.json and adapter_model.safetensors."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    names = sorted({name.partition(".lora_")[0].rpartition(".")[2] for name in tensors})
    config: Any = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=names,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        inference_mode=True,
    )
    plain = {
        key: sorted(value) if isinstance(value, set) else value for key, value in config.to_dict().items()
    }
    (folder / "adapter_config.json").write_text(
        json.dumps(plain, indent=2, sort_keys=True, default=str) + "\n"
    )
    renamed = {
        f"base_model.model.{name.replace(f'.{NAME}.', '.')}": value.contiguous()
        for name, value in tensors.items()
    }
    with disk_errors():
        save_file(renamed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
