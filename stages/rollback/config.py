"""Settings of `rtrl rollback`, section `[rollback]`."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.durations import require_time_to_load
from stages.rollback.patience import Patience

DEFAULT = Patience()


class RollbackConfig(BaseModel):
    """How a rollback talks to the running gateway. Short: a rollback is wanted now."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    drain_timeout_s: float = Field(
        DEFAULT.drain_timeout_s,
        gt=0,
        description="requests in flight may take this long to finish; then they are cut short",
    )
    swap_timeout_s: float = Field(
        DEFAULT.swap_timeout_s,
        gt=0,
        description="drain, load, reset and verification together: more than drain_timeout_s and "
        "engine_timeout_s",
    )
    engine_timeout_s: float = Field(
        DEFAULT.engine_timeout_s,
        gt=0,
        description="load and verification in the running engine; one that takes longer, or is dead, is "
        "started anew on the previous weights",
    )
    lock_timeout_s: float = Field(
        DEFAULT.lock_timeout_s, ge=0, description="how long to wait for a deployment in progress"
    )

    @model_validator(mode="after")
    def _time_to_load(self) -> Self:
        require_time_to_load(
            self.swap_timeout_s,
            drain_timeout_s=self.drain_timeout_s,
            engine_timeout_s=self.engine_timeout_s,
        )
        return self
