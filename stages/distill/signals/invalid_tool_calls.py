"""Signal `invalid_tool_calls`: calls of the episode that do not parse, name no tool, or fail its schema.

They are negatives. An episode with one is never dropped: a policy whose broken calls are filtered out
learns to break calls on tasks that it expects to fail.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def invalid_tool_calls(
    episode: npt.NDArray[np.int64], invalid: npt.NDArray[np.int64], episodes: int
) -> npt.NDArray[np.float64]:
    """Invalid calls per episode [E].

    Args:
        episode: index of each generation's episode [G].
        invalid: invalid calls of each generation [G], as the gateway counted them.
    """
    return np.bincount(episode, weights=invalid, minlength=episodes).astype(np.float64)
