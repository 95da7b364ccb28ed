"""What each episode counts for in the means that others are held against.

The caps on users and API keys hold a flood of episodes to its share of the gradient. Without them here it
would decide all the same: who sends as many requests as everybody else and has them all fail moves the means
so far down that everybody's wrong answers are above them. So of each mean a user has a capped share, too, and
a key, counted by episodes. Not here: the caps (`stages/contributor_cap.py`), the means (`advantage.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stages.contributor_cap import cap_contributions
from stages.train.advantage import Floats, Indices, Weigh
from stages.train.config import TrainConfig

if TYPE_CHECKING:
    from stages.tokens import ExperienceEpisode


def weigh_by(
    episodes: Sequence[ExperienceEpisode], config: TrainConfig, shared_keys: Collection[str]
) -> Weigh:
    """Weights in (0, 1] of some of these episodes in their mean, where each counts once before the caps.

    `shared_keys` are ids of API keys that are not capped as a whole.
    """

    def weigh(some: Indices) -> Floats:
        mine = [episodes[index] for index in some]
        return cap_contributions(
            [one.user for one in mine],
            [one.key_id for one in mine],
            np.ones(len(mine)),
            user_cap=config.user_cap,
            key_cap=config.key_cap,
            shared=shared_keys,
            least=config.min_kept,
        ).factor

    return weigh
