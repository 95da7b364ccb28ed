"""The exits of distill for the exclusion audit: what this stage knows of who left and who stayed.

Behaviours are what the policy controls. What an episode that gives no gradient would have earned is known
as a rule, so the audit has its reward too. Not for: the tests, and what is refused (`stages/exclusion.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from stages import exclusion, parts
from stages.distill.score import Scored
from stages.distill.spec import RewardSpec
from stages.stage import Artifact

KEPT = "trainable"
BEHAVIOURS = {  # by the column of `measure.MEASURED`
    "invalid_calls": "invalid_tool_calls",
    "edited": "edited",
    "clarified": "clarified",
    "output_tokens": "output_tokens",
    "calls": "n_calls",
    "turns": "n_generations",
}


def audit(
    measured: pa.Table,
    scored: Scored,
    spec: RewardSpec,
    interactions: Artifact,
    lost: Mapping[str, str],
) -> list[dict[str, Any]]:
    """One row per exit, the trainable last, see `exclusion.audit`; the spec's own exits are always in.

    `lost` gives, by its id, why a model call of an episode that stays has no gradient.
    """
    users = np.asarray(measured["user"].combine_chunks().dictionary_encode().indices, dtype=np.int64)
    columns = {name: measured[of].to_numpy().astype(np.float64) for name, of in BEHAVIOURS.items()}
    values = {"reward": scored.rewards.reward, **columns}
    return exclusion.audit(
        scored.why_not,
        users,
        values,
        kept=KEPT,
        accepted=spec.accepted_exits,
        exits=spec.exits,
        parts=parts.read([interactions], measured["episode_id"].combine_chunks(), values, lost),
    )
