"""Micro-batches of a small model on several CPU cores: a few copies of the model, a thread each.

The copies share the weights and have gradients of their own, added up in a fixed order, so that the
result is the same every time. Two cores each working on their own micro-batch are faster than two
cores sharing every small matrix product, and do not stand still when one of them is needed elsewhere
(docs/lab-notes.md, Training).

Not for: GPUs, several processes, or models whose gradients are large; they have one copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

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


class Replicas:
    """`count` copies of `model`, the first being `model` itself. Close after use (a context manager)."""

    def __init__(self, model: PreTrainedModel, count: int) -> None:
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

    def map(self, work: Callable[[PreTrainedModel, Item], Result], items: Sequence[Item]) -> list[Result]:
        """`work(copy, item)` for every item, in the items' order; item i goes to copy i modulo count."""
        if self._pool is None:
            return [work(self.models[0], item) for item in items]
        gradients = torch.is_grad_enabled()  # a setting of the thread, not of the process

        def share(number: int) -> list[Result]:
            with torch.set_grad_enabled(gradients):
                return [work(self.models[number], item) for item in items[number :: len(self.models)]]

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
