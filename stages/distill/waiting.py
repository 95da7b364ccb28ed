"""Whether episodes are collected late enough for all that a reward spec waits for.

Not for: what is in time for a signal (each signal's own file).
"""

from __future__ import annotations

from stages.distill.spec import RewardSpec
from stages.errors import UsageError


def require_horizon(spec: RewardSpec, collected_s: float, where: str) -> None:
    """Raise UsageError (2) where a horizon of the spec is longer than collect's; `where` that stands."""
    if spec.horizon_s <= collected_s:
        return
    longer = [name for name, waits in spec.horizons.model_dump().items() if waits > collected_s]
    raise UsageError(
        f"reward spec {spec.name} waits {spec.horizon_s:g} s for a signal, but {where} {collected_s:g} s",
        hint=f"collect with --set collect.horizon_s={spec.horizon_s:g}, or shorten {', '.join(longer)} "
        "under [horizons] of the spec: those it leaves out have their defaults",
    )
