"""Micro-batches of whole sequences, packed without padding.

The sequences of a micro-batch lie one after the other in a single row: the model's linear layers see
only real tokens. Position ids start at 0 in every sequence, and attention (`attention.py`) never
crosses from one into the next, so that the logits are those of each sequence alone.

Not here: which sequences belong to which optimizer step (`update.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of the sequences of each micro-batch: neighbours in length, at most `token_budget` tokens.

    A sequence longer than the budget has a micro-batch of its own. Longest first, so that running
    out of memory happens at once. Deterministic: equal lengths keep their order.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    used = 0
    for index in order:
        if not batches or used + lengths[index] > token_budget:
            batches.append([])
            used = 0
        batches[-1].append(index)
        used += lengths[index]
    return batches


@dataclass(frozen=True)
class Rectangle:
    """Sequences of nearly equal length, looked up as rows: `rows` [B, L] are positions in the pack.

    Rows are padded on the right by repeating position `rows[b, 0]`; causal attention never looks
    there, and `valid` [tokens] picks the real cells of the flattened rectangle in pack order.
    """

    rows: Tensor
    valid: Tensor


@dataclass(frozen=True)
class Pack:
    """One micro-batch of N tokens.

    Attributes:
        ids: [1, N] token ids.
        positions: [1, N] position of each token in its own sequence.
        starts: [S + 1] where each sequence begins in the pack, and N.
        rectangles: the same sequences for attention, in pack order.
    """

    ids: Tensor
    positions: Tensor
    starts: NDArray[np.int64]
    rectangles: tuple[Rectangle, ...]

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    def to(self, device: torch.device | str) -> Pack:
        """The same pack with its tensors on `device`."""
        rectangles = tuple(Rectangle(each.rows.to(device), each.valid.to(device)) for each in self.rectangles)
        return Pack(self.ids.to(device), self.positions.to(device), self.starts, rectangles)


def pack(sequences: Sequence[NDArray[np.int32]], *, waste: float = 0.15) -> Pack:
    """Pack token id arrays [T_i] (each at least one token) in the order given.

    `waste` is the share of padding a rectangle of the attention may have; a new one is begun
    where the next sequence would exceed it, so order the sequences by length.
    """
    lengths = np.array([len(ids) for ids in sequences], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    return Pack(
        ids=torch.from_numpy(np.concatenate(sequences).astype(np.int64))[None],
        positions=torch.from_numpy(positions)[None],
        starts=starts,
        rectangles=tuple(
            _rectangle(starts[first:last], lengths[first:last])
            for first, last in _runs_of_like_length(lengths, waste)
        ),
    )


def _runs_of_like_length(lengths: NDArray[np.int64], waste: float) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    first = 0
    while first < len(lengths):
        last, tokens, longest = first, 0, 0
        while last < len(lengths):
            wider = max(longest, int(lengths[last]))
            cells = wider * (last - first + 1)
            if last > first and cells - tokens - int(lengths[last]) > waste * cells:
                break
            tokens, longest, last = tokens + int(lengths[last]), wider, last + 1
        runs.append((first, last))
        first = last
    return runs


def _rectangle(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Rectangle:
    columns = np.arange(lengths.max())
    inside = columns[None, :] < lengths[:, None]
    rows = np.where(inside, starts[:, None] + columns[None, :], starts[:, None])
    return Rectangle(torch.from_numpy(rows), torch.from_numpy(np.flatnonzero(inside)))
