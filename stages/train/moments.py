"""Adam's moments by parameter name: into and out of a torch optimizer, and as a safetensors file.

Tensors `exp_avg.<parameter>` and `exp_avg_sq.<parameter>` (float32, the parameter's shape); the number
of steps taken is in the file's metadata. Carried in the line state by choice (`carry_moments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from stages.errors import IntegrityError
from stages.modelio import disk_errors
from stages.train.shard import like

_KINDS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Moments:
    """`step` optimizer steps have been taken; `tensors` as in the file, empty before the first."""

    step: int
    tensors: Mapping[str, Tensor]


NEW = Moments(0, {})


def moments_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> Moments:
    """The optimizer's present moments. Values are shared with it, not copied.

    Zeros for what never had a gradient (the tower of images of a model that is asked with text alone).
    """
    tensors: dict[str, Tensor] = {}
    step = 0
    for name, parameter in parameters.items():
        if state := optimizer.state.get(parameter):
            step = int(state["step"])
            tensors |= {f"{kind}.{name}": state[kind] for kind in _KINDS}
        else:
            tensors |= empty_moments({name: parameter})
    return Moments(step, tensors)


def empty_moments(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The moments before the first step: zeros."""
    return {
        f"{kind}.{name}": torch.zeros_like(value) for name, value in parameters.items() for kind in _KINDS
    }


def restore(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], moments: Moments) -> None:
    """Make the optimizer go on from `moments`, whole ones or cut as the parameters are.

    Raises IntegrityError when they are of another model.
    """
    if not moments.tensors:
        return
    expected = {f"{kind}.{name}" for name in parameters for kind in _KINDS}
    if set(moments.tensors) != expected:
        raise IntegrityError(
            f"the Adam moments are of another model: {sorted(set(moments.tensors) ^ expected)[:3]}",
            hint="--set train.carry_moments=false starts with new ones",
        )
    for name, parameter in parameters.items():
        values: dict[str, Any] = {"step": torch.tensor(float(moments.step))}
        for kind in _KINDS:
            tensor = moments.tensors[f"{kind}.{name}"]
            if tensor.shape != parameter.shape:
                raise IntegrityError(f"the Adam moment of {name} has shape {tuple(tensor.shape)}")
            values[kind] = tensor.clone() if isinstance(tensor, DTensor) else like(tensor, parameter)
        optimizer.state[parameter] = values


def read_moments(path: Path) -> Moments:
    """Raises IntegrityError when the file is damaged, or holds numbers that are no moments.

    Those would make the weights not finite in the step, after which the good ones are gone.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            step = int((file.metadata() or {})["step"])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, KeyError, ValueError) as error:
        raise IntegrityError(f"{path} is damaged: {error}", hint="rtrl verify --full") from error
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()) or (name.startswith("exp_avg_sq.") and bool((tensor < 0).any())):
            raise IntegrityError(
                f"{path}: {name} is not finite, or a negative square",
                hint="--set train.carry_moments=false starts with new moments",
            )
    return Moments(step, tensors)


def write_moments(path: Path, moments: Moments) -> None:
    """One safetensors file; the same moments give the same bytes."""
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous() for name, value in moments.tensors.items()}
    with disk_errors():
        save_file(tensors, path, metadata={"step": str(moments.step)})
