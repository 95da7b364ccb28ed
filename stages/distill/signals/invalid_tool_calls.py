"""Signal `invalid_tool_calls`: calls of the episode that do not parse, name no tool, or fail its schema.

They are negatives. An episode with one is never dropped: a policy whose broken calls are filtered out
learns to break calls on tasks that it expects to fail.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def invalid_tool_calls(
    episode: npt.NDArray[np.int64], invalid: npt.NDArray[np.float64], episodes: int
) -> npt.NDArray[np.float64]:
    """Invalid calls per episode [E]; nan (not known) where none is known and of some it is not told.

    Args:
        episode: index of each generation's episode [G].
        invalid: invalid calls of each generation [G], as the gateway counted them; nan where a log does
            not tell. A call that is known to be invalid counts whatever else is not known.
    """
    untold = np.bincount(episode, weights=np.isnan(invalid), minlength=episodes) > 0
    total = np.bincount(episode, weights=np.nan_to_num(invalid), minlength=episodes).astype(np.float64)
    return np.where(untold & (total == 0), np.nan, total)
