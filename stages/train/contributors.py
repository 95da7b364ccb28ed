"""What each episode counts for in the means that others are held against.

The caps on users and API keys hold a flood of episodes to its share of the gradient. Without them here it
would decide all the same: who sends as many requests as everybody else and has them all fail moves the means
so far down that everybody's wrong answers are above them. So of each mean a user has a capped share, too, and
a key, counted by episodes. Not here: the caps (`stages/contributor_cap.py`), the means (`advantage.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from stages import contributor_cap
from stages.train.config import TrainConfig

if TYPE_CHECKING:
    from stages.tokens import ExperienceEpisode


def weigh_by(
    episodes: Sequence[ExperienceEpisode], config: TrainConfig, shared_keys: Collection[str]
) -> contributor_cap.Weigh:
    """Weights in (0, 1] of some of these episodes in their mean, by the caps of a run.

    `shared_keys` are ids of API keys that are not capped as a whole.
    """
    return contributor_cap.weigh_by(
        pa.array([one.user for one in episodes], pa.string()),
        pa.array([one.key_id for one in episodes], pa.string()),
        user_cap=config.user_cap,
        key_cap=config.key_cap,
        shared=shared_keys,
        least=config.min_kept,
    )
