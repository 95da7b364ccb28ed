"""Experience and line state into the batch of an update, and the table that says what is in it.

Not here: opening seals and Parquet (`stages/tokens.py`), what makes a token trainable (`masks.py`).
No torch: `rtrl train --dry-run` ends here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.consumed import consumed_among, reach
from stages.errors import InconclusiveError, InputMissingError
from stages.linestate import LineState
from stages.tokens import load_episodes, load_sequences
from stages.train.batch import Batch, build_batch
from stages.train.config import TrainConfig
from stages.vault import Vault

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact
    from stages.workspace import Workspace


def load_batch(
    inputs: Mapping[str, Artifact],
    config: TrainConfig,
    workspace: Workspace,
    store: Store,
    only: str = "",
) -> Batch:
    """The batch of `inputs` (roles experience, line_state, parent). Raises IntegrityError on damage.

    `only` names the one episode that the batch is to hold; for a look at why it does not.
    """
    experience, parent = inputs["experience"], inputs["parent"]
    forgotten: set[str] = set()
    quarantined: dict[str, str] = {}

    def quarantine(generation_id: str, reason: str) -> None:
        quarantined.setdefault(generation_id, reason)

    def lag_of(checkpoint: str) -> int | None:
        return store.lag(checkpoint, parent.digest) if store.is_committed(checkpoint) else None

    episodes = [each for each in load_episodes(experience) if only in ("", each.episode_id)]
    state = inputs["line_state"].path
    vault = Vault.open(workspace.keys_dir)
    try:
        batch = build_batch(
            episodes,
            load_sequences(experience, store, vault, on_forgotten=forgotten.add, on_quarantine=quarantine),
            consumed=consumed_among(state, (each.episode_id for each in episodes)),
            lag_of=lag_of,
            max_lag=reach(LineState.load(state), parent, config.max_lag),
            lost=lambda episode_id: "forgotten" if episode_id in forgotten else "quarantined",
        )
    finally:
        vault.close()
    if not config.router_replay:
        batch.rows = [replace(row, routing=None) for row in batch.rows]
    if quarantined:
        batch.masked["quarantined_generations"] = len(quarantined)
        batch.lost |= dict.fromkeys(quarantined, "quarantined")
        batch.quarantined = quarantined
    return batch


def refuse_small(batch: Batch, experience: Artifact, config: TrainConfig) -> None:
    """Raises InputMissingError when nothing can be trained on, InconclusiveError when it is too little."""
    count = len(batch.episodes)
    if count >= config.min_episodes:
        return
    why = ", ".join(f"{reason} {number}" for reason, number in batch.excluded.most_common())
    left_out = f" ({why})" if why else ""
    if count == 0:
        raise InputMissingError(
            f"{experience.ref} has nothing to train on: {batch.seen} episodes{left_out}",
            hint="`rtrl collect` and `rtrl distill` after more use; `rtrl train --dry-run` shows the batch",
        )
    raise InconclusiveError(
        f"{experience.ref} has {count} trainable episodes of {batch.seen}{left_out}; "
        f"train.min_episodes is {config.min_episodes}",
        hint="wait for more use, then `rtrl collect` and `rtrl distill`",
    )


def batch_table(batch: Batch) -> dict[str, Any]:
    """What is in the batch, as JSON: episodes and tokens by reason, lag, stratum; users and keys by share."""
    table: dict[str, Any] = {
        "episodes": batch.seen,
        "trained_episodes": len(batch.episodes),
        "excluded_episodes": dict(sorted(batch.excluded.items())),
        "sequences": len(batch.rows),
        "trained_tokens": batch.tokens,
        "context_tokens": batch.context_tokens,
        "masked_tokens": dict(sorted(batch.masked.items())),
    }
    if not batch.episodes:
        return table
    by_stratum: defaultdict[str, list[float]] = defaultdict(list)
    per_user: Counter[str] = Counter()
    per_key: Counter[str] = Counter()
    for episode in batch.episodes:
        by_stratum[episode.stratum].append(float(episode.reward or 0.0))
        per_user[episode.user] += 1
        per_key[episode.key_id] += 1
    tokens = np.bincount(batch.sampler_of, minlength=len(batch.samplers))
    return table | {
        "reward_mean": float(batch.rewards.mean()),
        "reward_std": float(batch.rewards.std()),
        "strata": {
            name: {"episodes": len(values), "reward_mean": float(np.mean(values))}
            for name, values in sorted(by_stratum.items())
        },
        "users": len(per_user),
        "largest_user_share": max(per_user.values()) / len(batch.episodes),
        "keys": len(per_key),
        "largest_key_share": max(per_key.values()) / len(batch.episodes),
        "tokens_by_lag": {
            str(batch.lags[digest]): int(count)
            for digest, count in zip(batch.samplers, tokens, strict=True)
            if count
        },
    }
