"""An experience as another trainer needs it: sequence by sequence, with masks, lags and advantages.

The experience is read twice. The first reading counts, and finds which episodes have a token to train
on: their rewards make the baselines where a line has none yet. The second one yields rows. Memory holds
the episodes' numbers and the tokens of one sequence. Not here: files and layouts (`layouts.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.consumed import consumed_among, reach
from stages.linestate import LineState
from stages.rewarded import rewarded_by
from stages.sequences import Sequence
from stages.tokens import ExperienceEpisode, load_episodes, load_sequences
from stages.train.advantage import advantages
from stages.train.batch import why_not
from stages.train.config import TrainConfig
from stages.train.contributors import weigh_by
from stages.train.masks import check_lengths, trained_tokens
from stages.vault import Vault

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact, Progress


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence of an episode, as it is exported.

    Attributes:
        number: its place among the episode's sequences, from 0.
        mask: [T] True where the token may be trained on: sampled by the policy, under parameters that can
            be reproduced, by a checkpoint near enough to the parent, in an episode that is `usable`.
        why_not: why the episode is not usable, "" when it is.
        advantage, baseline: in units of reward; None where the reward is not known or not usable.
        lags: distance of each of `tokens.checkpoints` to the parent, None when unrelated.
    """

    episode: ExperienceEpisode
    tokens: Sequence
    number: int
    mask: NDArray[np.bool_]
    why_not: str
    advantage: float | None
    baseline: float | None
    lags: tuple[int | None, ...]

    @property
    def id(self) -> str:
        """Unique within the experience."""
        return f"{self.episode.episode_id}/{self.number}"

    @property
    def prompt_tokens(self) -> int:
        """Length of what stands before the first sampled token."""
        return self.tokens.generations[0].output_start


@dataclass
class Survey:
    """What the first reading found. `excluded` counts episodes, `masked` sampled tokens, by reason.

    `routed` are sequences that tell which experts their tokens went to; no layout has a column for that.
    """

    episodes: int = 0
    sequences: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    longest_prompt: int = 0
    longest_completion: int = 0
    usable: int = 0
    routed: int = 0
    excluded: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    users: set[str] = field(default_factory=set)


class Reading:
    """One experience, read for a parent. Close the vault that is given when done."""

    def __init__(
        self,
        inputs: Mapping[str, Artifact],
        config: TrainConfig,
        store: Store,
        vault: Vault,
        progress: Progress,
        shared_keys: Collection[str] = (),
    ) -> None:
        self._shared_keys = shared_keys
        self.experience, self.parent = inputs["experience"], inputs["parent"]
        self._state = inputs["line_state"]
        self._config, self._store, self._vault, self._progress = config, store, vault, progress
        self._lags: dict[str, int | None] = {}
        self._lost: dict[str, str] = {}
        self._max_lag = reach(LineState.load(self._state.path), self.parent, config.max_lag)
        self._episodes = {one.episode_id: one for one in load_episodes(self.experience)}
        before = consumed_among(self._state.path, self._episodes)
        self._why = {name: why_not(one, before) for name, one in self._episodes.items()}
        self._advantage: dict[str, tuple[float, float]] = {}

    def survey(self, *, all_rows: bool) -> Survey:
        """The first reading. `all_rows`: count sequences that cannot be trained on too, as `rows` does."""
        found = Survey(episodes=len(self._episodes))
        masked: dict[str, Counter[str]] = {}
        trained: Counter[str] = Counter()
        self._progress.start("reading the experience", len(self._episodes))
        for episode, tokens, mask, reasons in self._read():
            count = 0 if self._why[episode.episode_id] else int(mask.sum())
            trained[episode.episode_id] += count
            if not self._why[episode.episode_id]:
                masked.setdefault(episode.episode_id, Counter()).update(reasons)
            if not count and not all_rows:
                continue
            prompt = tokens.generations[0].output_start
            found.sequences += 1
            found.tokens += len(tokens.token_ids)
            found.trained_tokens += count
            found.longest_prompt = max(found.longest_prompt, prompt)
            found.longest_completion = max(found.longest_completion, len(tokens.token_ids) - prompt)
            found.routed += tokens.routing is not None
            found.users.add(tokens.user)
        for name in self._why:
            reasons = masked.get(name, Counter())
            found.masked.update(reasons)
            if not self._why[name] and not trained[name]:
                most = max(reasons, key=lambda reason: reasons[reason]) if reasons else ""
                self._why[name] = most or self._lost.get(name, "no_tokens")
        found.excluded.update(why for why in self._why.values() if why)
        found.usable = sum(not why for why in self._why.values())
        self._advantage = self._advantages()
        return found

    def rows(self, *, all_rows: bool) -> Iterator[Row]:
        """The second reading, after `survey`: rows in the experience's order."""
        numbers: Counter[str] = Counter()
        self._progress.start("writing", len(self._episodes))
        for episode, tokens, mask, _ in self._read():
            name = episode.episode_id
            why = self._why[name]
            number = numbers[name]
            numbers[name] += 1
            if why:
                mask = np.zeros_like(mask)  # noqa: PLW2901
            if not all_rows and not mask.any():
                continue
            advantage, baseline = self._advantage.get(name, (None, None))
            lags = tuple(self._lags[digest] for digest in tokens.checkpoints)
            yield Row(episode, tokens, number, mask, why, advantage, baseline, lags)

    def _read(self) -> Iterator[tuple[ExperienceEpisode, Sequence, NDArray[np.bool_], Counter[str]]]:
        seen: set[str] = set()
        for tokens in load_sequences(
            self.experience,
            self._store,
            self._vault,
            on_forgotten=lambda name: self._lost.update({name: "forgotten"}),
            on_quarantine=lambda generation, reason: None,  # its episode is counted as quarantined below
        ):
            if tokens.episode_id not in self._episodes:
                continue
            check_lengths(tokens)
            for digest in tokens.checkpoints:
                if digest not in self._lags:
                    self._lags[digest] = self._lag(digest)
            mask, reasons = trained_tokens(tokens, self._lags, self._max_lag)
            if tokens.episode_id not in seen:
                seen.add(tokens.episode_id)
                self._progress.advance()
            yield self._episodes[tokens.episode_id], tokens, mask, reasons
        for name in self._episodes.keys() - seen:
            self._lost.setdefault(name, "quarantined")

    def _lag(self, checkpoint: str) -> int | None:
        known = self._store.is_committed(checkpoint)
        return self._store.lag(checkpoint, self.parent.digest) if known else None

    def _advantages(self) -> dict[str, tuple[float, float]]:
        """(advantage, baseline) of the usable episodes, by the formula of our own trainer."""
        names = [name for name, why in self._why.items() if not why]
        if not names:
            return {}
        episodes = [self._episodes[name] for name in names]
        table = LineState.load(self._state.path).baselines.get(rewarded_by(self.experience), {})
        found, baselines = advantages(
            np.array([episode.reward for episode in episodes], dtype=np.float64),
            [episode.stratum for episode in episodes],
            [episode.group for episode in episodes],
            table,
            shrinkage=self._config.baseline_shrinkage,
            scale=self._config.scale_advantages,
            weigh=weigh_by(episodes, self._config, self._shared_keys),
        )
        return {name: (float(a), float(b)) for name, a, b in zip(names, found, baselines, strict=True)}
