"""The exits of train for the exclusion audit: episodes that distill gave a reward and that give no gradient.

What distill left out is in its own audit. Not for: the tests (`stages/exclusion.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stages import exclusion, parts, schemas, tables
from stages.train.batch import Batch

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact

Floats = NDArray[np.float64]

KEPT = "trained"
_QUARANTINED = "quarantined"
_BEHAVIOURS = {  # what the policy controls, by its column of the experience
    "output_tokens": "output_tokens",
    "turns": "n_generations",
}
_SIGNALS = {  # the same, of signals; a foreign experience may have others
    "invalid_calls": "invalid_tool_calls",
    "edited": "edited",
    "clarified": "clarified",
}


def audit(batch: Batch, experience: Artifact, store: Store) -> list[dict[str, Any]]:
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
    columns = {name: table[of].to_numpy().astype(np.float64) for name, of in behaviours.items()}
    values = {"reward": table["reward"].to_numpy().astype(np.float64), **columns}
    ids = table["episode_id"].combine_chunks()
    return exclusion.audit(
        [batch.left.get(episode, "") for episode in ids.to_pylist()],
        np.asarray(users, dtype=np.int64),
        values,
        kept=KEPT,
        parts=_parts(batch, experience, store, ids, values),
    )


def _parts(
    batch: Batch, experience: Artifact, store: Store, ids: pa.Array, values: Mapping[str, Floats]
) -> parts.Parts | None:
    """The generations that were to be trained on; those that distill left out are in its audit."""
    trained = {row.generations[index].id for row in batch.rows for index in np.unique(row.generation)}
    episodes = {episode.episode_id for episode in batch.episodes}
    planned = tables.read(experience.path / schemas.SEQUENCES_FILE, schemas.SEQUENCES).to_pylist()
    mine = [row for row in planned if row["episode_id"] in episodes]
    gone = [each for row in mine for each in row["generation_ids"] if each not in trained]
    lost = {each: batch.lost.get(each, _QUARANTINED) for each in gone}
    along = set(gone).difference(batch.lost)  # of a sequence that cannot be put together without another
    interactions = (store.resolve(digest) for digest in sorted({row["interactions"] for row in mine}))
    return parts.read(interactions, ids, values, lost, pa.array(sorted(trained), pa.string()), along)
