"""The models of a run: loaded, placed where they compute, and taken back for writing.

A checkpoint that only scores is its weights. The policy is the parent with the float32 masters of its
line state: whole weights, or a base with an adapter (`adapter.py`).

Not here: how a placed model runs micro-batches (`parallel.py`, `shard.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stages import modelio
from stages.errors import UsageError
from stages.linestate import ADAPTER_FILE, MASTERS_FILE, LineState
from stages.train import adapter, attention, ranks, shard
from stages.train.config import TrainConfig
from stages.train.packable import require_packable
from stages.train.parallel import copies_for

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.registry.store import Store
    from stages.stage import Artifact

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Adapted:
    """The adapter under training. `masters`: its base is more exact than the checkpoint `base`."""

    shape: adapter.Shape
    base: str
    masters: bool


@dataclass(frozen=True)
class Finished:
    """A trained policy for writing, on rank 0: `model` plain, float32, adapter merged.

    `adapter` holds A and B, `base` the frozen weights where no checkpoint has them exactly.
    """

    model: PreTrainedModel
    adapted: Adapted | None = None
    adapter: dict[str, Tensor] = field(default_factory=dict)
    base: dict[str, Tensor] = field(default_factory=dict)


def device_of(config: TrainConfig) -> str:
    """ "cpu" or "cuda". Raises UsageError when there is no CUDA and it is asked for."""
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise UsageError("train.device is cuda, and torch sees none here", hint="train.device = 'auto'")
    return "cuda" if available and config.device != "cpu" else "cpu"


def compute_dtype(config: TrainConfig) -> str:
    """The dtype of forward and backward: "float32" or "bfloat16"."""
    if config.compute_dtype != "auto":
        return config.compute_dtype
    return "bfloat16" if device_of(config) == "cuda" else "float32"


def process_count(config: TrainConfig) -> int:
    """How many processes `rtrl train` makes on this machine, itself included."""
    if config.processes:
        return config.processes
    return max(1, torch.cuda.device_count()) if device_of(config) == "cuda" else 1


class Models:
    """Loads and places. The parent is loaded once, scored, and taken over as the policy."""

    def __init__(self, config: TrainConfig, parent: Artifact, state_folder: Path, store: Store, seed: int):
        self.config, self.parent, self.store, self.seed = config, parent, store, seed
        self.state_folder = state_folder
        self.state = LineState.load(state_folder)
        kind = device_of(config)
        self.device = f"cuda:{ranks.local_rank()}" if kind == "cuda" else kind
        self.compute = DTYPES[compute_dtype(config)]
        self.sharded = ranks.joined()
        self.attention = attention.register(compiled=config.compile)
        self.threads = config.threads or max(1, torch.get_num_threads() // ranks.local_count())
        self.adapted: Adapted | None = None
        self.other_weights = False  # than the run before trained
        self._parent_model: PreTrainedModel | None = None

    def load(self, checkpoint: Artifact) -> PreTrainedModel:
        """The model of a checkpoint, placed, with packed attention.

        Raises UsageError when the parent's architecture cannot be packed.
        """
        if checkpoint.digest != self.parent.digest:
            return self._placed(self._plain(checkpoint))
        if self._parent_model is None:
            model = self._plain(checkpoint)
            require_packable(model)
            self._parent_model = self._placed(model)
        return self._parent_model

    def policy(self) -> PreTrainedModel:
        """What is trained, placed: the parent's model, taken over, with its float32 masters."""
        taken, self._parent_model = self._parent_model, None
        if self.state.masters == "checkpoint" and not self.config.lora_rank and taken is not None:
            return taken
        model, self.adapted = self._with_masters()
        return self._placed(model)

    def _with_masters(self) -> tuple[PreTrainedModel, Adapted | None]:
        """The policy before its first step, on the CPU: the same values whenever it is called."""
        wanted, masters = adapter.Shape.of(self.config), self.state.masters
        if masters == ADAPTER_FILE:
            model, adapted = self._with_carried_adapter(wanted)
        else:
            model, adapted = self._plain(self.parent), None
            if masters == MASTERS_FILE:
                modelio.load_masters(model, self.state_folder / MASTERS_FILE)
        if wanted is not None and adapted is None:
            exact = masters == "checkpoint" or self.parent.meta.get("dtype") == "float32"
            adapted = Adapted(wanted, self.parent.digest, masters=not exact)
            adapter.attach(model, wanted, self.seed)
            adapter.require_sound(model, wanted)
            self.other_weights = True
        return model, adapted

    def finished(self, model: PreTrainedModel) -> Finished | None:
        """The policy for writing. Every rank calls it; None on all but the first."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        if self.sharded:
            found = shard.whole_on_first(trained)
            if not ranks.is_first():
                return None
            model = self._unsharded(found)
            trained = {name: value for name, value in model.named_parameters() if name in found}
        if self.adapted is None:
            return Finished(model)
        changed = {name: value.detach().cpu().clone() for name, value in trained.items()}
        base = {}
        if self.adapted.masters:
            base = {name: value.detach().cpu().clone() for name, value in adapter.base_weights(model).items()}
        adapter.detach(model)
        return Finished(model, self.adapted, changed, base)

    def _unsharded(self, trained: dict[str, Tensor]) -> PreTrainedModel:
        """A plain model on the CPU with these weights, on rank 0 alone."""
        model = self._plain(self.parent) if self.adapted is None else self._with_masters()[0]
        model.load_state_dict(trained, strict=False)
        return model

    def _with_carried_adapter(self, wanted: adapter.Shape | None) -> tuple[PreTrainedModel, Adapted | None]:
        """The base with the carried adapter; merged when another one, or none, is wanted now."""
        tensors, shape, base = adapter.read(self.state_folder / ADAPTER_FILE)
        model = self._plain(self.store.resolve(base))
        masters = self.state_folder / MASTERS_FILE
        if masters.is_file():
            modelio.load_masters(model, masters)
        adapter.attach(model, shape, self.seed)
        adapter.fill(model, tensors)
        if shape == wanted:
            return model, Adapted(shape, base, masters=masters.is_file())
        self.other_weights = True
        adapter.detach(model)
        return model, None

    def _plain(self, checkpoint: Artifact) -> PreTrainedModel:
        """In float32, on the CPU."""
        return modelio.load_model(self.store.checkpoint_folder(checkpoint), attention=self.attention)

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        model = model.to(self.device)
        prepare(model, self.config)
        if self.sharded:
            torch.set_num_threads(self.threads)  # each process does
            return shard.shard(model, self.compute)
        torch.set_num_threads(
            max(1, self.threads // copies_for(model, self.threads, self.config.model_copies))
        )
        return model


def prepare(model: PreTrainedModel, config: TrainConfig) -> None:
    """Activation checkpointing and compilation of the decoder layers, as the settings say.

    Raises UsageError when the model has no checkpointing and it is asked for.
    """
    wanted, able = config.activation_checkpointing, model.supports_gradient_checkpointing
    if wanted == "on" and not able:
        raise UsageError(
            f"train.activation_checkpointing: {type(model).__name__} cannot compute its layers again",
            hint='"auto" does so where a model can',
        )
    if wanted == "on" or (wanted == "auto" and able and model.device.type == "cuda"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        for layer in shard.layers(model):
            layer.training = True  # the layer alone: modules within it that would drop out do not
            _drop_nothing(layer)
    if config.compile:
        for layer in shard.layers(model):
            layer.compile(dynamic=True)


def _drop_nothing(layer: torch.nn.Module) -> None:
    """Some layers (OPT's, Falcon's) drop out by a share of their own, whenever they are in training."""
    for name, value in vars(layer).items():
        if "drop" in name and isinstance(value, float):
            setattr(layer, name, 0.0)


def placement(models: Models, count: int) -> dict[str, Any]:
    """Where and how a run computed, for its result."""
    kind = models.device.partition(":")[0]
    return {
        "device": kind,
        "processes": count,
        "compute_dtype": str(models.compute).removeprefix("torch."),
        "attention": attention.path_for(kind, models.compute),
    }
