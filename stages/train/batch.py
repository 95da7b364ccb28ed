"""The batch of one update: which episodes it holds, their tokens, and what was left out and why.

All trained tokens of the batch stand in one flat order (row by row), so that per-token numbers
(logged and recomputed logprobs, coefficients) are plain arrays of length M.

Not here: reading Parquet or seals (`stages/tokens.py`), packing (`packing.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.routing import Routing
from stages.sequences import GenerationInfo
from stages.sequences import Sequence as Tokens
from stages.train.masks import check_lengths, lost_generations, trained_tokens

if TYPE_CHECKING:
    from stages.tokens import ExperienceEpisode


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence, cut after its last trained token.

    Attributes:
        episode: index into `Batch.episodes`.
        token_ids: [T] int32.
        targets: [n] positions of the trained tokens, ascending, all >= 1.
        logged: [n] float32 logprobs from the log, nats.
        sampler: [n] index into `Batch.samplers`.
        generation: [n] index into `generations`.
        first: where the row's n tokens begin in the flat order.
        routing: the experts of its T tokens, None where they are not known or not to be replayed.
    """

    episode: int
    token_ids: NDArray[np.int32]
    targets: NDArray[np.int64]
    logged: NDArray[np.float32]
    sampler: NDArray[np.int64]
    generation: NDArray[np.int64]
    generations: tuple[GenerationInfo, ...]
    first: int
    routing: Routing | None = None

    @property
    def flat(self) -> NDArray[np.int64]:
        """[n] indices of the row's tokens in the flat order."""
        return np.arange(self.first, self.first + len(self.targets))

    def only(self, mine: NDArray[np.bool_]) -> Row:
        """The row with only these of its n trained tokens."""
        return replace(
            self,
            targets=self.targets[mine],
            logged=self.logged[mine],
            sampler=self.sampler[mine],
            generation=self.generation[mine],
        )


@dataclass
class Batch:
    """Episodes to train on, with their rows; and the count of everything that is not."""

    episodes: list[ExperienceEpisode] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)  # checkpoint digests
    lags: dict[str, int | None] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # episode id -> why it is not trained on
    masked: Counter[str] = field(default_factory=Counter)  # sampled tokens, by reason
    lost: dict[str, str] = field(default_factory=dict)  # generation id -> why it gives no gradient
    quarantined: dict[str, str] = field(default_factory=dict)  # generation id -> what is wrong with it
    seen: int = 0  # episodes in the experience

    @property
    def excluded(self) -> Counter[str]:
        """Episodes that are not trained on, by reason."""
        return Counter(self.left.values())

    @cached_property
    def tokens(self) -> int:
        """M, the number of trained tokens."""
        return sum(len(row.targets) for row in self.rows)

    @cached_property
    def context_tokens(self) -> int:
        """All tokens a forward pass over the batch reads."""
        return sum(len(row.token_ids) for row in self.rows)

    @cached_property
    def logged(self) -> NDArray[np.float32]:
        """[M] logged logprobs."""
        return np.concatenate([row.logged for row in self.rows])

    @cached_property
    def sampler_of(self) -> NDArray[np.int64]:
        """[M] index into `samplers`."""
        return np.concatenate([row.sampler for row in self.rows])

    @cached_property
    def episode_of(self) -> NDArray[np.int64]:
        """[M] index into `episodes`."""
        return np.repeat([row.episode for row in self.rows], [len(row.targets) for row in self.rows])

    @cached_property
    def row_of(self) -> NDArray[np.int64]:
        """[M] index into `rows`."""
        return np.repeat(np.arange(len(self.rows)), [len(row.targets) for row in self.rows])

    @cached_property
    def rewards(self) -> NDArray[np.float64]:
        """[E] rewards."""
        return np.array([episode.reward for episode in self.episodes], dtype=np.float64)


def build_batch(
    episodes: Sequence[ExperienceEpisode],
    sequences: Iterable[Tokens],
    *,
    consumed: set[str],
    lag_of: Callable[[str], int | None],
    max_lag: int,
    lost: Callable[[str], str] = lambda episode_id: "",
) -> Batch:
    """Join episodes with their token sequences and leave out what cannot be trained on.

    Args:
        consumed: episodes already trained on in this ancestry.
        lag_of: distance of a sampler from the parent in the checkpoint tree, None when unrelated.
        lost: after all sequences were read, why an episode has none ("forgotten", ...).

    Raises:
        IntegrityError: arrays of a sequence contradict one another.
    """
    batch = Batch(seen=len(episodes))
    wanted: dict[str, ExperienceEpisode] = {}
    for episode in episodes:
        if reason := why_not(episode, consumed):
            batch.left[episode.episode_id] = reason
        else:
            wanted[episode.episode_id] = episode
    masked: dict[str, Counter[str]] = {}
    indices: dict[str, int] = {}
    for tokens in sequences:
        if tokens.episode_id in wanted:
            reasons = _add(batch, tokens, wanted[tokens.episode_id], indices, lag_of, max_lag)
            masked.setdefault(tokens.episode_id, Counter()).update(reasons)
    for episode_id in wanted:
        reasons = masked.get(episode_id, Counter())
        batch.masked.update(reasons)
        if episode_id not in indices:
            most = max(reasons, key=lambda reason: reasons[reason]) if reasons else ""
            batch.left[episode_id] = most or lost(episode_id) or "no_tokens"
    return batch


def why_not(episode: ExperienceEpisode, consumed: set[str]) -> str:
    """Why an episode cannot be trained on whatever its tokens are; "" when it can."""
    if not episode.trainable:
        return episode.why_not or "not_trainable"
    if episode.reward is None:
        return "reward_unknown"
    if not np.isfinite(episode.reward):
        return "reward_not_finite"
    return "consumed" if episode.episode_id in consumed else ""


def _add(
    batch: Batch,
    tokens: Tokens,
    episode: ExperienceEpisode,
    indices: dict[str, int],
    lag_of: Callable[[str], int | None],
    max_lag: int,
) -> Counter[str]:
    check_lengths(tokens)
    for checkpoint in tokens.checkpoints:
        if checkpoint not in batch.lags:
            batch.lags[checkpoint] = lag_of(checkpoint)
            batch.samplers.append(checkpoint)
    mask, left_out = trained_tokens(tokens, batch.lags, max_lag)
    batch.lost |= lost_generations(tokens, mask, batch.lags, max_lag)
    targets = np.flatnonzero(mask)
    if not len(targets):
        return left_out
    if episode.episode_id not in indices:
        indices[episode.episode_id] = len(batch.episodes)
        batch.episodes.append(episode)
    numbers = np.array([batch.samplers.index(checkpoint) for checkpoint in tokens.checkpoints])
    batch.rows.append(
        Row(
            episode=indices[episode.episode_id],
            token_ids=tokens.token_ids[: targets[-1] + 1],
            targets=targets,
            logged=tokens.logprobs[mask].astype(np.float32),
            sampler=numbers[tokens.checkpoint_index[mask]],
            generation=tokens.generation_index[mask].astype(np.int64),
            generations=tokens.generations,
            first=_end(batch.rows),
            routing=tokens.routing.cut(targets[-1] + 1) if tokens.routing else None,
        )
    )
    return left_out


def _end(rows: Sequence[Row]) -> int:
    return rows[-1].first + len(rows[-1].targets) if rows else 0


def without_episodes(batch: Batch, dropped: set[int], reason: str) -> tuple[Batch, NDArray[np.bool_]]:
    """The batch without the episodes of these indices, counted under `reason`; and the kept tokens [M]."""
    kept = [index for index in range(len(batch.episodes)) if index not in dropped]
    renumbered = {old: new for new, old in enumerate(kept)}
    result = Batch(
        episodes=[batch.episodes[index] for index in kept],
        samplers=list(batch.samplers),
        lags=dict(batch.lags),
        left=batch.left | {batch.episodes[index].episode_id: reason for index in sorted(dropped)},
        masked=Counter(batch.masked),
        lost=dict(batch.lost),
        quarantined=dict(batch.quarantined),
        seen=batch.seen,
    )
    for row in batch.rows:
        if row.episode in renumbered:
            result.rows.append(replace(row, episode=renumbered[row.episode], first=_end(result.rows)))
    return result, ~np.isin(batch.episode_of, sorted(dropped))
