"""The exits of train for the exclusion audit: episodes that distill gave a reward and that give no gradient.

What distill left out is in its own audit. Not for: the tests (`stages/exclusion.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages import exclusion, schemas, tables
from stages.stage import Artifact
from stages.train.batch import Batch

KEPT = "trained"
_BEHAVIOURS = {  # what the policy controls, by its column of the experience
    "output_tokens": "output_tokens",
    "turns": "n_generations",
}
_SIGNALS = {  # the same, of signals; a foreign experience may have others
    "invalid_calls": "invalid_tool_calls",
    "edited": "edited",
    "clarified": "clarified",
}


def audit(batch: Batch, experience: Artifact) -> list[dict[str, Any]]:
    """One row per exit, what is trained on last; see `exclusion.audit`.

    Raises IntegrityError when the experience's file is damaged.
    """
    path = experience.path / schemas.EPISODES_FILE
    told = {name: of for name, of in _SIGNALS.items() if of in tables.names(path)}
    behaviours = _BEHAVIOURS | told
    names = ["episode_id", "user", "trainable", "reward", *behaviours.values()]
    table = tables.read(path, schemas.experience_episodes(tuple(told.values())), names)
    table = table.filter(table["trainable"])
    users = table["user"].combine_chunks().dictionary_encode().indices
    values = {name: table[of].to_numpy().astype(np.float64) for name, of in behaviours.items()}
    return exclusion.audit(
        [batch.left.get(episode, "") for episode in table["episode_id"].to_pylist()],
        np.asarray(users, dtype=np.int64),
        {"reward": table["reward"].to_numpy().astype(np.float64), **values},
        kept=KEPT,
    )
