"""From raw logits to the logits a token was really drawn from.

A request samples with temperature, top-k, top-p, min-p and penalties; the logged logprob is that of
the resulting distribution. This is the same arithmetic in the same order as vLLM's sampler
(`vllm/v1/sample/sampler.py`, `ops/penalties.py`, `ops/topk_topp_sampler.py`):

    penalties -> divide by temperature -> min-p -> top-k -> top-p

with, for a token id v, c_v its count among the answer's tokens so far and S the ids seen in prompt or
answer:

    repetition   l_v / r if l_v > 0 else l_v * r      for v in S
    frequency    l_v - f c_v
    presence     l_v - p [c_v > 0]
    min-p        drop v where pi_v < m max pi
    top-k        drop v below the k-th largest logit
    top-p        drop the smallest v whose probabilities add up to at most 1 - p

What cannot be reproduced (`stages.sequences.not_reproducible`) is never trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stages.records import Sampling


@dataclass(frozen=True)
class Penalty:
    """The penalties of one generation: `targets` [n] index the tokens scored, `steps` [n] (ascending) say
    how many of `outputs` [L] had been sampled before each; `prompt` [P] holds the ids before the answer."""

    targets: Tensor
    steps: Tensor
    prompt: Tensor
    outputs: Tensor
    sampling: Sampling


@dataclass(frozen=True)
class Processing:
    """Sampling parameters of N tokens; None where no token of the batch uses the parameter.

    temperature, top_p, min_p: [N] float32; top_k: [N] int64, 0 is off.
    """

    temperature: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None
    penalties: tuple[Penalty, ...]

    @classmethod
    def of(cls, samplings: Sequence[Sampling], penalties: Sequence[Penalty] = ()) -> Processing:
        """`samplings` has one entry per token."""

        def column(name: str, off: float, dtype: torch.dtype) -> Tensor | None:
            values = [getattr(sampling, name) for sampling in samplings]
            return torch.tensor(values, dtype=dtype) if any(value != off for value in values) else None

        return cls(
            temperature=column("temperature", 1.0, torch.float32),
            top_k=column("top_k", 0, torch.int64),
            top_p=column("top_p", 1.0, torch.float32),
            min_p=column("min_p", 0.0, torch.float32),
            penalties=tuple(penalties),
        )

    def to(self, device: torch.device | str) -> Processing:
        """The same parameters with the per-token columns on `device` (penalties are made there)."""

        def move(column: Tensor | None) -> Tensor | None:
            return None if column is None else column.to(device)

        return Processing(
            move(self.temperature), move(self.top_k), move(self.top_p), move(self.min_p), self.penalties
        )

    def block(self, first: int, last: int) -> Processing:
        """The parameters of tokens [first, last), targets renumbered from 0."""

        def cut(column: Tensor | None) -> Tensor | None:
            return None if column is None else column[first:last]

        penalties = []
        for each in self.penalties:
            inside = (each.targets >= first) & (each.targets < last)
            if bool(inside.any()):
                targets, steps = each.targets[inside] - first, each.steps[inside]
                penalties.append(Penalty(targets, steps, each.prompt, each.outputs, each.sampling))
        return Processing(
            cut(self.temperature), cut(self.top_k), cut(self.top_p), cut(self.min_p), tuple(penalties)
        )


def has_penalties(sampling: Sampling) -> bool:
    """Whether the distribution of a token depends on how often its ids occurred before."""
    return (
        sampling.presence_penalty != 0 or sampling.frequency_penalty != 0 or sampling.repetition_penalty != 1
    )


def processed_logits(logits: Tensor, processing: Processing) -> Tensor:
    """Logits [N, V] (float32) of the distribution each token was drawn from; -inf for what was ruled out.

    Which ids are ruled out is decided without gradient.
    """
    for penalty in processing.penalties:
        logits = logits.index_copy(0, penalty.targets, _penalised(logits[penalty.targets], penalty))
    if processing.temperature is not None:
        logits = logits / processing.temperature[:, None]
    if processing.min_p is not None:
        probabilities = logits.detach().softmax(-1)
        floor = probabilities.amax(-1, keepdim=True) * processing.min_p[:, None]
        logits = logits.masked_fill(probabilities < floor, -torch.inf)
    if processing.top_k is not None or processing.top_p is not None:
        logits = logits.masked_fill(_truncated(logits.detach(), processing), -torch.inf)
    return logits


def _penalised(logits: Tensor, penalty: Penalty) -> Tensor:
    size = logits.shape[-1]
    counts = _counts(penalty, size)
    seen = counts > 0
    in_prompt = torch.zeros(size, dtype=torch.bool, device=logits.device)
    in_prompt[penalty.prompt] = True
    factor = penalty.sampling.repetition_penalty
    if factor != 1:
        repeated = torch.where(logits > 0, logits / factor, logits * factor)
        logits = torch.where(seen | in_prompt, repeated, logits)
    logits = logits - penalty.sampling.frequency_penalty * counts
    return logits - penalty.sampling.presence_penalty * seen.to(logits.dtype)


def _counts(penalty: Penalty, size: int) -> Tensor:
    """[n, V] int32: how often each id had been sampled before each target. No larger than the logits."""
    counts = torch.zeros(len(penalty.steps), size, dtype=torch.int32, device=penalty.outputs.device)
    drawn = penalty.outputs[: int(penalty.steps[-1])]
    # the first target that came after output j; what came before it counts for all that follow
    after = torch.searchsorted(penalty.steps, torch.arange(len(drawn), device=drawn.device), right=True)
    counts.index_put_((after, drawn), counts.new_ones(()), accumulate=True)
    return counts.cumsum_(0)


def _truncated(logits: Tensor, processing: Processing) -> Tensor:
    """[N, V] mask of the ids that top-k and top-p rule out."""
    ascending, order = logits.sort(dim=-1)
    size = logits.shape[-1]
    ruled_out = torch.zeros_like(ascending, dtype=torch.bool)
    if processing.top_k is not None:
        keep = torch.where(processing.top_k > 0, processing.top_k, size).clamp(max=size)
        kth = ascending.gather(1, (size - keep)[:, None])
        ruled_out |= ascending < kth
        ascending = ascending.masked_fill(ruled_out, -torch.inf)
    if processing.top_p is not None:
        cumulative = ascending.softmax(-1).cumsum(-1)
        below = cumulative <= 1 - processing.top_p[:, None]
        below[:, -1] = False
        ruled_out |= below
    return torch.zeros_like(ruled_out).scatter(1, order, ruled_out)
