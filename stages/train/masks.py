"""Which tokens of a sequence get a gradient.

A token is trained on when the policy sampled it, under parameters that can be reproduced, and its
sampler is near enough to the parent in the checkpoint tree. Prompts and tool outputs are never; a
sequence may hold tokens of several weight versions, of which only the near ones count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stages.errors import IntegrityError
from stages.sequences import Sequence, not_reproducible

NO_CONTEXT = "no_context"  # why the first token of a sequence is not trained on


def check_lengths(sequence: Sequence) -> None:
    """Raises IntegrityError when the arrays of a sequence contradict one another."""
    expected = len(sequence.token_ids)
    arrays = ("logprobs", "sampled", "checkpoint_index", "generation_index")
    for name in arrays:
        if len(getattr(sequence, name)) != expected:
            raise IntegrityError(
                f"episode {sequence.episode_id}: {len(getattr(sequence, name))} {name} for {expected} tokens "
                "(logprobs of wrong length)",
                hint="the capture is damaged: run `rtrl verify --full`, then `rtrl collect` again",
            )
    routing = sequence.routing
    if routing and {len(routing.experts), len(routing.known)} != {expected}:
        raise IntegrityError(
            f"episode {sequence.episode_id}: routed experts of {len(routing.experts)} tokens for {expected}",
            hint="the capture is damaged: run `rtrl verify --full`, then `rtrl collect` again",
        )
    sampled = sequence.sampled
    if (sequence.checkpoint_index[sampled] < 0).any() or (sequence.generation_index[sampled] < 0).any():
        raise IntegrityError(
            f"episode {sequence.episode_id} has sampled tokens of no known checkpoint or generation",
            hint="run `rtrl verify --full`, then `rtrl collect` again",
        )


def lag_reason(lag: int | None, max_lag: int) -> str:
    """Why tokens of a sampler at this distance in the checkpoint tree are metrics only, or ""."""
    if lag is None:
        return "unrelated_checkpoint"
    return "lag" if lag > max_lag else ""


def trained_tokens(
    sequence: Sequence, lags: Mapping[str, int | None], max_lag: int
) -> tuple[NDArray[np.bool_], Counter[str]]:
    """(mask [T], sampled tokens left out by reason).

    `lags` maps the digest of every sampler to its distance from the parent, None when unrelated.
    """
    mask = sequence.sampled.copy()
    left_out: Counter[str] = Counter()

    def leave_out(tokens: NDArray[np.bool_], reason: str) -> None:
        tokens = tokens & mask
        if tokens.any():
            left_out[reason] += int(tokens.sum())
            mask[tokens] = False

    for index, generation in enumerate(sequence.generations):
        if reason := not_reproducible(generation.sampling):
            leave_out(sequence.generation_index == index, reason)
    for index, checkpoint in enumerate(sequence.checkpoints):
        if reason := lag_reason(lags[checkpoint], max_lag):
            leave_out(sequence.checkpoint_index == index, reason)
    first = np.zeros_like(mask)
    first[:1] = True
    leave_out(first, NO_CONTEXT)  # nothing precedes it that could predict it
    return mask, left_out


def lost_generations(
    sequence: Sequence, mask: NDArray[np.bool_], lags: Mapping[str, int | None], max_lag: int
) -> dict[str, str]:
    """The generations, by id, of whose sampled tokens none is in `mask` [T], each with why."""
    found = {}
    for index, generation in enumerate(sequence.generations):
        mine = sequence.generation_index == index
        if not mine.any() or mask[mine].any():
            continue
        samplers = (sequence.checkpoints[n] for n in np.unique(sequence.checkpoint_index[mine]))
        far = [reason for digest in samplers if (reason := lag_reason(lags[digest], max_lag))]
        found[generation.id] = not_reproducible(generation.sampling) or next(iter(far), NO_CONTEXT)
    return found
