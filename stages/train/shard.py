"""A model over all processes of a run: weights, gradients and moments cut into shards (FSDP2).

    float32 shards (the masters) -> all-gather in the compute dtype -> forward and backward
    gradients -> summed over the processes in float32, each keeping its shard

Every rank works on micro-batches of its own. All ranks must run as many passes, for each gathers and
reduces: who has fewer runs one again with weight 0. One process and many take this path alike; with a
single one it is what makes bfloat16 compute with float32 masters.

Sources: FSDP2, `torch.distributed.fsdp.fully_shard`. Not for: which processes there are (`crew.py`),
small float32 models in one process on a CPU (`parallel.py`).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from stages.train import ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Item = TypeVar("Item")
Result = TypeVar("Result")

PASS = "rtrl_pass"  # the method of a sharded model that gathers its weights around a call


def shard(model: PreTrainedModel, compute: torch.dtype) -> PreTrainedModel:
    """Cut `model` (float32) into shards in place, one group per decoder layer; computes in `compute`."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FSDPModule,
        MixedPrecisionPolicy,
        fully_shard,
        register_fsdp_forward_method,
    )

    mesh = init_device_mesh(model.device.type, (ranks.count(),))
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for layer in layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # sums, not means
            module.set_force_sum_reduction_for_comms(True)
    setattr(model, PASS, types.MethodType(lambda self, work: work(self), model))
    register_fsdp_forward_method(model, PASS)
    return model


def is_sharded(model: PreTrainedModel) -> bool:
    """Whether `shard` was called on it."""
    return hasattr(model, PASS)


def layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    """The decoder layers: what is gathered, recomputed and compiled as one piece."""
    names = set(model._no_split_modules or ())
    if found := [module for module in model.modules() if type(module).__name__ in names]:
        return found
    lists = [list(each) for each in model.base_model.children() if isinstance(each, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def through(model: PreTrainedModel, work: Callable[[PreTrainedModel], Result]) -> Result:
    """`work(model)` with the weights of the whole model at hand, however they are placed."""
    run = getattr(model, PASS, None)
    result: Result = work(model) if run is None else run(work)
    return result


class Sharded:
    """Spreads items over the ranks. See `parallel.Replicas`, which does it over threads."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def __enter__(self) -> Sharded:
        return self

    def __exit__(self, *_: object) -> None:
        self.model.reshard()  # after passes without a gradient the root is still whole, and would go stale

    def map(
        self,
        work: Callable[[PreTrainedModel, Item, float], Result],
        items: Sequence[Item],
        cost: Callable[[Item], int],
    ) -> list[Result]:
        """`work(model, item, weight)` for every item, its results in the items' order on every rank.

        Items of like cost run at the same time. `weight` is 1, and 0 for a pass that only keeps step: its
        gradient must not count. Results are gathered: picklable, tensors on the CPU.
        """
        if not items:
            return []
        order = sorted(range(len(items)), key=lambda index: -cost(items[index]))
        mine: dict[int, Result] = {}
        for first in range(0, len(order), ranks.count()):
            place = first + ranks.rank()
            if place < len(order):
                mine[order[place]] = work(self.model, items[order[place]], 1.0)
            else:
                work(self.model, items[order[-1]], 0.0)
        found: dict[int, Result] = {}
        for part in ranks.gathered(mine):
            found |= part
        return [found[index] for index in range(len(items))]

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        self.model.zero_grad(set_to_none=True)

    def add_gradients(self) -> None:
        """Nothing to do: every backward pass has summed them over the ranks."""


def whole(tensor: Tensor) -> Tensor:
    """The tensor put together from its shards, on every rank; one that is not cut as it is."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(whole_tensor: Tensor, cut: Tensor) -> Tensor:
    """`whole_tensor`, which every rank has, cut as `cut` is and where it is; a new tensor."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    tensor = whole_tensor.to(cut.device)
    if not isinstance(cut, DTensor):
        return tensor.clone()
    return distribute_tensor(tensor, cut.device_mesh, cut.placements, src_data_rank=None)


def whole_on_first(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors put together, on the CPU of rank 0, one at a time; {} on the other ranks."""
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        value = whole(tensor.detach())
        if ranks.is_first():
            found[name] = value.cpu()
    return found
