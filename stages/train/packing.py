"""Micro-batches of whole sequences, packed without padding and without computing a shared prefix twice.

The tokens of a micro-batch lie in a single row: the model's linear layers see only real tokens.
Sequences that begin alike (the same system prompt and tools, retries, rollouts of one task) share
the positions of their common prefix: a causal model computes the same states there, and the
gradients of all sequences add up in them. Position ids count within each sequence, and attention
(`attention.py`) sees of every sequence exactly its own tokens, so that the logits are those of each
sequence alone.

Sources: prefix sharing for training: Prefix Grouper (Liu et al. 2025, arXiv 2506.05433).
Not here: which sequences belong to which optimizer step (`update.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stages.routing import Routing, common_prefix, sort_key
from stages.train.routing import Replay, replay_of

Ids = NDArray[np.int32]
Indices = NDArray[np.int64]

ATTENTION_CELLS = 4  # attention may look up this many times the token budget, shared prefixes repeated


def lexicographic(
    sequences: Sequence[Ids], routings: Sequence[Routing | None] = ()
) -> tuple[list[int], Indices]:
    """(order, shared): indices so that sequences with common beginnings are neighbours, and for each
    place in that order how many first tokens it has in common with its predecessor (0 for the first).

    Tokens that went to other experts are not in common. No earlier sequence shares more with it than
    its predecessor does, where all have a routing or none has. Token ids are not negative.
    """
    keys = [
        ids.astype(">i4").tobytes() if routing is None else sort_key(ids, routing)
        for ids, routing in zip(sequences, routings or [None] * len(sequences), strict=True)
    ]
    order = sorted(range(len(sequences)), key=keys.__getitem__)
    shared = np.zeros(len(order), dtype=np.int64)
    for place in range(1, len(order)):
        shared[place] = _common_prefix(sequences[order[place - 1]], sequences[order[place]])
        if routings:
            left, right = routings[order[place - 1]], routings[order[place]]
            shared[place] = common_prefix(left, right, int(shared[place]))
    return order, shared


def _common_prefix(first: Ids, second: Ids) -> int:
    length = min(len(first), len(second))
    differs = np.flatnonzero(first[:length] != second[:length])
    return int(differs[0]) if len(differs) else length


def micro_batches(
    sequences: Sequence[Ids], token_budget: int, routings: Sequence[Routing | None] = ()
) -> list[list[int]]:
    """Indices of the sequences of each micro-batch.

    A micro-batch holds at most `token_budget` packed tokens and 4 times as many cells for attention,
    or a single longer sequence. Deterministic: equal sequences keep their order.
    """
    order, shared = lexicographic(sequences, routings)
    batches: list[list[int]] = []
    tokens = cells = 0
    for index, prefix in zip(order, shared, strict=True):
        length = len(sequences[index])
        fits = tokens + length - prefix <= token_budget and cells + length <= ATTENTION_CELLS * token_budget
        if not batches or not fits:
            batches.append([])
            tokens = cells = 0
        tokens += length - (int(prefix) if batches[-1] else 0)
        cells += length
        batches[-1].append(index)
    return batches


@dataclass(frozen=True)
class Rectangle:
    """Sequences of nearly equal length, looked up as rows.

    Attributes:
        rows: [B, L] pack positions of each sequence's tokens; on the right, repeats of the first
            position as padding, where causal attention never looks.
        owned: [n] cells of the flattened rectangle whose output is kept: every pack position once.
    """

    rows: Tensor
    owned: Tensor


@dataclass(frozen=True)
class Ragged:
    """The same sequences for kernels that take them end to end, without padding.

    Sequence i asks with the positions it added to the pack (its queries are the pack itself, in order)
    and sees all its tokens; what it asks with are its last tokens.

    Attributes:
        keys: [K] pack positions of every sequence's tokens, shared ones repeated.
        query_ends, key_ends: [S + 1] int32, where the sequences' queries and keys begin and end.
        longest_query, longest_key: tokens.
    """

    keys: Tensor
    query_ends: Tensor
    key_ends: Tensor
    longest_query: int
    longest_key: int

    def to(self, device: torch.device | str) -> Ragged:
        """The same with its tensors on `device`."""
        keys, queries, ends = (each.to(device) for each in (self.keys, self.query_ends, self.key_ends))
        return Ragged(keys, queries, ends, self.longest_query, self.longest_key)


@dataclass(frozen=True)
class Pack:
    """One micro-batch of N packed tokens.

    Attributes:
        ids: [1, N] token ids.
        positions: [1, N] position of each token in its own sequence.
        cells: for each sequence [T_i], where its tokens lie in the pack.
        rectangles: the same for attention.
        restore: [N] puts the rectangles' kept outputs, one after the other, into pack order.
        ragged: the same once more, for kernels that need no rectangles.
        replay: the experts that the tokens go to, None where routers choose.
    """

    ids: Tensor
    positions: Tensor
    cells: tuple[Indices, ...]
    rectangles: tuple[Rectangle, ...]
    restore: Tensor
    ragged: Ragged
    replay: Replay | None = None

    @property
    def tokens(self) -> int:
        """N."""
        return int(self.ids.shape[1])

    def to(self, device: torch.device | str) -> Pack:
        """The same pack with its tensors on `device`."""
        rectangles = tuple(Rectangle(each.rows.to(device), each.owned.to(device)) for each in self.rectangles)
        return Pack(
            ids=self.ids.to(device),
            positions=self.positions.to(device),
            cells=self.cells,
            rectangles=rectangles,
            restore=self.restore.to(device),
            ragged=self.ragged.to(device),
            replay=self.replay.to(device) if self.replay else None,
        )


def pack(sequences: Sequence[Ids], *, waste: float = 0.15, routings: Sequence[Routing | None] = ()) -> Pack:
    """Pack token ids [T_i], each at least one token; `cells` is in the order given. `routings` are of these.

    `waste` bounds the share of padding in a rectangle of the attention.
    """
    order, shared = lexicographic(sequences, routings)
    cells: list[Indices] = [np.empty(0, dtype=np.int64)] * len(sequences)
    news = np.zeros(len(sequences), dtype=np.int64)  # first token of each sequence that it does not share
    end, previous = 0, np.empty(0, dtype=np.int64)
    for index, prefix in zip(order, shared, strict=True):
        added = len(sequences[index]) - int(prefix)
        previous = np.concatenate([previous[:prefix], np.arange(end, end + added)])
        cells[index], news[index] = previous, prefix
        end += added
    ids, positions = np.empty(end, dtype=np.int64), np.empty(end, dtype=np.int64)
    for sequence, where in zip(sequences, cells, strict=True):
        ids[where] = sequence
        positions[where] = np.arange(len(where))
    rectangles, owners = _rectangles(cells, news, waste)
    return Pack(
        ids=torch.from_numpy(ids)[None],
        positions=torch.from_numpy(positions)[None],
        cells=tuple(cells),
        rectangles=rectangles,
        restore=torch.from_numpy(np.argsort(owners)),
        ragged=_ragged([cells[index] for index in order], shared),
        replay=replay_of(routings, cells, end),
    )


def _ragged(cells: Sequence[Indices], shared: Indices) -> Ragged:
    """`cells` in lexicographic order: the order in which they were added to the pack."""
    added = np.array([len(where) for where in cells]) - shared
    kept = [place for place in range(len(cells)) if added[place]]  # a whole repeat asks nothing

    def ends(counts: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    lengths = [len(cells[place]) for place in kept]
    return Ragged(
        keys=torch.from_numpy(np.concatenate([cells[place] for place in kept])),
        query_ends=ends([int(added[place]) for place in kept]),
        key_ends=ends(lengths),
        longest_query=int(added.max()),
        longest_key=max(lengths),
    )


def _rectangles(
    cells: Sequence[Indices], news: Indices, waste: float
) -> tuple[tuple[Rectangle, ...], Indices]:
    """The rectangles, and [N] the pack position of each kept output in their order."""
    lengths = np.array([len(where) for where in cells])
    by_length = np.argsort(-lengths, kind="stable")
    rectangles, owners = [], []
    for first, last in _runs_of_like_length(lengths[by_length], waste):
        members = by_length[first:last]
        columns = np.arange(lengths[members].max())
        rows = np.stack([np.resize(cells[index], len(columns)) for index in members])
        inside = columns < lengths[members, None]
        rows = np.where(inside, rows, rows[:, :1])
        owned = np.flatnonzero(inside & (columns >= news[members, None]))
        rectangles.append(Rectangle(torch.from_numpy(rows), torch.from_numpy(owned)))
        owners.append(rows.ravel()[owned])
    return tuple(rectangles), np.concatenate(owners)


def _runs_of_like_length(lengths: Indices, waste: float) -> list[tuple[int, int]]:
    """[first, last) of runs of the descending `lengths` in which padding is at most `waste`."""
    runs: list[tuple[int, int]] = []
    first = tokens = 0
    for place, length in enumerate(lengths):
        cells = int(lengths[first]) * (place + 1 - first)
        if place > first and cells - tokens - length > waste * cells:
            runs.append((first, place))
            first, tokens = place, 0
        tokens += int(length)
    return [*runs, (first, len(lengths))]
