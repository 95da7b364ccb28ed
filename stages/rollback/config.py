"""Settings of `rtrl rollback`, section `[rollback]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RollbackConfig(BaseModel):
    """How a rollback talks to the running gateway. Short: a rollback is wanted now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    drain_timeout_s: float = Field(
        2, gt=0, description="requests in flight may take this long to finish; then they are cut short"
    )
    swap_timeout_s: float = Field(60, gt=0, description="drain, load, reset and verification together")
    engine_timeout_s: float = Field(
        30,
        gt=0,
        description="load and verification in the running engine; one that takes longer, or is dead, is "
        "started anew on the previous weights",
    )
    lock_timeout_s: float = Field(10, ge=0, description="how long to wait for a deployment in progress")
