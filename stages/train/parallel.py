"""Where micro-batches run: on copies of a small model in threads, or on a model cut over processes.

`placed` decides. Copies are for a float32 model in one process on a CPU, each with a thread. They share
the weights and have gradients of their own, added up in a fixed order, so that the result is the same
every time. Two cores each working on their own micro-batch are faster than two cores sharing every
small matrix product, and do not stand still when one of them is needed elsewhere (docs/lab-notes.md,
Training). Models whose gradients are large have one copy. All else: `shard.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

from stages.train.shard import Sharded, is_sharded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALL = 64_000_000  # parameters up to which every thread has its own gradients


def copies_for(model: PreTrainedModel, threads: int, at_most: int) -> int:
    """How many copies use `threads` CPU threads best; 1 means that torch itself uses the threads.

    Args:
        at_most: bound on copies: each has gradients and activations of its own, so memory grows with
            them. Torch uses what threads are left over, within each copy.
    """
    small = sum(parameter.numel() for parameter in model.parameters()) <= SMALL
    return min(threads, at_most) if small and model.device.type == "cpu" else 1


def placed(model: PreTrainedModel, threads: int, at_most: int) -> Replicas | Sharded:
    """What runs micro-batches of `model`. Close after use (a context manager)."""
    return Sharded(model) if is_sharded(model) else Replicas(model, copies_for(model, threads, at_most))


class Replicas:
    """`count` copies of `model`, the first being `model` itself. Close after use (a context manager)."""

    def __init__(self, model: PreTrainedModel, count: int) -> None:
        self.model = model
        self.models = [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        for other in self.models[1:]:
            for mine, shared in zip(other.parameters(), model.parameters(), strict=True):
                mine.data = shared.data
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="train") if count > 1 else None

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(
        self,
        work: Callable[[PreTrainedModel, Item, float], Result],
        items: Sequence[Item],
        cost: Callable[[Item], int],
    ) -> list[Result]:
        """`work(copy, item, 1.0)` for every item, in the items' order; item i goes to copy i modulo count.

        `cost` is for a model that is cut over processes; here whoever is free goes on.
        """
        if self._pool is None:
            return [work(self.models[0], item, 1.0) for item in items]
        gradients = torch.is_grad_enabled()  # a setting of the thread, not of the process

        def share(number: int) -> list[Result]:
            with torch.set_grad_enabled(gradients):
                return [work(self.models[number], item, 1.0) for item in items[number :: len(self.models)]]

        shares = list(self._pool.map(share, range(len(self.models))))
        return [shares[index % len(shares)][index // len(shares)] for index in range(len(items))]

    def zero_gradients(self) -> None:
        """Forget the gradients of all copies."""
        for model in self.models:
            model.zero_grad(set_to_none=True)

    def add_gradients(self) -> None:
        """Add the copies' gradients into those of the first, in the order of the copies."""
        for other in self.models[1:]:
            for total, part in zip(self.models[0].parameters(), other.parameters(), strict=True):
                if part.grad is not None:
                    total.grad = part.grad if total.grad is None else total.grad.add_(part.grad)
